"""`python3 dev.py bench --against kafka,etcd-raft`: libraries of Raft and ours, in turn in one run on one machine.

All have three voters as three processes on loopback, a static quorum, fresh directories, every commit synced on a
majority of disks, values of 100 bytes, and a closed loop of N callers inside the leader's own process: each appends
its next record when the last one is committed. `tests.interop.raft_contenders` says who takes part. All are warmed up
before anything counts. The points are measured in turn, several times over; medians are shown.

CPU time is that of the whole process: of the leader's, and the mean of the two others'. Failover is the time from
`kill -9` of the leader until another voter says that it leads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.cluster import Cluster
from tests.interop.jars import FetchError, MissingToolsError, say
from tests.interop.kafka import Release
from tests.interop.lab import Lab
from tests.interop.raft_contenders import KAFKA, LIBRARIES, OURS, Contender, Kafkas, Library, Ours, measured, program
from tools.bench.machine import Machine, measure, median_of

CALLERS: Final = (1, 16, 256)
LINGERS: Final = (0, 25)
WARM_UP_MS: Final = 3_000
SETTINGS: Final = {"engine": "inline", "event_loop": "auto", "election_timeout_ms": 1_000}

Trials = dict[str, dict[int, list[Mapping[str, Any]]]]


async def contenders(options: argparse.Namespace, home: Path, stack: AsyncExitStack) -> list[Contender]:
    """Start ours and those that were named; they end with `stack`."""

    def place(name: str) -> Path:
        (home / name).mkdir()
        return home / name

    cluster = await stack.enter_async_context(Cluster(place(OURS), settings=SETTINGS, program="tools.bench.voter"))
    started: list[Contender] = [Ours(cluster)]
    for name in options.against:
        if name == KAFKA:
            for linger_ms in LINGERS:
                lab = Lab(Release(options.kafka, home), place(f"linger-{linger_ms}"))
                stack.callback(lab.close, tell=False)
                started.append(await asyncio.to_thread(Kafkas, lab, linger_ms))
        else:
            library = Library(name, place(name))
            stack.callback(library.close)
            started.append(library)
    return started


async def run(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Return everything that was measured."""
    trials: Trials = {}
    failovers: dict[str, list[float]] = {}
    machines: list[Machine] = []
    async with AsyncExitStack() as stack:
        everybody = await contenders(options, home, stack)
        for contender in everybody:
            say(f"warming up {contender.name}")
            await contender.load(64, WARM_UP_MS)
        for trial in range(options.trials):
            machines.append(await asyncio.to_thread(measure, home))
            for callers in options.callers:
                say(f"trial {trial + 1} of {options.trials}: {callers} callers")
                for contender in everybody:
                    found = await measured(contender, callers, round(options.seconds * 1_000))
                    trials.setdefault(contender.name, {}).setdefault(callers, []).append(found)
        for number in range(options.failovers):
            say(f"failover {number + 1} of {options.failovers}")
            for contender in everybody:
                if contender.is_killed:
                    failovers.setdefault(contender.name, []).append(await contender.fail_over())
    return {
        "machine": median_of(machines) if machines else None,
        "points": points(trials),
        "failovers": {name: sorted(times) for name, times in failovers.items()},
    }


def points(trials: Trials) -> list[dict[str, Any]]:
    """Return the medians, and our rate as a multiple of each, by callers."""
    medians = {
        (callers, name): {each: statistics.median(trial[each] for trial in found) for each in found[0]}
        for name, by_callers in trials.items()
        for callers, found in by_callers.items()
    }
    return [
        {
            "who": name,
            "callers": callers,
            **{each: round(value, 1) for each, value in median.items()},
            "ours_is": round(medians[callers, OURS]["commits_per_s"] / median["commits_per_s"], 2),
        }
        for (callers, name), median in sorted(
            medians.items(), key=lambda item: (item[0][0], item[0][1] != OURS, item[0])
        )
    ]


def show(found: Mapping[str, Any]) -> None:
    """Print tables."""
    machine = found["machine"]
    if machine is not None:
        told = f"fdatasync {machine.fdatasync_us:.0f} µs, loopback round trip {machine.round_trip_us:.0f} µs (medians)"
        print(f"this machine: {told}\n")
    if found["points"]:
        print(f"{'':<46}{'':>20}{'CPU µs a commit':>22}")
        head = f"{'who':<26}{'callers':>8}{'commits/s':>12}{'p50 µs':>10}{'p99 µs':>10}"
        print(f"{head}{'leader':>11}{'follower':>11}{'kraftlib is':>14}")
    for point in found["points"]:
        print(
            f"{point['who']:<26}{point['callers']:>8}{point['commits_per_s']:>12,.0f}{point['p50_us']:>10,.0f}"
            f"{point['p99_us']:>10,.0f}{point['leader_cpu_us']:>11,.1f}{point['follower_cpu_us']:>11,.1f}"
            f"{point['ours_is']:>13.2f}x"
        )
    for name, times in found["failovers"].items():
        print(
            f"failover of {name}: median {statistics.median(times):,.0f} ms of {len(times)} "
            f"({times[0]:,.0f} to {times[-1]:,.0f})"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="dev.py bench", description=__doc__.partition("\n")[0])
    names = ",".join((KAFKA, *LIBRARIES))
    parser.add_argument("--against", type=_peers, default=[KAFKA], metavar="A,B", help=f"some of {names}")
    parser.add_argument("--kafka", default="4.3.1", metavar="RELEASE", help="which release (4.3.1)")
    parser.add_argument("--callers", type=_numbers, default=list(CALLERS), metavar="N,N", help="1,16,256")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each trial (3)")
    parser.add_argument("--trials", type=int, default=3, help="of each point (3)")
    parser.add_argument("--failovers", type=int, default=3, help="how many leaders are killed (3)")
    parser.add_argument("--directory", type=Path, default=Path(), help="on whose disk to measure (here)")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="json: one object")
    options = parser.parse_args(arguments)
    try:
        if set(options.against) & set(LIBRARIES):
            program()
        with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
            found = asyncio.run(run(options, Path(directory).resolve()))
    except (MissingToolsError, FetchError, RuntimeError) as error:
        say(f"error: {error}")
        return 1
    if options.output == "json":
        machine = found["machine"]
        print(json.dumps({**found, "machine": machine and [machine.fdatasync_us, machine.round_trip_us]}))
    else:
        show(found)
    return 0


def _peers(text: str) -> list[str]:
    known = (KAFKA, *LIBRARIES)
    names = text.split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return names


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",") if part.strip()]
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: at least one caller")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
