"""Many observers are told in rounds, and voters do not wait for them (decision 0019)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import AnswerObservers, AppendToLog, FlushLog, SendRecords, SendResponse
from kraftlib.consensus.events import RecordsSubmitted, ResignRequested, TimeoutReached
from kraftlib.consensus.fetch_leader import COMMIT_WAIT_MS, HIGH_WATERMARK_NEWS_DELAY_MS
from kraftlib.consensus.observer_rounds import ROUND_PAUSE_MS
from kraftlib.consensus.replica import Replica
from tests.consensus.build import batch, fetch_request, flush, kinds, leader, park, partition_of, tell

MANY = 12
FIRST = 10


def crowded(**more: Any) -> Replica:
    """A leader of three voters, on whose next record twelve observers wait, all of whom know what is committed."""
    core = leader(**{"observers_at_once": 3, "observer_round_ms": 100, **more})
    flush(core)
    park(core, 2, 2)
    flush(core)
    core.handle(TimeoutReached(), core.state.now_ms + HIGH_WATERMARK_NEWS_DELAY_MS)
    assert core.high_watermark == 1
    for wait_ms in (0, 500):  # the first three find nobody before them, and count as few until they fetch again
        for number in range(MANY):
            park(core, FIRST + number, FIRST + number, high_watermark=1, max_wait_ms=wait_ms)
    park(core, 2, 2)
    return core


def submit(core: Replica) -> list[Any]:
    """Append a record."""
    records = batch(core.state.log.end_offset, core.epoch, 1)
    return list(core.handle(RecordsSubmitted((records,), core.epoch), core.state.now_ms))


def rounds(core: Replica, *, late_ms: int = 0) -> list[tuple[int, AnswerObservers]]:
    """Let time pass; return what observers are told after how many ms. Nothing happens in the first `late_ms`."""
    began = core.state.now_ms
    return [
        (passed_ms, action)
        for passed_ms in range(late_ms, 400)
        for action in core.handle(TimeoutReached(), began + passed_ms)
        if isinstance(action, AnswerObservers)
    ]


def test_a_voter_has_a_record_at_once_and_observers_in_rounds() -> None:
    """The voter is answered before the flush; a round has a share of the observers, and they have one answer."""
    core = crowded()
    actions = submit(core)

    assert kinds(actions) == [AppendToLog, SendRecords, FlushLog]
    assert actions[1].request_id == 2
    told = rounds(core)
    assert [action.request_ids for _, action in told] == [
        tuple(range(FIRST + start, FIRST + start + 3)) for start in (0, 3, 6, 9)
    ]
    assert [passed_ms for passed_ms, _ in told] == [COMMIT_WAIT_MS + ROUND_PAUSE_MS * number for number in range(4)]
    assert {action.start_offset for _, action in told} == {1}


def test_one_answer_has_the_record_and_says_that_it_is_committed() -> None:
    core = crowded()
    submit(core)
    flush(core)
    park(core, 2, 2)
    assert core.high_watermark == 2

    told = rounds(core)
    assert told[0][0] == HIGH_WATERMARK_NEWS_DELAY_MS, "what is committed does not wait for longer"
    assert {partition_of(action.response).high_watermark for _, action in told} == {2}
    assert sum(len(action.request_ids) for _, action in told) == MANY


def test_all_have_their_turn_within_the_time_of_a_round() -> None:
    core = crowded(observers_at_once=0, observer_round_ms=8)
    submit(core)
    told = rounds(core)

    assert [len(action.request_ids) for _, action in told] == [3, 3, 3, 3]


def test_a_leader_that_is_late_with_a_round_puts_the_next_one_off_by_as_much() -> None:
    """It has other things to do, and voters come first; but a pause of its process is no reason to wait for long."""
    for late_ms, pause_ms in ((2, 2), (30, 32), (200, 102)):
        core = crowded()
        submit(core)
        first, second = rounds(core, late_ms=COMMIT_WAIT_MS + late_ms)[:2]

        assert (first[0], second[0] - first[0]) == (COMMIT_WAIT_MS + late_ms, pause_ms)


def test_observers_at_other_offsets_have_other_answers() -> None:
    core = crowded()
    submit(core)
    park(core, FIRST + MANY, 99, high_watermark=1)
    submit(core)
    told = rounds(core)

    assert {action.start_offset: 99 in action.request_ids for _, action in told} == {1: False, 2: True}


def test_an_observer_that_keeps_up_waits_for_its_round_and_one_that_is_behind_does_not() -> None:
    """Else each of many would fetch again and again, as fast as records come."""
    core = crowded()
    submit(core)
    told_last = rounds(core)[-1]
    assert FIRST + MANY - 1 in told_last[1].request_ids
    submit(core)
    numbers = {"epoch": core.epoch, "last_epoch": core.epoch, "replica_id": FIRST}

    assert kinds(tell(core, fetch_request(offset=2, **numbers), version=18)) == [], "it has what there was last time"
    assert kinds(tell(core, fetch_request(offset=1, **numbers), version=18)) == [SendRecords], "it took nothing of it"


@pytest.mark.parametrize(("wait_ms", "expected"), [(1, 1), (500, COMMIT_WAIT_MS)])
def test_nobody_waits_longer_than_it_wants(wait_ms: int, expected: int) -> None:
    core = crowded()
    park(core, FIRST, 99, max_wait_ms=wait_ms, high_watermark=1)
    submit(core)
    began = core.state.now_ms
    deadline_ms = core.deadline_ms()
    assert deadline_ms == began + expected
    told = [action for action in core.handle(TimeoutReached(), deadline_ms) if isinstance(action, AnswerObservers)]

    assert (99 in told[0].request_ids) is (wait_ms == 1)


def test_a_leader_that_leaves_answers_those_that_wait_for_a_round() -> None:
    core = crowded()
    actions = core.handle(ResignRequested(core.epoch), core.state.now_ms)

    answered = {action.request_id for action in actions if isinstance(action, SendResponse)}
    assert answered >= {FIRST + number for number in range(MANY)}
