"""The table of allowed changes is the one that the protocol has."""

from __future__ import annotations

import pytest

from kraftlib.consensus.roles import NEXT_ROLES, Progress, Role
from kraftlib.types import ReplicaKey

FORBIDDEN = {
    (Role.UNATTACHED, Role.CANDIDATE),
    (Role.UNATTACHED, Role.LEADER),
    (Role.UNATTACHED, Role.RESIGNED),
    (Role.PROSPECTIVE, Role.LEADER),
    (Role.PROSPECTIVE, Role.RESIGNED),
    (Role.CANDIDATE, Role.CANDIDATE),
    (Role.CANDIDATE, Role.RESIGNED),
    (Role.LEADER, Role.LEADER),
    (Role.LEADER, Role.CANDIDATE),
    (Role.LEADER, Role.PROSPECTIVE),
    (Role.FOLLOWER, Role.CANDIDATE),
    (Role.FOLLOWER, Role.LEADER),
    (Role.FOLLOWER, Role.RESIGNED),
    (Role.RESIGNED, Role.CANDIDATE),
    (Role.RESIGNED, Role.LEADER),
    (Role.RESIGNED, Role.RESIGNED),
}
"""states.md section 5: a leader comes from a candidate only, a candidate from a prospective one only."""


@pytest.mark.parametrize("before", Role)
@pytest.mark.parametrize("after", Role)
def test_the_table_allows_what_the_protocol_does(before: Role, after: Role) -> None:
    """All pairs, so that a forgotten row shows."""
    assert (after in NEXT_ROLES[before]) == ((before, after) not in FORBIDDEN)


def test_a_replica_at_the_end_is_caught_up_now_and_one_at_the_former_end_was_then() -> None:
    """lastCaughtUpTimestamp of KIP-595 (states.md section 10)."""
    progress = Progress(key=ReplicaKey(2))
    progress.fetched(5, 10, 100)
    assert progress.last_caught_up_ms is None
    progress.fetched(10, 12, 200)
    assert progress.last_caught_up_ms == 100
    progress.fetched(12, 12, 300)
    assert progress.last_caught_up_ms == 300


def test_a_fetch_offset_that_goes_back_is_taken() -> None:
    """The replica may have lost its disk (reliability L7)."""
    progress = Progress(key=ReplicaKey(2))
    progress.fetched(10, 10, 100)
    progress.fetched(3, 10, 200)

    assert progress.end_offset == 3
