"""Callers that wait until the record at an offset was applied on this replica."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from kraftlib.runtime.waiters import Post, Promise, Settled, settle
from kraftlib.types import Offset


class OffsetWaiters:
    """Those callers, the one with the lowest offset first. `post` has their promises settled where they wait."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._waiting: list[tuple[Offset, int, Promise]] = []
        self._counter = itertools.count()

    def __len__(self) -> int:
        """Return the number of those that wait; callers that have gone are counted until `forget_gone`."""
        return len(self._waiting)

    def add(self, offset: Offset, promise: Promise) -> None:
        """Settle `promise` with the applied offset once the record at `offset` was applied."""
        heapq.heappush(self._waiting, (offset, next(self._counter), promise))

    def applied(self, applied_offset: Offset) -> None:
        """Everything below is applied: settle those that have waited for it."""
        outcomes: list[Settled] = []
        while self._waiting and self._waiting[0][0] < applied_offset:
            outcomes.append((heapq.heappop(self._waiting)[2], applied_offset, None))
        if outcomes:
            self._post(settle, outcomes)

    def fail(self, error_of: Callable[[], BaseException]) -> None:
        """Fail all of them: nothing more is applied."""
        outcomes: list[Settled] = [(promise, None, error_of()) for _, _, promise in self._waiting]
        self._waiting.clear()
        if outcomes:
            self._post(settle, outcomes)

    def forget_gone(self) -> None:
        """Forget callers that no longer wait."""
        self._waiting = [waiter for waiter in self._waiting if not waiter[2].done()]
        heapq.heapify(self._waiting)
