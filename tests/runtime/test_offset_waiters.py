from __future__ import annotations

from kraftlib.errors import ClosedError
from kraftlib.runtime.offset_waiters import OffsetWaiters
from kraftlib.runtime.waiters import call_here
from tests.runtime.test_waiters import Slot


def test_callers_are_told_the_applied_offset_once_their_record_was_applied() -> None:
    waiters, slots = OffsetWaiters(call_here), [Slot() for _ in range(3)]
    for offset, slot in zip((7, 3, 5), slots, strict=True):
        waiters.add(offset, slot)
    waiters.applied(3)
    assert [slot.done() for slot in slots] == [False, False, False]
    waiters.applied(6)

    assert [slot.result for slot in slots] == [None, 6, 6]
    assert len(waiters) == 1


def test_callers_that_have_gone_are_forgotten_and_the_others_still_told_in_order() -> None:
    waiters, slots = OffsetWaiters(call_here), [Slot() for _ in range(5)]
    for offset, slot in enumerate(slots):
        waiters.add(offset, slot)
    slots[0].cancelled = slots[3].cancelled = True
    waiters.forget_gone()
    assert len(waiters) == 3
    waiters.applied(3)

    assert [slot.result for slot in slots] == [None, 3, 3, None, None]


def test_every_caller_gets_an_error_of_its_own_when_nothing_more_is_applied() -> None:
    waiters, slots = OffsetWaiters(call_here), [Slot(), Slot()]
    for slot in slots:
        waiters.add(1, slot)
    waiters.fail(lambda: ClosedError("closed"))

    assert all(isinstance(slot.error, ClosedError) for slot in slots)
    assert slots[0].error is not slots[1].error
    assert len(waiters) == 0
