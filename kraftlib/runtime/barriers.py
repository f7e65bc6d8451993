"""Pending read barriers: each waits for its read index from the core, and then until that is applied.

read_barrier() -> ReadBarrierRequested -> core -> PassReadBarrier(offset) -> applied up to there -> caller
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftlib.errors import TimedOutError, UnsupportedError
from kraftlib.runtime.ports import Listeners
from kraftlib.runtime.waiters import Promise, Settled, Waiters, again
from kraftlib.types import Offset, ReplicaId
from kraftlib.wire.apis import ErrorCode


class Barriers:
    """The pending reads of one replica, by number."""

    def __init__(self, node_id: ReplicaId, waiters: Waiters, listeners: Listeners) -> None:
        self._node_id: Final = node_id
        self._waiters: Final = waiters
        self._listeners: Final = listeners
        self._promises: dict[int, Promise] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._promises)

    def add(self, promise: Promise) -> int:
        """Return the number by which the core will speak of this caller."""
        self._last += 1
        self._promises[self._last] = promise
        return self._last

    def passed(self, number: int, offset: Offset) -> None:
        """Settle the caller with the applied offset, once everything below `offset` is applied here."""
        promise = self._promises.pop(number, None)
        if promise is None:
            return
        if self._waiters.apply_failure is not None:
            self._waiters.settle([(promise, None, again(self._waiters.apply_failure))])
        else:
            self._listeners.wait_for(offset - 1, promise)

    def refused(self, number: int, error: ErrorCode) -> None:
        """Fail the caller: the core has no read index for it."""
        promise = self._promises.pop(number, None)
        if promise is not None:
            self._waiters.settle([(promise, None, self._error(error))])

    def forget_gone(self) -> None:
        """Forget callers that no longer wait; the core continues, and its results for them are dropped."""
        self._promises = {number: promise for number, promise in self._promises.items() if not promise.done()}

    def fail(self, error_of: Callable[[], BaseException]) -> None:
        """Fail everybody: the replica has stopped."""
        outcomes: list[Settled] = [(promise, None, error_of()) for promise in self._promises.values()]
        self._promises.clear()
        if outcomes:
            self._waiters.settle(outcomes)

    def _error(self, error: ErrorCode) -> Exception:
        if error is ErrorCode.UNSUPPORTED_VERSION:
            return UnsupportedError(
                f"replica {self._node_id} cannot read: the leader answers no read barriers, so it is no replica of "
                f"kraftlib, or has private_apis=False; read on a leader of kraftlib, or read the "
                f"state that this replica has applied"
            )
        return TimedOutError(f"replica {self._node_id} found no leader that could confirm itself in time")
