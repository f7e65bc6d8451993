"""`dev.py bench`: commits per second beside the machine's own limits.

Three voters as three processes on loopback, fresh directories, real fdatasync on all three, 100-byte values, a closed
loop of N callers inside the leader's process (`tools.bench.load`). The elected leader carries the load. The points are
measured in turn, several times over, so that a busy moment of the machine does not fall on one of them alone; the
median trial by rate is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.cluster import Cluster, RefusedError
from kraftlib.config import ENGINES, EVENT_LOOPS
from kraftlib.errors import ConfigError
from tools.bench import hand_over
from tools.bench.catch_up import as_text as catch_up_as_text
from tools.bench.catch_up import measure_catch_up
from tools.bench.certificate import make_certificate
from tools.bench.failover import measure_failover, summary
from tools.bench.hostile import as_text as hostile_as_text
from tools.bench.hostile import measure_hostile
from tools.bench.large import as_text as large_as_text
from tools.bench.large import measure_log, measure_state
from tools.bench.machine import Machine, measure, median_of
from tools.bench.observers import as_text as observers_as_text
from tools.bench.observers import measure_observers
from tools.bench.snapshot import as_text, measure_snapshot
from tools.bench.start import as_text as start_as_text
from tools.bench.start import measure_start
from tools.bench.storage import as_text as storage_as_text
from tools.bench.storage import measure_storage

ATTEMPTS: Final = 3
VALUE_BYTES: Final = 100
TLS: Final = "+tls"
"""After the name of an engine: its replicas speak mutual TLS."""


Measure = Callable[..., Coroutine[Any, Any, dict[str, Any]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what to measure."""
    parser.description = (
        "Measure commits per second and latency of a quorum of three on this machine, with every commit synced to a\n"
        "majority of disks, beside the machine's own fdatasync and loopback round trip.\n"
        "The limit: one fdatasync and one round trip for each round, and every caller in every round."
    )
    parser.epilog = "example:\n  python3 dev.py bench --callers 1,256 --engine inline --output json"
    parser.add_argument("--callers", type=_numbers, default=[1, 16, 256], metavar="N,N", help="default 1,16,256")
    parser.add_argument(
        "--appender", type=_numbers, default=[256], metavar="N,N", help="one caller, N records in flight (256)"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each trial (2)")
    parser.add_argument("--trials", type=int, default=3, help="of each point; the median is shown (3)")
    parser.add_argument("--engine", choices=(*ENGINES, "both"), default="both", help="default both")
    parser.add_argument("--event-loop", choices=EVENT_LOOPS, default="auto", help="auto: uvloop, if it is installed")
    parser.add_argument(
        "--tls", action="store_true", help="measure each engine with mutual TLS, too; with --hostile: with TLS alone"
    )
    parser.add_argument("--size", type=int, default=VALUE_BYTES, help="bytes of a value (100)")
    parser.add_argument("--directory", type=Path, default=Path(), help="the directory on whose disk to measure (here)")
    parser.add_argument("--scram", action="store_true", help="with one secret and SCRAM-SHA-512 between the voters")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="json: one line a point")
    parser.add_argument(
        "--failover", type=int, metavar="KILLS", help="instead: ms from kill -9 of the leader to the next commit"
    )
    parser.add_argument(
        "--start", type=int, metavar="TIMES", help="instead: ms to import kraftlib, and until a replica has started"
    )
    parser.add_argument(
        "--snapshot", type=int, metavar="KEYS", help="instead: a snapshot of so many keys, and commits meanwhile"
    )
    parser.add_argument(
        "--storage",
        type=int,
        metavar="MIB",
        help="instead: the log beside a plain file; opening one so long",
    )
    parser.add_argument(
        "--catch-up",
        type=int,
        metavar="MIB",
        help="instead: the bytes sent until a replica that is killed every 2 s has a snapshot of so many MiB",
    )
    parser.add_argument(
        "--large-log", type=_numbers, metavar="MIB,MIB", help="instead: the cost of logs of so many MiB, and its slope"
    )
    parser.add_argument(
        "--large-state", type=_numbers, metavar="KEYS,KEYS", help="instead: the cost of so many keys, and its slope"
    )
    parser.add_argument(
        "--observers",
        type=lambda text: [int(part) for part in text.split(",")],
        metavar="N,N",
        help="instead: the cost of so many observers, and the time until all have a record (0,50,200,500)",
    )
    parser.add_argument(
        "--tree", type=int, default=0, metavar="N", help="with --observers: they fetch from N observers of the leader"
    )
    parser.add_argument(
        "--hostile", type=int, metavar="N", help="instead: commits while a stranger sends N frames a second"
    )
    parser.add_argument(
        "--hand-over",
        type=int,
        metavar="TIMES",
        help="instead: ms until an election of the recipes has its next leader",
    )
    parser.add_argument("--burst", type=int, default=1, metavar="N", help="with --hostile: send N frames at once (1)")
    parser.add_argument("--open-port", action="store_true", help="with --hostile: no secret keeps the stranger out")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="also show, on stderr, where the time of the callers' thread goes: with --engine inline, all of it",
    )


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: at least 1 each")
    return numbers


