"""The table of allowed changes is the one that the protocol has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
"""KIP-595 and KIP-996: a leader comes from a candidate only, a candidate from a prospective one only."""


@pytest.mark.parametrize("before", Role)
@pytest.mark.parametrize("after", Role)
def test_the_table_allows_what_the_protocol_does(before: Role, after: Role) -> None:
    """All pairs, so that a forgotten row shows."""
    assert (after in NEXT_ROLES[before]) == ((before, after) not in FORBIDDEN)


def test_a_replica_at_the_end_is_caught_up_now_and_one_at_the_former_end_was_then() -> None:
    """lastCaughtUpTimestamp (KIP-836)."""
    progress = Progress(key=ReplicaKey(2))
    progress.fetched(5, 10, 100)
    assert progress.last_caught_up_ms is None
    progress.fetched(10, 12, 200)
    assert progress.last_caught_up_ms == 100
    progress.fetched(12, 12, 300)
    assert progress.last_caught_up_ms == 300


def test_a_fetch_offset_that_goes_back_is_taken() -> None:
    """The replica may have lost its disk (scenario L7)."""
    progress = Progress(key=ReplicaKey(2))
    progress.fetched(10, 10, 100)
    progress.fetched(3, 10, 200)

    assert progress.end_offset == 3


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 50)), min_size=1, max_size=8))
def test_progress_agrees_with_looking_back_at_every_fetch(fetches: list[tuple[int, int, int]]) -> None:
    """Caught up at one's own Fetch at the end of the log, or at the last one before that reached the end of then."""
    progress, now_ms, rows = Progress(key=ReplicaKey(2)), 0, []
    moved_ms, caught_up = 0, None
    for offset, log_end, pause_ms in fetches:
        now_ms += pause_ms
        progress.fetched(offset, log_end, now_ms)
        if not rows or rows[-1][0] != offset or offset >= log_end:
            moved_ms = now_ms
        if offset >= log_end:
            caught_up = now_ms
        elif rows and 0 < rows[-1][1] <= offset:
            caught_up = max(rows[-1][2], caught_up or 0)
        rows.append((offset, log_end, now_ms))

        assert (progress.end_offset, progress.leader_end_offset, progress.last_fetch_ms) == rows[-1]
        assert (progress.moved_ms, progress.last_caught_up_ms) == (moved_ms, caught_up)


def test_an_empty_log_of_the_leader_was_nothing_to_catch_up_with() -> None:
    """Whoever stood at 0 when there was nothing has proved nothing."""
    progress = Progress(key=ReplicaKey(2))
    progress.leader_end_offset, progress.last_fetch_ms = 0, 100
    progress.fetched(0, 5, 200)
    assert progress.last_caught_up_ms is None


def test_one_that_asks_for_the_same_again_does_not_get_on() -> None:
    progress = Progress(key=ReplicaKey(2))
    for offset, log_end, moved_ms in ((3, 5, 1), (3, 5, 1), (2, 5, 3), (5, 5, 4), (5, 5, 5), (5, 6, 5), (6, 6, 7)):
        progress.fetched(offset, log_end, (progress.last_fetch_ms or 0) + 1)
        assert progress.moved_ms == moved_ms
