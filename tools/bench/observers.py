"""`dev.py bench --observers N,N [--tree N]`: the cost of many observers for a leader, and the time until all of them
have a record.

One voter with its log in memory appends 50 records a second, each at its time, whatever became of those before it. So
nothing but the observers costs anything worth a mention. They are connections of another process over loopback
(`tools.bench.watchers`): to the leader, or behind a tree to so many upstreams, each a replica in a process of its own
(`tools.bench.upstream`).
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from kraftlib.config import RaftConfig
from kraftlib.errors import KraftError
from kraftlib.plain_values import parse_voters
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.security.limits import TcpLimits
from tools.bench.machine import free_port

APPENDS_PER_S: Final = 50
VALUE_BYTES: Final = 100
STAMP: Final = struct.Struct(">q")
WARM_UP_S: Final = 1.0
LINE_MAX_BYTES: Final = 1 << 24
PATIENCE_S: Final = 60.0
"""Within this time all observers have connected, and have told what they have seen."""
REST_S: Final = 1.0
"""After the last append, until all observers must have it."""


async def measure_observers(observers: int, *, engine: str, seconds: float, tree: int = 0) -> dict[str, Any]:
    """Return the figures of one leader with so many observers, which fetch from it or from a `tree` of upstreams."""
    port = free_port()
    place = f"127.0.0.1:{port}"
    config = RaftConfig(
        node_id=1,
        cluster_id="bench",
        voters=parse_voters(f"1@{place}"),
        engine=engine,
        limits=TcpLimits(connections_max=observers + 64, connections_per_address_max=observers + 64),
    )
    async with RaftClient[bytes](config) as client, AsyncExitStack() as others:
        await client.wait_for_leader()
        children = [Child("upstream", place, f"--node-id={2 + number}", f"--engine={engine}") for number in range(tree)]
        upstreams = [await others.enter_async_context(child) for child in children]
        places = [told["place"] for told in await asyncio.gather(*(child.begin() for child in upstreams))]
        behind = ("--behind-tree",) if tree else ()
        watchers = await others.enter_async_context(
            Child("watchers", *(places or [place]), f"--observers={observers}", *behind)
        )
        await watchers.begin()
        await _append(client, WARM_UP_S)
        began_cpu, began = time.process_time(), time.monotonic_ns()
        latencies = await _append(client, seconds)
        cpu = time.process_time() - began_cpu
        await asyncio.sleep(REST_S)
        arrived = await watchers.end()
        spent = [told["cpu_s"] for told in await asyncio.gather(*(child.end() for child in upstreams))]
    told = sorted(has_ns - stamp for stamp, has_ns in arrived["arrivals"] if stamp >= began)
    return {
        "observers": observers,
        "tree": tree,
        "engine": engine,
        "upstreams_cpu_s": round(sum(spent), 2),
        "commits": len(latencies),
        "cpu_per_commit_us": round(1e6 * cpu / len(latencies)),
        "p50_ms": _ms(latencies, 0.5),
        "p99_ms": _ms(latencies, 0.99),
        "records_told": len(told),
        "answers_per_commit": round(arrived["answers"] / max(1, observers * len(arrived["arrivals"])), 2),
        "all_have_it_p50_ms": _ms(told, 0.5),
        "all_have_it_p99_ms": _ms(told, 0.99),
    }


async def _append(client: RaftClient[bytes], seconds: float) -> list[int]:
    """Append at a constant rate; return how long each commit took, in ns, in ascending order."""
    latencies: list[int] = []

    async def append() -> None:
        began = time.monotonic_ns()
        await client.append_one(STAMP.pack(began).ljust(VALUE_BYTES, b"x"))
        latencies.append(time.monotonic_ns() - began)

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(seconds * APPENDS_PER_S)):
            await asyncio.sleep(began + number / APPENDS_PER_S - loop.time())
            tasks.create_task(append())
    return sorted(latencies)


class Child:
    """A process of this package, which tells a line when it is ready and another one when its stdin has ended."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = (sys.executable, "-m", f"tools.bench.{module}", *arguments)
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Child:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def begin(self) -> Any:
        """Start it; return what it tells when it is ready."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, limit=LINE_MAX_BYTES
        )
        return await self._line()

    async def end(self) -> Any:
        """Let it end; return what it tells then."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        return await self._line()

    async def _line(self) -> Any:
        out = None if self._process is None else self._process.stdout
        line = b"" if out is None else await asyncio.wait_for(out.readline(), PATIENCE_S)
        if not line:
            raise KraftError(f"{self._command[2]} has ended: see above")
        return json.loads(line)


def _ms(ordered: Sequence[int], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6, 2) if ordered else None


def as_text(found: dict[str, Any]) -> str:
    """Return the figures for people."""
    told = (
        f"; all observers had a record after {found['all_have_it_p50_ms']} / {found['all_have_it_p99_ms']} ms, "
        f"with {found['answers_per_commit']} answers a commit to each"
        if found["observers"]
        else ""
    )
    behind = f" behind a tree of {found['tree']}" if found["tree"] else ""
    return (
        f"{found['observers']} observers{behind}, {found['engine']}: a commit cost the leader "
        f"{found['cpu_per_commit_us']:,} µs of CPU and took {found['p50_ms']} / {found['p99_ms']} ms (p50 / p99){told}"
    )
