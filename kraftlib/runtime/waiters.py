"""Callers that wait for a record, each up to a certain point of its way.

    appended    the leader has written it; readable, not durable
    flushed     it is durable on the leader
    committed   a majority has it durably: it is never lost
    applied     the state machine of this replica has applied it; its result comes along

Offsets only grow, so every level is a queue ordered by offset, and an event settles entries at its front: one pass
per event, no search, and one tuple per waiting caller. Results are delivered in one list, which is one hop between
threads for any number of callers.

When leadership is lost, records that were not written were never appended (NotLeaderError). Written records may survive
in the log of the next leader or not: their callers get OutcomeUnknownError, even if the records are committed later. A
caller that wants to know reads the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kraftlib.errors import ConfigError, KraftError, OutcomeUnknownError, ReplicaFailedError
from kraftlib.types import Epoch, Offset

APPENDED: Final = 0
FLUSHED: Final = 1
COMMITTED: Final = 2
APPLIED: Final = 3

LEVELS: Final[dict[str, int]] = {"appended": APPENDED, "flushed": FLUSHED, "committed": COMMITTED, "applied": APPLIED}


def level_of(wait: object) -> int:
    """Return the number of a level's name. Raises: ConfigError."""
    if not isinstance(wait, str) or wait not in LEVELS:
        raise ConfigError(f"wait={wait!r} must be one of {', '.join(LEVELS)}")
    return LEVELS[wait]


class Appended(NamedTuple):
    """Where the records of one append stand. A named tuple, because one is made per append."""

    base_offset: Offset
    last_offset: Offset
    """Inclusive."""
    epoch: Epoch
    results: tuple[Any, ...] = ()
    """The results of the state machine, record by record; empty unless `applied` was waited for."""


