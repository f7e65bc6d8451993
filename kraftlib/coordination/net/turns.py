"""The work that clients ask for shares the loop with the replica: a turn of the loop does `TURN_S` of it, and one more
piece at most. The rest waits, in order, so that no client keeps a leader from its voters.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

TURN_S: Final = 0.002


class Turns:
    """The pieces of work on one loop."""

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: Final[deque[tuple[Callable[[], Any], asyncio.Future[Any]]]] = deque()
        self._spent_s = 0.0
        self._next: asyncio.Handle | None = None

    async def do(self, work: Callable[[], T]) -> T:
        """Do `work` at once if this turn has time for it, else in one of the next."""
        if not self._waiting and self._spent_s < TURN_S:
            return self._timed(work)
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((work, future))
        return await future

    def _timed(self, work: Callable[[], T]) -> T:
        if self._next is None:
            self._next = self._loop.call_soon(self._begin)
        began = time.perf_counter()
        try:
            return work()
        finally:
            self._spent_s += time.perf_counter() - began

    def _begin(self) -> None:
        """Begin the next turn."""
        self._next, self._spent_s = None, 0.0
        while self._waiting and self._spent_s < TURN_S:
            work, future = self._waiting.popleft()
            if future.cancelled():
                continue
            try:
                future.set_result(self._timed(work))
            except Exception as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)
        if self._waiting and self._next is None:
            self._next = self._loop.call_soon(self._begin)
