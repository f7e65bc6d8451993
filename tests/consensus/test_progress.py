"""What a leader counts: states.md section 10."""

from __future__ import annotations

from uuid import UUID

from kraftlib.consensus.events import RequestReceived
from kraftlib.consensus.progress import WENT_BACK
from kraftlib.consensus.roles import Leader
from kraftlib.types import ElectionState, ReplicaKey
from tests.consensus.build import commits, fetch_request, flush, leader, park, tell, voter_set


def test_a_majority_commits_and_our_own_copy_counts_when_flushed() -> None:
    """Two of three: one Fetch and our flush, in either order (reliability L9)."""
    first, second = leader(), leader()

    assert commits(park(first)) == []
    assert commits(flush(first)) == [1]
    assert commits(flush(second)) == []
    assert commits(park(second)) == [1]


def test_two_followers_commit_what_we_have_not_flushed_yet() -> None:
    """Our disk may be the slow one."""
    core = leader()
    park(core, 2, 77)

    assert commits(park(core, 3, 78)) == [1]


def test_records_of_older_epochs_are_committed_by_the_first_of_ours_only() -> None:
    """Raft, figure 8 (reliability L4): a majority at the epoch's start has not committed anything of it."""
    core = leader(1, 1, 2)
    start = core.state.role_state.epoch_start_offset  # type: ignore[union-attr]
    flush(core)
    actions = tell(core, fetch_request(epoch=core.epoch, offset=start, last_epoch=2), version=18)
    assert commits(actions) == []

    assert commits(park(core, 2, 78)) == [start + 1]


def test_an_observer_commits_nothing() -> None:
    """It counts for no majority, however far it is."""
    core = leader()
    flush(core)

    assert commits(park(core, replica_id=9)) == []


def test_the_high_watermark_never_falls() -> None:
    """A voter that lost its disk fetches from the beginning and is served (reliability L7)."""
    core = leader()
    flush(core)
    park(core)
    assert core.high_watermark == 1
    actions = tell(core, fetch_request(epoch=1, offset=0, last_epoch=0), version=18, request_id=79)

    assert commits(actions) == []
    assert core.high_watermark == 1


def test_a_voter_that_forgets_what_it_has_acknowledged_is_noticed_and_counts_for_what_it_has() -> None:
    """An old backup in the place of its disk, or two of one identity (reliability M13, S14)."""
    core = leader(1, 1, election=ElectionState(epoch=1))
    for offset, complaints in ((0, 0), (2, 0), (2, 0), (1, 1), (2, 1), (1, 2)):
        tell(core, fetch_request(epoch=2, offset=offset, last_epoch=1 if offset else 0, max_wait_ms=0), version=18)
        role = core.state.role_state
        assert isinstance(role, Leader)

        assert role.progress[2].end_offset == offset
        assert core.state.refused.get(WENT_BACK, 0) == complaints


def test_a_fetch_of_a_voters_id_with_another_disk_is_served_and_not_counted() -> None:
    """In a dynamic quorum it is an observer (kafka-interop section 2)."""

    members = voter_set(ReplicaKey(1, UUID(int=1_001)), ReplicaKey(2, UUID(int=1_002)), ReplicaKey(3, UUID(int=1_003)))
    core = leader(voters=members, directory_id=UUID(int=1_001))
    flush(core)
    request = fetch_request(epoch=1, offset=1, last_epoch=1, replica_directory_id=UUID(int=9_999))
    actions = core.handle(RequestReceived(77, request, 18), core.state.now_ms)

    assert commits(actions) == []
    assert [key.id for key in core.state.role_state.observers] == [2]  # type: ignore[union-attr]