def run(options: argparse.Namespace) -> int:
    """Measure all points and print them."""
    if not options.directory.is_dir():
        raise ConfigError(f"--directory {options.directory} is no directory")
    options.directory = options.directory.resolve()  # the processes of a benchmark run elsewhere
    if options.failover is not None:
        return _run_failover(options)
    if options.start is not None:
        return _run_start(options)
    if options.snapshot is not None:
        return _run_snapshot(options)
    if options.storage is not None:
        return _run_storage(options)
    if options.catch_up is not None:
        return _run_catch_up(options)
    if options.large_log is not None:
        return _run_large(options, measure_log, options.large_log, "mib", 100 << 10)
    if options.large_state is not None:
        return _run_large(options, measure_state, options.large_state, "keys", 10_000_000)
    if options.observers is not None:
        return _run_observers(options)
    if options.hostile is not None:
        return _run_hostile(options)
    if options.hand_over is not None:
        return hand_over.run(options)
    engines: tuple[str, ...] = ENGINES if options.engine == "both" else (options.engine,)
    if options.tls:
        engines = tuple(name for engine in engines for name in (engine, engine + TLS))
    with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
        trials, machine = asyncio.run(_measure(Path(directory), engines, options))
    points = [_point(kind, found, machine) for kind, found in trials.items()]
    if options.output == "json":
        for point in points:
            print(json.dumps(point))
    else:
        _print_table(points, machine)
    for (engine, callers, api), found in trials.items():
        for trial in found[:1] if options.profile else ():
            print(f"--- {engine}, {callers} by {api}\n{trial['profile']}", file=sys.stderr)
    return 0


def _run_failover(options: argparse.Namespace) -> int:
    if options.failover < 1:
        raise ConfigError(f"--failover {options.failover}: at least one kill")
    with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
        found = summary(asyncio.run(measure_failover(Path(directory), options.failover)))
    if options.output == "json":
        print(json.dumps(found))
    else:
        print(
            f"{found['kills']} x kill -9 of the leader: the next write was committed after {found['p50_ms']} ms at the "
            f"median, {found['p90_ms']} ms at the 90th percentile, {found['min_ms']} to {found['max_ms']} ms in all"
        )
    return 0


def _run_start(options: argparse.Namespace) -> int:
    if options.start < 1:
        raise ConfigError(f"--start {options.start}: at least one time")
    with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
        found = measure_start(Path(directory), options.start)
    print(json.dumps(found) if options.output == "json" else start_as_text(found))
    return 0


def _run_snapshot(options: argparse.Namespace) -> int:
    if options.snapshot < 1:
        raise ConfigError(f"--snapshot {options.snapshot}: at least one key")
    for engine in ENGINES if options.engine == "both" else (options.engine,):
        with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
            found = asyncio.run(
                measure_snapshot(Path(directory), options.snapshot, engine=engine, seconds=options.seconds)
            )
        print(json.dumps(found) if options.output == "json" else as_text(found), flush=True)
    return 0


def _run_storage(options: argparse.Namespace) -> int:
    if options.storage < 1:
        raise ConfigError(f"--storage {options.storage}: at least one MiB")
    with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
        found = measure_storage(Path(directory), options.storage, say=lambda line: print(line, file=sys.stderr))
    print(json.dumps(found) if options.output == "json" else storage_as_text(found))
    return 0


def _run_catch_up(options: argparse.Namespace) -> int:
    if options.catch_up < 1:
        raise ConfigError(f"--catch-up {options.catch_up}: at least one MiB")
    with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
        found = asyncio.run(
            measure_catch_up(Path(directory), options.catch_up, say=lambda line: print(line, file=sys.stderr))
        )
    print(json.dumps(found) if options.output == "json" else catch_up_as_text(found))
    return 0


def _run_large(options: argparse.Namespace, measured: Measure, sizes: Sequence[int], by: str, at: int) -> int:
    with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
        rows = []
        for size in sizes:
            rows.append(
                asyncio.run(measured(Path(directory), size, say=lambda line: print(line, file=sys.stderr, flush=True)))
            )
            if options.output == "json":
                print(json.dumps(rows[-1]), flush=True)
    if options.output == "text":
        print(large_as_text(rows, by, at))
    return 0


def _run_observers(options: argparse.Namespace) -> int:
    if min(*options.observers, options.tree) < 0:
        raise ConfigError(f"--observers {options.observers} --tree {options.tree}: a number of observers is 0 or more")
    for engine in ENGINES if options.engine == "both" else (options.engine,):
        for observers in options.observers:
            found = asyncio.run(measure_observers(observers, engine=engine, seconds=options.seconds, tree=options.tree))
            print(json.dumps(found) if options.output == "json" else observers_as_text(found), flush=True)
    return 0


