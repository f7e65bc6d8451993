"""What callers were told, against the log."""

from __future__ import annotations

import pytest

from kraftlib.testing import histories
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.workload import Outcome
from tests.testing.worlds import world


@pytest.mark.parametrize(
    ("outcome", "what"),
    [(Outcome.REFUSED, "was refused, and stands"), (Outcome.ACKNOWLEDGED, "was acknowledged, and is not in the log")],
)
def test_a_log_that_holds_something_else_than_callers_were_told_is_a_violation(outcome: Outcome, what: str) -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        call = made.workload.append_to(leader)
        made.run_for(100)
        assert call is not None
        call.outcome = outcome
        if outcome is Outcome.ACKNOWLEDGED:
            call.values = [b"something else"]
        with pytest.raises(InvariantViolation, match=f"I10 .*{what}"):
            histories.i10_log_holds_what_callers_were_told(made)


@pytest.mark.parametrize("values", [[b"0.0.....", b"1.0....."], [b"1.0.....", b"0.0....."]])
def test_values_of_one_append_stand_together(values: list[bytes]) -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        made.workload.value_bytes = 8
        for _ in range(2):
            made.workload.append_to(leader)
        made.run_for(100)
        made.workload.appends[0].values = values
        made.workload.appends.pop()
        if values[0] < values[1]:
            histories.i10_log_holds_what_callers_were_told(made)
        else:
            with pytest.raises(InvariantViolation, match="not in one piece"):
                histories.i10_log_holds_what_callers_were_told(made)


def test_who_appends_after_an_answer_stands_behind_what_was_answered() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        for _ in range(2):
            made.workload.append_to(leader)
            made.run_for(100)
        histories.i21_history_is_linearizable(made)
        first, second = made.workload.appends
        assert first.answered_us < second.asked_us
        first.end_offset, second.end_offset = second.end_offset, first.end_offset
        with pytest.raises(InvariantViolation, match=r"I21 .*append 0 .* over before append 1"):
            histories.i21_history_is_linearizable(made)


def test_an_append_without_an_answer_has_its_place_and_no_end() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        call = made.workload.append_to(leader, count=2)
        made.run_for(100)
        assert call is not None
        told = histories.history_of(made)
        call.outcome = Outcome.UNKNOWN
        found = histories.history_of(made)

        assert [known.end_offset for known in told] == [known.end_offset for known in found] == [call.end_offset]
        assert (told[0].ended, found[0].ended) == (call.answered_us, None)