class Promise(Protocol):
    """The future that a caller waits for: an `asyncio.Future`, or anything like it."""

    def done(self) -> bool:
        """Whether it was settled or cancelled."""
        ...

    def set_result(self, result: Any, /) -> None:
        """Let the caller go on."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """Let the caller fail."""
        ...


Waiter = tuple[Offset, Offset, Epoch, Promise]
"""Last offset, base offset, epoch, promise."""

Settled = tuple[Promise, Any, BaseException | None]
"""A promise and its outcome: a result, or an error."""

_new: Final = tuple.__new__


def fulfil(waiters: Sequence[Waiter]) -> None:
    """Tell callers that their records have come as far as they wanted. Runs on their own loop."""
    for last_offset, base_offset, epoch, promise in waiters:
        if not promise.done():
            # Half the price of Appended(...), and there is one per append.
            promise.set_result(_new(Appended, (base_offset, last_offset, epoch, ())))


def settle(outcomes: Sequence[Settled]) -> None:
    """Tell callers the outcome of their records. Runs on their own loop."""
    for promise, result, error in outcomes:
        if promise.done():
            continue  # its caller was cancelled, and the others go on
        if error is None:
            promise.set_result(result)
        elif isinstance(error, StopIteration):  # no future takes one
            promise.set_exception(RuntimeError(f"{error!r} was raised"))
        else:
            promise.set_exception(error)


Post = Callable[[Callable[[Any], None], Any], None]
"""Has a function called with one argument on the loop of the callers."""


def call_here(function: Callable[[Any], None], argument: Any) -> None:
    """Post within one thread: call it."""
    function(argument)


class Waiters:
    """Callers that wait, by level."""

    def __init__(self, post: Post = call_here) -> None:
        self._post = post
        self.queues: tuple[deque[Waiter], ...] = tuple(deque() for _ in LEVELS)
        """The waiting callers by level, in the order of offsets."""
        self._appended, self._flushed, self._committed, self._applied = self.queues
        self.apply_failure: ReplicaFailedError | None = None
        """The reason why no caller can wait for applied records any more."""

    def __len__(self) -> int:
        return sum(map(len, self.queues))

    def appended(self, end_offset: Offset) -> None:
        """The log has been written up to `end_offset`."""
        self._reach(self._appended, end_offset)

    def flushed(self, end_offset: Offset) -> None:
        """The log of the leader is durable up to `end_offset`."""
        self._reach(self._flushed, end_offset)

    def committed(self, high_watermark: Offset) -> None:
        """Everything below `high_watermark` is committed."""
        self._reach(self._committed, high_watermark)

    @property
    def wants_results(self) -> bool:
        """Whether a caller waits for records to be applied."""
        return bool(self._applied)

    def applied(self, end_offset: Offset, *, base_offset: Offset = 0, results: Sequence[Any] = ()) -> None:
        """Everything below `end_offset` was applied; `results` are those of the records from `base_offset` on."""
        waiters = self._applied
        outcomes: list[Settled] = []
        while waiters and waiters[0][0] < end_offset:
            last, base, epoch, promise = waiters.popleft()
            own = tuple(results[base - base_offset : last + 1 - base_offset]) if results else ()
            outcomes.append((promise, Appended(base, last, epoch, own), None))
        if outcomes:
            self._post(settle, outcomes)

    def skipped(self, end_offset: Offset) -> None:
        """A snapshot has replaced everything below `end_offset`: the results of these records are unknown here.

        The state machine does not get these records. Callers that still wait for one are told before the next result.
        """
        outcomes: list[Settled] = []
        while self._applied and self._applied[0][0] < end_offset:
            waiter = self._applied.popleft()
            error = unknown_outcome(waiter, "a snapshot took their place before this replica had applied them")
            outcomes.append((waiter[3], None, error))
        if outcomes:
            self._post(settle, outcomes)

    def fail_applied(self, failure: ReplicaFailedError, reason: str) -> None:
        """Nothing will be applied here any more. Records are still committed."""
        self.apply_failure = failure
        self._settle_with([self._applied], lambda waiter: unknown_outcome(waiter, reason))

    def leadership_lost(
        self, *, written_end: Offset, high_watermark: Offset, refusal: Callable[[], KraftError], reason: str
    ) -> None:
        """Fail all callers that wait for records of a leadership that is over.

        From `written_end` on nothing was appended, which `refusal` says; below it the outcome is unknown. Records that
        are committed already (below `high_watermark`) still get their results.
        """
        kept = [waiter for waiter in self._applied if waiter[0] < high_watermark]

        def error_of(waiter: Waiter) -> KraftError:
            return refusal() if waiter[1] >= written_end else unknown_outcome(waiter, reason)

        for _ in kept:
            self._applied.popleft()
        self._settle_with(self.queues, error_of)
        self._applied.extend(kept)

    def when_settled(self, promise: Promise) -> None:
        """Settle `promise` when every caller that waits now has its result or its error."""
        last = max((waiters[-1][0] for waiters in self.queues if waiters), default=-1)
        if last < 0:
            self._post(settle, [(promise, None, None)])
        else:
            level = self._applied if self.apply_failure is None else self._committed
            level.append((last, last + 1, -1, promise))

    def settle(self, outcomes: list[Settled]) -> None:
        """Tell callers that wait for something else than a level, on their own loop."""
        self._post(settle, outcomes)

    def fail(self, error_of: Callable[[Waiter], BaseException]) -> None:
        """Fail everybody: the replica has stopped."""
        self._settle_with(self.queues, error_of)

    def _reach(self, waiters: deque[Waiter], end_offset: Offset) -> None:
        if not waiters:
            return
        if waiters[-1][0] < end_offset:
            reached = list(waiters)
            waiters.clear()
        else:
            reached = []
            while waiters[0][0] < end_offset:
                reached.append(waiters.popleft())
        if reached:
            self._post(fulfil, reached)

    def _settle_with(self, levels: Sequence[deque[Waiter]], error_of: Callable[[Waiter], BaseException]) -> None:
        outcomes: list[Settled] = [(waiter[3], None, error_of(waiter)) for waiters in levels for waiter in waiters]
        for waiters in levels:
            waiters.clear()
        if outcomes:
            self._post(settle, outcomes)


def unknown_outcome(waiter: Waiter, reason: str) -> OutcomeUnknownError:
    """Return the error of a waiter whose records were written, before `reason` came about."""
    last, base, epoch, _ = waiter
    return OutcomeUnknownError(
        f"records [{base}, {last + 1}) of epoch {epoch} were written, and then {reason}; only the log can tell "
        f"whether they are committed",
        base_offset=base,
        epoch=epoch,
    )


def again(failure: ReplicaFailedError) -> ReplicaFailedError:
    """Return the same failure for another caller: an exception that is raised twice collects two tracebacks."""
    copy = ReplicaFailedError(str(failure))
    copy.__cause__ = failure.__cause__
    return copy
