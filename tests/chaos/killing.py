"""The leaders of a quorum of processes are killed again and again while clients work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import kraftlib
from kraftlib.cli.cluster import Cluster
from kraftlib.recipes.kraft import Kraft

SETTINGS: Final[Mapping[str, str | int]] = {
    "election_timeout_ms": 150,
    "fetch_timeout_ms": 500,
    "fetch_max_wait_ms": 100,
    "shutdown_timeout_ms": 1_000,
    "segment_bytes": 8 * 1024 * 1024,
    "snapshot_interval_bytes": 4 * 1024 * 1024,
    "retention_bytes": 1024 * 1024,
    "retention_interval_ms": 500,
}
"""A leader that is killed is missed soon, and the log is cut behind each snapshot."""

STUCK_S: Final = 120.0
"""Clients that have got no further for so long never will."""

Tell = Callable[[str], None]


class Violation(Exception):
    """Something that must never happen; the message says what."""


class Progress:
    """A count that some raise and others wait for."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Condition()

    async def add(self, number: int = 1) -> None:
        """Raise the count."""
        async with self._news:
            self.count += number
            self._news.notify_all()

    async def reached(self, count: int) -> None:
        """Wait until it has come so far. Raises: Violation, if it stands still."""
        while self.count < count:
            before = self.count
            try:
                async with asyncio.timeout(STUCK_S), self._news:
                    await self._news.wait_for(lambda: self.count >= count)
            except TimeoutError:
                if self.count == before:
                    raise Violation(f"nothing has got on for {STUCK_S:.0f} s: {before} of {count}") from None


class Killer:
    """Kills whoever leads, and starts it again."""

    def __init__(self, cluster: Cluster, tell: Tell) -> None:
        self.kills = 0
        self.epoch = -1
        """The epoch of the last leader that was killed."""
        self._cluster: Final = cluster
        self._tell: Final = tell

    async def kill_leader(self) -> None:
        """kill -9 of the leader; return when it runs again."""
        leader, self.epoch = await self._cluster.leader(after_epoch=self.epoch)
        began = time.monotonic()
        await self._cluster.kill(leader.number)
        self.kills += 1
        await self._cluster.start(leader.number)
        took_s = time.monotonic() - began
        self._tell(
            f"kill {self.kills}: replica {leader.number}, leader of epoch {self.epoch}; back after {took_s:.1f} s"
        )


@asynccontextmanager
async def clients(cluster: Cluster, count: int) -> AsyncIterator[list[Kraft]]:
    """Connect clients to all replicas."""
    servers = ",".join(map(str, cluster.endpoints))
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(kraftlib.connect(servers, owner=f"client {n}")) for n in range(count)]