def _run_hostile(options: argparse.Namespace) -> int:
    if options.hostile < 1:
        raise ConfigError(f"--hostile {options.hostile}: at least one frame a second")
    if options.burst < 1:
        raise ConfigError(f"--burst {options.burst}: at least one frame at once")
    with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
        found = asyncio.run(
            measure_hostile(
                Path(directory),
                options.hostile,
                burst=options.burst,
                seconds=options.seconds,
                trials=options.trials,
                guard="nothing" if options.open_port else "tls" if options.tls else "secret",
            )
        )
    print(json.dumps(found) if options.output == "json" else hostile_as_text(found))
    return 0


Kind = tuple[str, int, str]
"""Engine, records under way, and the call that appends them."""
Trials = dict[Kind, list[dict[str, Any]]]


async def _measure(directory: Path, engines: Sequence[str], options: argparse.Namespace) -> tuple[Trials, Machine]:
    """Return all trials, and what the machine could do meanwhile: its limits are measured in turn with the trials."""
    apis = {"append_one": options.callers, "appender": options.appender}
    trials: Trials = {
        (engine, callers, api): [] for engine in engines for api, numbers in apis.items() for callers in numbers
    }
    machines = []
    async with AsyncExitStack() as stack:
        clusters = {}
        for engine in engines:
            home = directory / engine
            home.mkdir()
            settings: dict[str, str | int] = {"engine": engine.removesuffix(TLS), "event_loop": options.event_loop}
            if options.scram:
                secret = home / "secret"
                secret.touch(mode=0o600)
                secret.write_text(secrets.token_urlsafe())
                settings["sasl.secret_file"] = str(secret.absolute())
            if engine.endswith(TLS):
                settings |= make_certificate(home, "127.0.0.1")
            cluster = Cluster(home, settings=settings, program="tools.bench.voter")
            clusters[engine] = await stack.enter_async_context(cluster)
        for _ in range(options.trials):
            machines.append(await asyncio.to_thread(measure, directory))
            for (engine, callers, api), found in trials.items():
                load = {
                    "callers": callers,
                    "appender": api == "appender",
                    "seconds": options.seconds,
                    "size": options.size,
                    "profile": options.profile,
                }
                found.append(await _trial(clusters[engine], load, options.seconds))
    return trials, median_of(machines)


async def _trial(cluster: Cluster, load: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Put load on the leader; again, if it loses the leadership meanwhile."""
    for attempt in range(ATTEMPTS):
        leader, _ = await cluster.leader()
        try:
            result: dict[str, Any] = await leader.ask("load", load, timeout_ms=int(seconds * 1_000) + 30_000)
            return result
        except (RefusedError, ConnectionError):
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError  # not reached: the last attempt has returned or raised


def _point(kind: Kind, trials: Sequence[dict[str, Any]], machine: Machine) -> dict[str, Any]:
    """Return the median trial by rate, as it is printed."""
    engine, callers, api = kind
    median = sorted(trials, key=lambda trial: trial["commits_per_s"])[len(trials) // 2]
    return {
        "engine": engine,
        "callers": callers,
        "api": api,
        "commits_per_s": round(median["commits_per_s"], 1),
        "p50_us": round(median["p50_us"], 1) if api == "append_one" else None,
        "p99_us": round(median["p99_us"], 1) if api == "append_one" else None,
        "fdatasync_us": round(machine.fdatasync_us, 1),
        "round_trip_us": round(machine.round_trip_us, 1),
        "leader_cpu": round(median["leader_cpu"], 3),
        "leader_cpu_us": round(min(1e6 * trial["leader_cpu"] / trial["commits_per_s"] for trial in trials), 2),
        "event_loop": median["event_loop"],
        "limit_per_s": round(machine.limit_per_s(callers), 1),
        "of_limit": round(median["commits_per_s"] / machine.limit_per_s(callers), 3),
    }


def _print_table(points: Sequence[dict[str, Any]], machine: Machine) -> None:
    print(
        f"this machine: fdatasync {machine.fdatasync_us:.0f} µs, loopback round trip {machine.round_trip_us:.0f} µs "
        f"(medians); event loop: {points[0]['event_loop']}\n"
    )
    print(
        f"{'engine':<12}{'callers':>12}{'commits/s':>12}{'p50 µs':>10}{'p99 µs':>10}{'leader CPU':>12}"
        f"{'µs/commit':>11}{'of limit':>10}"
    )
    for point in points:
        who = f"{point['callers']}" if point["api"] == "append_one" else f"appender {point['callers']}"
        p50, p99 = ("-" if point[name] is None else f"{point[name]:,.0f}" for name in ("p50_us", "p99_us"))
        print(
            f"{point['engine']:<12}{who:>12}{point['commits_per_s']:>12,.0f}{p50:>10}{p99:>10}"
            f"{point['leader_cpu']:>12.2f}{point['leader_cpu_us']:>11.1f}{point['of_limit']:>10.2f}"
        )
