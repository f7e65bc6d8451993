"""Every check of elections complains where it should, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftlib.testing import election_invariants as elections
from kraftlib.testing.violation import Complaint
from kraftlib.types import ElectionState, OffsetAndEpoch
from tests.testing.test_invariants import ASTRAY, LAGGING, NODE, UNFLUSHED, VOTERS, facts, key

END = OffsetAndEpoch(offset=4, epoch=2)
SHORTER, LONGER = OffsetAndEpoch(offset=3, epoch=2), OffsetAndEpoch(offset=9, epoch=1)
NEWER = OffsetAndEpoch(offset=1, epoch=3)


def voted(candidate: int | None, epoch: int = 4, leader_id: int | None = None) -> ElectionState:
    return ElectionState(epoch=epoch, leader_id=leader_id, voted_key=None if candidate is None else key(candidate))


CASES: list[tuple[Callable[..., Complaint], tuple[Any, ...], tuple[Any, ...]]] = [
    # function, arguments of a good case, arguments of a bad one
    (elections.i1_one_leader_per_epoch, (facts, 2, key(1)), (facts, 2, key(2))),
    (elections.i1_known_leader, (facts, 2, 1, NODE), (facts, 2, 3, NODE)),
    (elections.i1_known_leader, (facts, 3, 3, NODE), (facts, 9, 3, NODE)),
    (elections.i2_epoch_never_falls, (NODE, 3, 3), (NODE, 3, 2)),
    (elections.i2_epoch_is_durable_before_it_is_spoken, (facts, NODE, voted(None), 4), (facts, NODE, voted(None), 5)),
    (elections.i2_epoch_is_durable_before_it_is_spoken, (facts, NODE, None, 0), (facts, NODE, None, 1)),
    (elections.i3_one_vote_per_epoch, (facts, key(2), 4, key(1)), (facts, key(2), 4, key(3))),
    (elections.i3_vote_is_not_forgotten, (NODE, voted(2), voted(2)), (NODE, voted(2), voted(3))),
    (elections.i3_vote_is_not_forgotten, (NODE, voted(2), voted(None, 5)), (NODE, voted(2), voted(None))),
    (elections.i3_vote_is_not_forgotten, (NODE, voted(1), voted(None, leader_id=1)), (NODE, voted(1), voted(None))),
    (elections.i5_leader_has_everything_committed, (facts, 3, LAGGING), (facts, 3, ASTRAY)),
    (elections.i5_leader_has_everything_committed, (facts, 2, ASTRAY), (facts, 4, ASTRAY)),
    (elections.i5_candidate_is_honest, (NODE, 4, 2, END), (NODE, 3, 2, END)),
    (elections.i5_no_vote_for_a_shorter_log, (NODE, key(2), END, END), (NODE, key(2), SHORTER, END)),
    (elections.i5_no_vote_for_a_shorter_log, (NODE, key(2), NEWER, END), (NODE, key(2), LONGER, END)),
    (elections.i5_candidate_is_honest, (NODE, 4, None, END), (NODE, 4, 1, END)),
    (elections.i12_vote_is_durable_before_it_is_spoken, (NODE, voted(2), 4, key(2)), (NODE, voted(2), 4, key(3))),
    (elections.i12_vote_is_durable_before_it_is_spoken, (NODE, voted(2), 4, key(2)), (NODE, voted(2), 5, key(2))),
    (elections.i12_candidate_names_what_is_durable, (NODE, END), (UNFLUSHED, END)),
    (elections.i3_amnesia_gives_no_vote, (NODE, voted(2), key(2)),
     (NODE, ElectionState(epoch=4, amnesiac=True), key(2))),
    (elections.i12_amnesia_vouches_for_nothing, (NODE, ElectionState(epoch=4, amnesiac=True), -1),
     (NODE, ElectionState(epoch=4, amnesiac=True), 1)),
    (elections.i12_amnesia_vouches_for_nothing, (NODE, voted(2), 1), (NODE, ElectionState(epoch=4, amnesiac=True), 1)),
    (elections.i16_only_voters_stand, (NODE, VOTERS, "a candidate"), (UNFLUSHED, VOTERS, "a candidate")),
]  # fmt: skip


@pytest.mark.parametrize(("function", "good", "bad"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_check_complains_where_it_should_and_nowhere_else(
    function: Callable[..., Complaint], good: tuple[Any, ...], bad: tuple[Any, ...]
) -> None:
    assert function(*good) is None
    complaint = function(*bad)
    assert complaint is not None
    assert len(complaint) < 600


def test_every_check_has_a_case() -> None:
    checks = {name for name, value in vars(elections).items() if name[:1] == "i" and name[1:2].isdigit()}

    assert checks == {case[0].__name__ for case in CASES}
