"""`dev.py bench --failover N`: the time without service after kill -9 of a leader.

Three voters as three processes with real sockets and files. Again and again the leader's process is killed; from that
moment on a client writes to both survivors, without knowing who will lead, until one of them has *committed* its write.
That is the time: death noticed, elected, epoch proved, record on two disks, answer. Then the dead one is started again.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kraftlib.cli.cluster import Cluster, RefusedError, Voter

PAUSE_S: Final = 0.001
QUIET_S: Final = 0.25
"""Between two kills: the voters fetch again, and the new leader is known to all."""
CATCH_UP_S: Final = 20.0
PATIENCE_S: Final = 30.0


async def measure_failover(directory: Path, kills: int) -> list[float]:
    """Return, for each kill, the ms from the signal to the first write that is committed afterwards."""
    times = []
    async with Cluster(directory) as cluster:
        for number in range(kills):
            leader, _ = await cluster.leader()
            await _caught_up(cluster)
            await asyncio.sleep(QUIET_S)
            times.append(await _kill_and_write(cluster, leader, f"after kill {number}"))
            await cluster.start(leader.number)
            print(f"kill {number + 1} of {kills}: {times[-1]:.0f} ms", file=sys.stderr)
    return times


async def _kill_and_write(cluster: Cluster, leader: Voter, value: str) -> float:
    survivors = [voter for voter in cluster.voters.values() if voter is not leader]
    began = time.perf_counter()
    killing = asyncio.create_task(cluster.kill(leader.number))
    writers = [asyncio.create_task(_write(voter, value)) for voter in survivors]
    try:
        async with asyncio.timeout(PATIENCE_S):
            done, _ = await asyncio.wait(writers, return_when=asyncio.FIRST_COMPLETED)
        ended = time.perf_counter()
        for task in done:
            task.result()
        return (ended - began) * 1_000
    finally:
        for task in writers:
            task.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await killing


async def _write(voter: Voter, value: str) -> None:
    while True:
        try:
            await voter.ask("put", {"key": "probe", "value": value}, timeout_ms=int(PATIENCE_S * 1_000))
            return
        except RefusedError:
            await asyncio.sleep(PAUSE_S)


async def _caught_up(cluster: Cluster) -> None:
    """Wait until all three have the same log: a replica that lacks something cannot be elected at once."""
    async with asyncio.timeout(CATCH_UP_S):
        while True:
            statuses = await cluster.statuses()
            ends = {(status["log_end_offset"], status["leader_id"]) for _, status in statuses}
            if len(statuses) == len(cluster.voters) and len(ends) == 1 and None not in {leader for _, leader in ends}:
                return
            await asyncio.sleep(0.01)


def summary(times: Sequence[float]) -> dict[str, Any]:
    """Return what is printed: ms."""
    ordered = sorted(times)
    return {
        "kills": len(ordered),
        "p50_ms": round(statistics.median(ordered), 1),
        "p90_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))], 1),
        "max_ms": round(ordered[-1], 1),
        "min_ms": round(ordered[0], 1),
    }
