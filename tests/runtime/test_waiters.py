"""Waiters are settled at the level they asked for, in order, and fail with what became of their records."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import (
    ClosedError,
    ConfigError,
    KraftError,
    NotLeaderError,
    OutcomeUnknownError,
    ReplicaFailedError,
)
from kraftlib.runtime.waiters import APPENDED, APPLIED, COMMITTED, FLUSHED, LEVELS, Appended, Waiters, level_of, settle
from kraftlib.types import LeaderAndEpoch


class Slot:
    """A promise that remembers."""

    def __init__(self) -> None:
        self.result: object = None
        self.error: BaseException | None = None
        self.cancelled = False
        self.settled = False

    def done(self) -> bool:
        return self.cancelled or self.settled

    def set_result(self, result: object) -> None:
        assert not self.done()
        self.result, self.settled = result, True

    def set_exception(self, error: BaseException) -> None:
        assert not self.done()
        self.error, self.settled = error, True


def wait(waiters: Waiters, level: int, base: int, last: int | None = None, epoch: int = 3) -> Slot:
    slot = Slot()
    waiters.queues[level].append((base if last is None else last, base, epoch, slot))
    return slot


def refusal() -> KraftError:
    return NotLeaderError("not the leader", leader=LeaderAndEpoch(2, 4))


def test_each_level_is_reached_by_its_own_event() -> None:
    waiters = Waiters()
    slots = [wait(waiters, level, 5, 6) for level in LEVELS.values()]

    def settled() -> list[bool]:
        return [slot.done() for slot in slots]

    waiters.appended(7)
    assert settled() == [True, False, False, False]
    waiters.flushed(7)
    assert settled() == [True, True, False, False]
    waiters.committed(7)
    assert settled() == [True, True, True, False]
    waiters.applied(7, base_offset=5, results=["x", "y"])
    assert [slot.result for slot in slots] == [Appended(5, 6, 3)] * 3 + [Appended(5, 6, 3, ("x", "y"))]


def test_callers_in_one_batch_get_their_own_results() -> None:
    waiters = Waiters()
    slots = [wait(waiters, APPLIED, 10), wait(waiters, APPLIED, 11, 12), wait(waiters, APPLIED, 13)]

    waiters.applied(13, base_offset=10, results=["a", "b", "c"])

    assert [slot.result for slot in slots] == [Appended(10, 10, 3, ("a",)), Appended(11, 12, 3, ("b", "c")), None]


def test_without_a_state_machine_applied_has_no_results() -> None:
    waiters = Waiters()
    slot = wait(waiters, APPLIED, 10)
    waiters.applied(11)

    assert slot.result == Appended(10, 10, 3, ())


def test_a_cancelled_caller_disturbs_nobody() -> None:
    waiters = Waiters()
    first, second = wait(waiters, COMMITTED, 0), wait(waiters, COMMITTED, 1)
    third, fourth = wait(waiters, APPLIED, 2), wait(waiters, APPLIED, 3)
    first.cancelled = third.cancelled = True
    waiters.committed(2)
    waiters.applied(4)

    assert second.result == Appended(1, 1, 3)
    assert fourth.result == Appended(3, 3, 3)


def test_lost_leadership_tells_apart_what_was_written_and_what_was_not() -> None:
    waiters = Waiters()
    written, unwritten = wait(waiters, COMMITTED, 5), wait(waiters, COMMITTED, 9)
    appended = wait(waiters, APPENDED, 9)
    flushed = wait(waiters, FLUSHED, 6, 7)

    waiters.leadership_lost(written_end=9, high_watermark=5, refusal=refusal, reason="it was deposed")

    assert isinstance(written.error, OutcomeUnknownError)
    assert (written.error.base_offset, written.error.epoch) == (5, 3)
    assert "it was deposed" in str(written.error)
    assert isinstance(flushed.error, OutcomeUnknownError)
    assert isinstance(unwritten.error, NotLeaderError)
    assert isinstance(appended.error, NotLeaderError)
    assert len(waiters) == 0


def test_what_is_committed_when_leadership_is_lost_still_gets_its_result() -> None:
    waiters = Waiters()
    committed, uncommitted = wait(waiters, APPLIED, 4), wait(waiters, APPLIED, 5)
    waiters.leadership_lost(written_end=9, high_watermark=5, refusal=refusal, reason="it was deposed")
    waiters.applied(6, base_offset=4, results=["result", "late"])

    assert committed.result == Appended(4, 4, 3, ("result",))
    assert isinstance(uncommitted.error, OutcomeUnknownError)


def test_a_failed_state_machine_fails_only_those_who_wait_for_it() -> None:
    waiters = Waiters()
    applied, committed = wait(waiters, APPLIED, 4), wait(waiters, COMMITTED, 4)
    failure = ReplicaFailedError("it raised")
    waiters.fail_applied(failure, "the state machine raised")
    waiters.committed(5)

    assert isinstance(applied.error, OutcomeUnknownError)
    assert committed.result == Appended(4, 4, 3)
    assert waiters.apply_failure is failure


def test_when_settled_waits_for_everybody_who_waits_now() -> None:
    waiters = Waiters()
    told = Slot()
    waiters.when_settled(told)
    assert told.settled, "nobody waits"

    committed, applied = wait(waiters, COMMITTED, 4), wait(waiters, APPLIED, 3)
    told = Slot()
    waiters.when_settled(told)
    waiters.committed(5)
    waiters.applied(4, base_offset=3, results=["x"])
    assert committed.done()
    assert applied.done()
    assert not told.settled
    waiters.applied(5, base_offset=4, results=["y"])
    assert told.settled


def test_when_settled_ends_with_the_leadership_too() -> None:
    waiters = Waiters()
    wait(waiters, COMMITTED, 4)
    told = Slot()
    waiters.when_settled(told)
    waiters.leadership_lost(written_end=9, high_watermark=2, refusal=refusal, reason="it was deposed")

    assert told.settled


def test_when_settled_does_not_wait_for_a_failed_state_machine() -> None:
    waiters = Waiters()
    waiters.fail_applied(ReplicaFailedError("it raised"), "the state machine raised")
    wait(waiters, COMMITTED, 4)
    told = Slot()
    waiters.when_settled(told)
    waiters.committed(5)

    assert told.settled


def test_fail_reaches_everybody_with_an_error_of_his_own() -> None:
    waiters = Waiters()
    slots = [wait(waiters, level, 1) for level in LEVELS.values()]
    waiters.fail(lambda waiter: ClosedError(f"closed at {waiter[1]}"))

    assert [str(slot.error) for slot in slots] == ["closed at 1"] * 4
    assert len({id(slot.error) for slot in slots}) == 4


def test_what_an_event_settles_is_posted_at_once_however_many_wait() -> None:
    posts: list[int] = []
    waiters = Waiters(lambda function, argument: posts.append(len(argument)))
    for offset in range(100):
        wait(waiters, COMMITTED, offset)
    waiters.committed(40)
    waiters.committed(100)
    waiters.committed(200)

    assert posts == [40, 60]


async def test_futures_of_asyncio_are_promises() -> None:
    waiters = Waiters()
    future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
    waiters.queues[COMMITTED].append((2, 1, 7, future))
    waiters.committed(3)

    base_offset, last_offset, epoch, results = await future
    assert (base_offset, last_offset, epoch, results) == (1, 2, 7, ())


async def test_a_stop_iteration_reaches_its_caller_and_keeps_nothing_from_the_others() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    settle([(first, None, StopIteration("mine")), (second, 2, None)])

    assert await second == 2
    with pytest.raises(RuntimeError, match="mine"):
        await first


def test_an_unknown_level_is_refused_by_name() -> None:
    assert level_of("committed") == COMMITTED
    with pytest.raises(ConfigError, match="wait='durable' must be one of appended, flushed, committed, applied"):
        level_of("durable")


@given(st.lists(st.integers(1, 4), max_size=20), st.lists(st.integers(0, 60), max_size=10))
def test_committed_agrees_with_looking_at_everybody(sizes: list[int], marks: list[int]) -> None:
    waiters = Waiters()
    ranges, slots, base = [], [], 0
    for size in sizes:
        ranges.append((base, base + size - 1))
        slots.append(wait(waiters, COMMITTED, base, base + size - 1))
        base += size
    high_watermark = 0
    for mark in marks:
        high_watermark = max(high_watermark, mark)
        waiters.committed(high_watermark)

        assert [slot.done() for slot in slots] == [last < high_watermark for _, last in ranges]
