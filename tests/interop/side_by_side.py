"""`python3 dev.py bench --against kafka`: Kafka's raft client and ours, alternately in one run on one machine.

Both get three voters as three processes on loopback, a static quorum, fresh directories, every commit synced on a
majority of disks, values of 100 bytes, and a closed loop of N callers inside the leader's own process: each appends its
next record when the last one is committed. Kafka's runs twice, with `controller.quorum.append.linger.ms` 0 and with its
default of 25, embedded in a small Java program without a controller on top (`peer/Peer.java`, order `bench`); it is
warmed up before anything counts. The points are measured in turn, several times over; medians are shown.

Failover is the time from `kill -9` of the leader until another voter says that it leads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Protocol

from kraftlib.cli.cluster import POLL_S, Cluster
from tests.interop.kafka import Release
from tests.interop.lab import Lab, Quorum
from tests.interop.processes import wait_for
from tools.bench.machine import Machine, measure, median_of

SIZE: Final = 100
CALLERS: Final = (1, 16, 256)
LINGERS: Final = (0, 25)
WARM_UP_MS: Final = 3_000
HEAP_MB: Final = 512
OURS: Final = "kraftlib"

Trials = dict[str, dict[int, list[Mapping[str, Any]]]]


class Contender(Protocol):
    """A quorum of three."""

    name: str

    async def measure(self, callers: int, milliseconds: int) -> Mapping[str, Any]:
        """Put a closed loop on the leader; return `commits_per_s`, `p50_us`, `p99_us`."""
        ...

    async def fail_over(self) -> float:
        """Kill the leader; return how many ms it took until another one led; start the killed one again."""
        ...


class Ours:
    """Three replicas of kraftlib, with Kafka's own election timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self.name = OURS
        self._cluster = cluster

    async def measure(self, callers: int, milliseconds: int) -> Mapping[str, Any]:
        leader, _ = await self._cluster.leader()
        load = {"callers": callers, "seconds": milliseconds / 1_000, "size": SIZE, "profile": False}
        result: Mapping[str, Any] = await leader.ask("load", load, timeout_ms=milliseconds + 30_000)
        return result

    async def fail_over(self) -> float:
        leader, epoch = await self._cluster.leader()
        began = time.monotonic()
        await self._cluster.kill(leader.number)
        await self._cluster.leader(after_epoch=epoch)
        took_ms = (time.monotonic() - began) * 1_000
        await self._cluster.start(leader.number)
        return took_ms


class Kafkas:
    """Three raft clients of Kafka."""

    def __init__(self, quorum: Quorum, linger_ms: int) -> None:
        self.name = f"Kafka {quorum.lab.release.version}, linger {linger_ms} ms"
        self._quorum = quorum

    async def measure(self, callers: int, milliseconds: int) -> Mapping[str, Any]:
        return await asyncio.to_thread(self._measure, callers, milliseconds)

    async def fail_over(self) -> float:
        return await asyncio.to_thread(self._fail_over)

    def _measure(self, callers: int, milliseconds: int) -> Mapping[str, Any]:
        leader = self._quorum.nodes[self._quorum.leader()["leader_id"]]
        result: Mapping[str, Any] = leader.ask(  # type: ignore[union-attr]
            "bench", f"{callers} {milliseconds} {SIZE}", timeout_s=milliseconds / 1_000 + 40
        )
        if "error" in result:
            raise RuntimeError(f"{self.name}: {result['error']}")
        return result

    def _fail_over(self) -> float:
        before = self._quorum.leader()
        leader_id, epoch = before["leader_id"], before["epoch"]
        began = time.monotonic()
        self._quorum.nodes[leader_id].kill()

        def somebody_leads() -> bool:
            statuses = [replica.replica_status() for replica in self._quorum.replicas]
            return any(status["role"] == "leader" and status["epoch"] > epoch for status in statuses)

        wait_for("the next leader", somebody_leads, every_s=POLL_S)
        took_ms = (time.monotonic() - began) * 1_000
        self._quorum.start(leader_id)
        return took_ms


def start_kafkas(lab: Lab, linger_ms: int) -> Kafkas:
    """Start a quorum of Kafka's raft clients, with a compiler that may take its time."""
    quorum = lab.static(peers=[1, 2, 3], properties={"controller.quorum.append.linger.ms": linger_ms})
    for node in quorum.nodes.values():
        node.command = [word for word in node.command if not word.startswith(("-XX:Tiered", "-XX:+UseSerial", "-Xmx"))]
        node.command.insert(1, f"-Xmx{HEAP_MB}m")
    quorum.start()
    return Kafkas(quorum, linger_ms)


