"""`dev.py bench --hand-over N`: the time without a leader in an election of the recipes.

Three replicas as three processes; the leader of the election is a client in a process of its own, and another client
waits. After `kill -9` of the holder its session has to end: the quorum waits for the session's time to live after the
last renewal. The time beyond that is measured, from the sending of the last renewal that the holder knew of. After a
release the whole time is measured, from the call of `release` until the next one leads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import kraftlib
from kraftlib.cli.cluster import Cluster
from kraftlib.errors import ConfigError
from kraftlib.recipes.calls import RENEWALS
from kraftlib.recipes.session import now_ms
from tools.bench.holder import NAME

TTL_MS: Final = 2_000
BID_S: Final = 0.3
"""Until the bid of the one that waits has come."""
PATIENCE_S: Final = 60.0


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    if options.hand_over < 1:
        raise ConfigError(f"--hand-over {options.hand_over}: at least once")
    with tempfile.TemporaryDirectory(prefix="kraftlib-bench-", dir=options.directory) as directory:
        found = asyncio.run(measure_hand_over(Path(directory), options.hand_over))
    print(json.dumps(found) if options.output == "json" else as_text(found))
    return 0


async def measure_hand_over(directory: Path, times: int) -> dict[str, Any]:
    """Return the ms beyond the time to live after a kill, and the ms after a release."""
    async with Cluster(directory, program="tools.bench.service") as cluster:
        servers = ",".join(map(str, cluster.endpoints))
        killed, released = [], []
        for number in range(times):
            killed.append(await _after_kill(servers))
            released.append(await _after_release(servers))
            print(
                f"{number + 1} of {times}: killed {killed[-1]:.0f} ms beyond the time to live, "
                f"released {released[-1]:.1f} ms",
                file=sys.stderr,
            )
    return {"times": times, "ttl_ms": TTL_MS, "beyond_ttl_ms": _summary(killed), "released_ms": _summary(released)}


async def _after_kill(servers: str) -> float:
    async with _holder(servers) as holder, kraftlib.connect(servers, owner="next") as kraft:
        assert holder.stdout is not None
        if (await holder.stdout.readline()).strip() != b"leads":
            raise RuntimeError("the holder has ended before it led")
        waiting = asyncio.create_task(kraft.election(NAME).acquire())
        await asyncio.sleep(BID_S)
        confirmed_ms = await _between_renewals(holder.stdout)
        holder.kill()
        async with asyncio.timeout(PATIENCE_S):
            term = await waiting
        granted_ms = now_ms()
        await term.release()
        return granted_ms - confirmed_ms - TTL_MS


async def _between_renewals(told: asyncio.StreamReader) -> int:
    """Wait until no renewal is under way, which could come and not be answered; return the time of the last one."""
    line = await told.readline()
    while True:
        try:
            async with asyncio.timeout(random.uniform(0.1, 0.6) * TTL_MS / RENEWALS / 1_000):
                line = await told.readline()
        except TimeoutError:
            return int(line)


@asynccontextmanager
async def _holder(servers: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "tools.bench.holder", servers, str(TTL_MS))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _after_release(servers: str) -> float:
    async with kraftlib.connect(servers) as holder, kraftlib.connect(servers) as waiter:
        term = await holder.election(NAME).acquire()
        waiting = asyncio.create_task(waiter.election(NAME).acquire())
        await asyncio.sleep(BID_S)
        began = time.perf_counter()
        releasing = asyncio.create_task(term.release())
        async with asyncio.timeout(PATIENCE_S):
            following = await waiting
        took_ms = (time.perf_counter() - began) * 1_000
        await releasing
        await following.release()
        return took_ms


def _summary(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50": round(statistics.median(ordered), 1),
        "min": round(ordered[0], 1),
        "max": round(ordered[-1], 1),
    }


def as_text(found: Mapping[str, Any]) -> str:
    """Return what is printed for people."""
    beyond, released = found["beyond_ttl_ms"], found["released_ms"]
    return (
        f"{found['times']} x kill -9 of the holder: the next one led {beyond['p50']} ms beyond the time to live of "
        f"{found['ttl_ms']} ms at the median, {beyond['min']} to {beyond['max']} ms in all\n"
        f"{found['times']} x release: the next one led after {released['p50']} ms at the median, "
        f"{released['min']} to {released['max']} ms in all"
    )
