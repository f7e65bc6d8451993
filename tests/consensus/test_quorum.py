"""Majorities, against counting them out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.consensus.quorum import Tally, majority_offset
from kraftlib.errors import InvariantError
from tests.consensus.build import voter_set


@given(st.lists(st.integers(-1, 20), min_size=1, max_size=9))
def test_majority_offset_agrees_with_counting(end_offsets: list[int]) -> None:
    """The fast way takes the middle of a sorted list; the slow one counts who has reached each offset."""
    expected = max(o for o in range(-1, 21) if sum(end >= o for end in end_offsets) > len(end_offsets) / 2)

    assert majority_offset(end_offsets) == expected


def test_no_voters_have_no_majority() -> None:
    """An empty quorum would commit everything."""
    with pytest.raises(InvariantError):
        majority_offset([])


@given(st.integers(1, 7), st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20))
def test_tally_agrees_with_the_last_answer_of_each_voter(count: int, answers: list[tuple[int, bool]]) -> None:
    """Each voter counts once, with its last answer; others never."""
    tally = Tally(voter_set(*range(1, count + 1)))
    last: dict[int, bool] = {}
    for voter_id, granted in answers:
        tally.record(voter_id, granted)
        if voter_id <= count:
            last[voter_id] = granted
    granted_count = sum(last.values())
    open_count = count - len(last)

    assert tally.won == (granted_count > count / 2)
    assert tally.lost == (granted_count + open_count <= count / 2)
    assert tally.unanswered() == [voter_id for voter_id in range(1, count + 1) if voter_id not in last]
