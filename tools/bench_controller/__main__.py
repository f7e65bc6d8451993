"""`python -m tools.bench_controller`: read the command line, measure, print."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kraftlib.cli import one_line
from kraftlib.errors import KraftError
from tools.bench.machine import measure
from tools.bench_controller.broker import FailedError
from tools.bench_controller.controllers import ROOT, Kafkas, Kind, Ours
from tools.bench_controller.report import lines
from tools.bench_controller.scenes import SCENES, Sizes, say

LONG = {
    "partitions": 100_000,
    "fenced": 10_000,
    "beating": 1_000,
    "loaded": (0, 250_000, 500_000, 1_000_000),
    "failovers": 5,
    "seconds": 10.0,
    "rounds": 3,
    "heap_mib": 4_096,
    "minutes": 60.0,
}
SHORT = {
    "partitions": 20_000,
    "fenced": 5_000,
    "beating": 500,
    "loaded": (0, 50_000),
    "failovers": 2,
    "seconds": 3.0,
    "rounds": 1,
    "heap_mib": 1_024,
    "minutes": 10.0,
}


def numbers(text: str) -> tuple[int, ...]:
    """Read `1,2,3`."""
    return tuple(int(part) for part in text.split(","))


def parser() -> argparse.ArgumentParser:
    """Return the reader of the command line."""
    found = argparse.ArgumentParser(
        prog="dev.py bench-controller",
        description="Measure the metadata controller beside Kafka's own, in turns: minutes, or with --long an hour.",
        epilog="One controller of each kind answers; in `failover` there are three. Kafka has the flags of its start "
        "script. It needs a JDK, and Maven once. On a busy machine processor time suffers less than seconds.",
    )
    add = found.add_argument
    add("--scenes", default=",".join(SCENES), help=f"the things to measure ({','.join(SCENES)})")
    add("--long", action="store_true", help="the sizes of the goals: up to a million partitions, 16 GB of memory")
    add("--without-kafka", action="store_true", help="measure ours alone")
    add("--kafka", default="4.3.1", metavar="RELEASE", help="(4.3.1)")
    add("--linger", type=numbers, default=(25,), metavar="MS", help="Kafka's controller.quorum.append.linger.ms (25)")
    add("--brokers", type=int, default=100, metavar="N", help="brokers over which partitions are spread (100)")
    add("--partitions", type=int, metavar="N", help="partitions that are created")
    add("--fenced", type=int, metavar="N", help="partitions of the broker that is fenced")
    add("--beating", type=int, metavar="N", help="brokers that send heartbeats")
    add("--loaded", type=numbers, metavar="N,N", help="partitions in snapshots; failover takes the largest")
    add("--failovers", type=int, metavar="N", help="kills")
    add("--seconds", type=float, metavar="S", help="the time of each measurement of a rate")
    add("--rounds", type=int, metavar="N", help="turns, of which the median is shown")
    add("--heap-mib", type=int, metavar="N", help="the heap of each JVM")
    add("--minutes", type=float, metavar="N", help="the bound of the whole run")
    add("--output", choices=("text", "json"), default="text", help="(text)")
    return found


def contenders(options: argparse.Namespace) -> list[Kind]:
    """Return ours and, unless they are not wanted, Kafka's. Raises: KraftError, if there are no jars."""
    kinds: list[Kind] = [Ours()]
    if options.without_kafka:
        return kinds
    fetching = [sys.executable, "-m", "tests.interop.jars", options.kafka]
    done = subprocess.run(fetching, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise KraftError(f"no jars of Kafka {options.kafka}: say --without-kafka to measure ours alone")
    libraries = Path(done.stdout.split()[1])
    kinds += [Kafkas(libraries, heap_mib=options.heap_mib, linger_ms=linger_ms) for linger_ms in options.linger]
    return kinds


async def run(options: argparse.Namespace, home: Path, found: dict[str, Any]) -> bool:
    """Measure all scenes; return whether there was time for all of them."""
    kinds = contenders(options)
    sizes = Sizes(**{name: getattr(options, name) for name in Sizes.__annotations__})
    try:
        async with asyncio.timeout(options.minutes * 60) as bound:
            for name in options.scenes.split(","):
                say(name)
                await SCENES[name](kinds, home / name, sizes, found)
    except TimeoutError:
        if not bound.expired():
            raise
        say(f"not done within {options.minutes} minutes: the measurements until then follow")
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit status."""
    reader = parser()
    options = reader.parse_args(arguments)
    wrong = set(options.scenes.split(",")) - set(SCENES)
    if wrong:
        reader.error(f"--scenes: no such scene: {', '.join(sorted(wrong))}")
    for name, value in (LONG if options.long else SHORT).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    found: dict[str, Any] = {}
    home = Path(tempfile.mkdtemp(prefix="bench-controller-"))
    try:
        machine, load = measure(home), os.getloadavg()
        is_whole = asyncio.run(run(options, home, found))
    except KeyboardInterrupt:
        return 130
    except (KraftError, FailedError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(f"bench-controller: {one_line(error)}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if options.output == "json":
        told: dict[str, Any] = {
            "fdatasync_us": machine.fdatasync_us,
            "round_trip_us": machine.round_trip_us,
            "cpus": os.cpu_count(),
        }
        told |= {"load_before": load, "load_after": os.getloadavg(), "date": time.strftime("%Y-%m-%d %H:%M")}
        print(json.dumps({"machine": told, "sizes": _sizes(options), "figures": found}, indent=1))
    else:
        print(
            f"fdatasync {machine.fdatasync_us:.0f} µs, loopback round trip {machine.round_trip_us:.0f} µs, load ",
            end="",
        )
        print(f"{load[0]:.1f} before and {os.getloadavg()[0]:.1f} after, {os.cpu_count()} processors\n")
        print("\n".join(lines(found)))
    return int(not is_whole)


def _sizes(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in SHORT}


if __name__ == "__main__":
    sys.exit(main())
