"""The client of the demo: writes records through the leader, and keeps a list of the acknowledged ones.

A value that is not acknowledged, because the leader died or was none, is sent again. It may thus stand in the log
twice, which does no harm: it is the same value under the same key.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from kraftlib.cli.cluster import Cluster, RefusedError, Voter

UNDER_WAY: Final = 128
PAUSE_S: Final = 0.005


class Writer:
    """Writes `key-0000001` and so on, each with a value of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leader: Voter | None = None
        self._next = 0
        self._last = 0
        """Keys below this are to be written."""
        self._progress = asyncio.Event()
        self.acknowledged: Final[dict[str, tuple[str, int]]] = {}
        """Value and offset of every acknowledged key."""
        self._acknowledgements: Final[list[tuple[float, int]]] = []
        """When, and by which voter."""
        self._lookup = asyncio.Lock()

    async def write(self, count: int) -> None:
        """Write `count` more records; return when all are acknowledged."""
        self._last = self._next + count
        tasks = [asyncio.create_task(self._write_on()) for _ in range(UNDER_WAY)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def write_until_stopped(self) -> None:
        """Write on and on, until `stop`."""
        await self.write(10**9)

    def stop(self) -> None:
        """Write nothing new."""
        self._last = self._next

    async def reached(self, count: int) -> None:
        """Wait until so many records are acknowledged in all."""
        while len(self.acknowledged) < count:
            self._progress.clear()
            await self._progress.wait()

    def first_not_from(self, number: int, *, after: float) -> float | None:
        """Return when, by `time.perf_counter`, the first acknowledgement after a moment came from another voter."""
        return next((when for when, by in self._acknowledgements if when > after and by != number), None)

    async def _write_on(self) -> None:
        while self._next < self._last:
            number = self._next
            self._next += 1
            await self._write_one(f"key-{number:07}", f"value {number * number} of record {number}")

    async def _write_one(self, key: str, value: str) -> None:
        """Send one record until it is acknowledged."""
        while True:
            leader = await self._find_leader()
            try:
                answer = await leader.ask("put", {"key": key, "value": value})
            except (ConnectionError, TimeoutError, RefusedError):
                if self._leader is leader:
                    self._leader = None
                await asyncio.sleep(PAUSE_S)
            else:
                self.acknowledged[key] = (value, answer["offset"])
                self._acknowledgements.append((time.perf_counter(), leader.number))
                self._progress.set()
                return

    async def _find_leader(self) -> Voter:
        async with self._lookup:
            if self._leader is None:
                self._leader, _ = await self._cluster.leader()
            return self._leader
