"""The snapshots that a replica has, and who gets them (KIP-630, FetchSnapshot)."""

from __future__ import annotations

import pytest

from kraftlib.consensus.actions import DeleteBefore, FlushLog
from kraftlib.consensus.events import RetentionDue, SnapshotCreated
from kraftlib.consensus.log_view import Valid
from kraftlib.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from tests.consensus.build import leader, log_view, replica, snapshot_request, tell, voter_set


@pytest.mark.parametrize(
    ("offset", "epoch"), [(10, 1), (20, 2)], ids=["below the start", "at the start, and not what the log begins at"]
)
def test_a_snapshot_that_the_log_has_passed_while_it_was_written_is_no_news(offset: int, epoch: int) -> None:
    """Judged by its epoch, a follower that begins at the same place as we do would be told to download for ever."""
    begins_at = OffsetAndEpoch(offset=20, epoch=3)
    core = leader(log=log_view(3, 3, start=20, snapshots=(begins_at,), voters=voter_set(1, 2, 3)))
    core.handle(SnapshotCreated(OffsetAndEpoch(offset=offset, epoch=epoch)), core.state.now_ms)

    assert core.state.log.snapshots == [begins_at]
    assert core.state.log.validate(20, 3) == Valid()


@pytest.mark.parametrize(
    ("start", "known", "created"),
    [
        (0, (), BOOTSTRAP_SNAPSHOT),
        (8, (), OffsetAndEpoch(offset=8, epoch=3)),
        (8, (OffsetAndEpoch(offset=8, epoch=3),), OffsetAndEpoch(offset=8, epoch=3)),
    ],
    ids=["the bootstrap checkpoint", "the log lacks one at its start", "it is told twice"],
)
def test_a_snapshot_at_the_start_of_the_log_is_the_one_that_it_begins_at(
    start: int, known: tuple[OffsetAndEpoch, ...], created: OffsetAndEpoch
) -> None:
    core = leader(log=log_view(3, 3, start=start, snapshots=known, voters=voter_set(1, 2, 3)))
    core.handle(SnapshotCreated(created), core.state.now_ms)

    assert core.state.log.snapshots == [created]


# Retention -----------------------------------------------------------------------------------------------------------
def test_what_a_committed_snapshot_replaces_goes_from_the_view_and_then_from_the_log() -> None:
    replica = leader(1, 1, 1, 1)
    state = replica.state
    state.committed_offset = 3
    for offset in (1, 3, 4):
        replica.handle(SnapshotCreated(OffsetAndEpoch(offset=offset, epoch=1)), state.now_ms)
    third = OffsetAndEpoch(offset=3, epoch=1)
    actions = replica.handle(RetentionDue(third), state.now_ms)

    assert actions[:2] == [DeleteBefore(third), FlushLog(state.log.log_version)]
    assert (state.log.start_offset, [kept.offset for kept in state.log.snapshots]) == (3, [3, 4])


@pytest.mark.parametrize("offset", [1, 2, 4], ids=["it is the first", "it is not there", "it is not committed"])
def test_nothing_is_deleted_where_nothing_may_go(offset: int) -> None:
    replica = leader(1, 1, 1, 1)
    replica.state.committed_offset = 3
    for stored in (1, 3, 4):
        replica.handle(SnapshotCreated(OffsetAndEpoch(offset=stored, epoch=1)), 0)
    actions = replica.handle(RetentionDue(OffsetAndEpoch(offset=offset, epoch=1)), 0)

    assert not [action for action in actions if isinstance(action, DeleteBefore)]
    assert replica.state.log.start_offset == 0


@pytest.mark.parametrize("disk_full", [False, True])
def test_a_snapshot_that_is_being_sent_stays_until_nobody_asks_for_it_any_more(disk_full: bool) -> None:
    """Who fetches more slowly than new ones are taken would never have one; only a full disk does not wait."""
    replica = leader(1, 1, 1, 1)
    state = replica.state
    state.committed_offset, state.disk_full = 4, disk_full
    for offset in (1, 3, 4):
        replica.handle(SnapshotCreated(OffsetAndEpoch(offset=offset, epoch=1)), state.now_ms)
    asked_ms = state.now_ms
    tell(replica, snapshot_request(OffsetAndEpoch(offset=3, epoch=1), epoch=replica.epoch))

    def goes(offset: int, after_ms: int) -> bool:
        actions = replica.handle(RetentionDue(OffsetAndEpoch(offset=offset, epoch=1)), asked_ms + after_ms)
        return any(isinstance(action, DeleteBefore) for action in actions)

    assert goes(3, 0)
    last_ms = state.config.fetch_timeout_ms - 1
    assert goes(4, last_ms) == disk_full
    assert goes(4, last_ms + 1) == (not disk_full)


def test_a_log_that_is_behind_its_own_snapshot_does_not_begin_there() -> None:
    ahead = OffsetAndEpoch(offset=9, epoch=2)
    view = log_view(1, 1, 2, voters=voter_set(1, 2, 3))
    view.snapshots = [OffsetAndEpoch(offset=2, epoch=1), ahead]
    core = replica(log=view)
    assert core.state.committed_offset == 9

    assert core.handle(RetentionDue(ahead), 0) == []