async def run(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Return everything that was measured."""
    release = Release(options.kafka, home)
    trials: Trials = {}
    failovers: dict[str, list[float]] = {}
    machines: list[Machine] = []
    async with AsyncExitStack() as stack:
        contenders: list[Contender] = []
        (home / "ours").mkdir()
        settings = {"engine": "inline", "event_loop": "auto", "election_timeout_ms": 1_000}
        cluster = Cluster(home / "ours", settings=settings, program="tools.bench.voter")
        contenders.append(Ours(await stack.enter_async_context(cluster)))
        for linger_ms in LINGERS:
            place = home / f"linger-{linger_ms}"
            place.mkdir()
            lab = Lab(release, place)
            stack.callback(lab.close, tell=False)
            contenders.append(await asyncio.to_thread(start_kafkas, lab, linger_ms))
        for contender in contenders:
            say(f"warming up {contender.name}")
            await contender.measure(64, WARM_UP_MS)
        for trial in range(options.trials):
            machines.append(await asyncio.to_thread(measure, home))
            for callers in options.callers:
                say(f"trial {trial + 1} of {options.trials}: {callers} callers")
                for contender in contenders:
                    found = await contender.measure(callers, round(options.seconds * 1_000))
                    trials.setdefault(contender.name, {}).setdefault(callers, []).append(found)
        for number in range(options.failovers):
            say(f"failover {number + 1} of {options.failovers}")
            for contender in contenders:
                if contender.name == OURS or contender.name.endswith(" 0 ms"):
                    failovers.setdefault(contender.name, []).append(await contender.fail_over())
    return {
        "machine": median_of(machines) if machines else None,
        "points": points(trials),
        "failovers": {name: sorted(times) for name, times in failovers.items()},
    }


def points(trials: Trials) -> list[dict[str, Any]]:
    """Return the medians, and ours as a multiple of each of Kafka's."""
    rates = {
        (name, callers): statistics.median(trial["commits_per_s"] for trial in found)
        for name, by_callers in trials.items()
        for callers, found in by_callers.items()
    }
    return [
        {
            "who": name,
            "callers": callers,
            "commits_per_s": round(rate, 1),
            "p50_us": round(statistics.median(trial["p50_us"] for trial in trials[name][callers]), 1),
            "p99_us": round(statistics.median(trial["p99_us"] for trial in trials[name][callers]), 1),
            "ours_is": round(rates[OURS, callers] / rate, 2),
        }
        for (name, callers), rate in sorted(
            rates.items(), key=lambda item: (item[0][1], item[0][0] != OURS, item[0][0])
        )
    ]


def show(found: Mapping[str, Any]) -> None:
    """Print tables."""
    machine = found["machine"]
    if machine is not None:
        told = f"fdatasync {machine.fdatasync_us:.0f} µs, loopback round trip {machine.round_trip_us:.0f} µs (medians)"
        print(f"this machine: {told}\n")
    if found["points"]:
        print(f"{'who':<26}{'callers':>8}{'commits/s':>12}{'p50 µs':>10}{'p99 µs':>10}{'kraftlib is':>14}")
    for point in found["points"]:
        print(
            f"{point['who']:<26}{point['callers']:>8}{point['commits_per_s']:>12,.0f}{point['p50_us']:>10,.0f}"
            f"{point['p99_us']:>10,.0f}{point['ours_is']:>13.2f}x"
        )
    for name, times in found["failovers"].items():
        print(
            f"failover of {name}: median {statistics.median(times):,.0f} ms of {len(times)} "
            f"({times[0]:,.0f} to {times[-1]:,.0f})"
        )


def say(text: str) -> None:
    """Tell the person at the terminal what goes on."""
    print(f"side by side: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="dev.py bench --against kafka", description=__doc__.partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), default="kafka", help="whom")
    parser.add_argument("--kafka", default="4.3.1", metavar="RELEASE", help="which release (4.3.1)")
    parser.add_argument("--callers", type=_numbers, default=list(CALLERS), metavar="N,N", help="1,16,256")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each trial (3)")
    parser.add_argument("--trials", type=int, default=3, help="of each point (3)")
    parser.add_argument("--failovers", type=int, default=3, help="how many leaders are killed (3)")
    parser.add_argument("--directory", type=Path, default=Path(), help="on whose disk to measure (here)")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="json: one object")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
        found = asyncio.run(run(options, Path(directory).resolve()))
    if options.output == "json":
        machine = found["machine"]
        print(json.dumps({**found, "machine": machine and [machine.fdatasync_us, machine.round_trip_us]}))
    else:
        show(found)
    return 0


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]


if __name__ == "__main__":
    sys.exit(main())
