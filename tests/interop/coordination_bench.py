"""`python3 dev.py bench --against etcd,zookeeper`: services of three servers and their clients, in turn in one run.

Each service is three processes on loopback with fresh directories and its own defaults, every write synced on a
majority of disks: ours with the machine of the recipes (`kraftlib.open`). One program in Go (`services/main.go`) is the
clients of all of them: by etcd's own client, a usual one for ZooKeeper, and our documented protocol. It connects
so many clients, spread over the three servers, and each sends its next operation when the last one is answered.

ZooKeeper's linearizable read is a sync and a read. `stale` reads the server that is asked. Medians of the trials.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.cluster import Cluster
from tests.interop.contenders import CONNECTIONS_MAX, programs, start_etcd, start_zookeeper, wait_until_served
from tests.interop.jars import FetchError, MissingToolsError, say
from tools.bench.machine import Machine, measure, median_of

OURS: Final = "kraftlib"
PEERS: Final = {"etcd": start_etcd, "zookeeper": start_zookeeper}
CLIENTS: Final = (1, 64, 1_000)
OPERATIONS: Final = ("put", "cas", "get", "stale")
SETTINGS: Final[Mapping[str, str | int]] = {
    "engine": "inline",
    "event_loop": "auto",
    "election_timeout_ms": 1_000,
    "limits.connections_max": CONNECTIONS_MAX,
    "limits.connections_per_address_max": CONNECTIONS_MAX,
}
CONNECT_S: Final = 300.0
"""All clients have connected and ended by then, beside the time of the trial."""

Point = tuple[str, int, str]
"""Service, clients, operation."""


async def run(options: argparse.Namespace, home: Path) -> tuple[Machine, dict[Point, list[dict[str, float]]]]:
    """Return what the machine can do, and all trials."""
    trials: dict[Point, list[dict[str, float]]] = {}
    machines: list[Machine] = []
    async with AsyncExitStack() as stack:
        services = {OURS: await _start_ours(home / OURS, stack)}
        peers = stack.enter_context(ExitStack())
        for kind in options.against:
            services[kind] = await asyncio.to_thread(PEERS[kind], home / kind, peers)
        for kind, servers in services.items():
            await asyncio.to_thread(wait_until_served, kind, servers)
        for trial in range(options.trials):
            machines.append(await asyncio.to_thread(measure, home))
            for clients in options.clients:
                for operation in options.operations:
                    say(f"trial {trial + 1} of {options.trials}: {clients} clients, {operation}")
                    for kind, servers in services.items():
                        found = await _load(kind, servers, clients, operation, options.seconds)
                        trials.setdefault((kind, clients, operation), []).append(found)
    return median_of(machines), trials


async def _start_ours(home: Path, stack: AsyncExitStack) -> Sequence[str]:
    await asyncio.to_thread(home.mkdir)
    cluster = await stack.enter_async_context(Cluster(home, settings=SETTINGS, program="tools.bench.service"))
    return [str(endpoint) for endpoint in cluster.endpoints]


async def _load(kind: str, servers: Sequence[str], clients: int, operation: str, seconds: float) -> dict[str, float]:
    """Put load on one service. Raises: RuntimeError with the words of the program."""
    command = (str(programs() / "load"), kind, ",".join(servers), str(clients), operation, str(seconds))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(seconds + CONNECT_S):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"{kind}, {clients} clients, {operation}: {errors.decode(errors='replace').strip()}")
    found: dict[str, float] = json.loads(out)
    return found


def points(trials: Mapping[Point, Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    """Return the medians, and our rate as a multiple of each."""
    medians = {
        point: {name: statistics.median(trial[name] for trial in found) for name in found[0]}
        for point, found in trials.items()
    }
    return [
        {
            "service": kind,
            "clients": clients,
            "operation": operation,
            **{name: round(value, 1) for name, value in median.items()},
            "ours_is": round(medians[OURS, clients, operation]["per_s"] / median["per_s"], 2),
        }
        for (kind, clients, operation), median in medians.items()
    ]


def show(machine: Machine, found: Sequence[Mapping[str, Any]]) -> None:
    """Print a table."""
    told = f"fdatasync {machine.fdatasync_us:.0f} µs, loopback round trip {machine.round_trip_us:.0f} µs (medians)"
    print(f"this machine: {told}\n")
    print(f"{'service':<12}{'clients':>8}{'operation':>11}{'per s':>10}{'p50 µs':>11}{'p99 µs':>11}{'kraftlib is':>13}")
    for point in found:
        print(
            f"{point['service']:<12}{point['clients']:>8}{point['operation']:>11}{point['per_s']:>10,.0f}"
            f"{point['p50_us']:>11,.0f}{point['p99_us']:>11,.0f}{point['ours_is']:>12.2f}x"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="dev.py bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=_of(PEERS), default=list(PEERS), metavar="A,B", help="etcd,zookeeper")
    parser.add_argument("--clients", type=_numbers, default=list(CLIENTS), metavar="N,N", help="1,64,1000")
    parser.add_argument("--operations", type=_of(OPERATIONS), default=list(OPERATIONS), help=",".join(OPERATIONS))
    parser.add_argument("--seconds", type=float, default=3.0, help="of each trial (3)")
    parser.add_argument("--trials", type=int, default=3, help="of each point (3)")
    parser.add_argument("--directory", type=Path, default=Path(), help="on whose disk to measure (here)")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="json: one line a point")
    options = parser.parse_args(arguments)
    try:
        programs()
        with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
            machine, trials = asyncio.run(run(options, Path(directory).resolve()))
    except (MissingToolsError, FetchError, RuntimeError) as error:
        say(f"error: {error}")
        return 1
    if options.output == "json":
        for point in points(trials):
            print(json.dumps({**point, "fdatasync_us": machine.fdatasync_us, "round_trip_us": machine.round_trip_us}))
    else:
        show(machine, points(trials))
    return 0


def _of(known: Any) -> Any:
    def names(text: str) -> list[str]:
        chosen = [part.strip() for part in text.split(",") if part.strip()]
        if not chosen or set(chosen) - set(known):
            raise argparse.ArgumentTypeError(f"{text!r}: expected some of {', '.join(known)}")
        return chosen

    return names


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",") if part.strip()]
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: at least one client")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
