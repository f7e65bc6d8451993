"""The snapshots that a replica has, and who gets them (KIP-630, FetchSnapshot)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import (
    DeleteBefore,
    FlushLog,
    SendResponse,
    SendSnapshotChunk,
    SendSnapshotHash,
)
from kraftlib.consensus.events import (
    RetentionDue,
    SnapshotCreated,
    TimeoutReached,
)
from kraftlib.consensus.joining import DESCRIBE_QUORUM
from kraftlib.consensus.log_view import Valid
from kraftlib.types import BOOTSTRAP_SNAPSHOT, METADATA_TOPIC, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from tests.consensus.build import (
    SNAPSHOT,
    answer_vote,
    as_leader,
    ask,
    follower,
    leader,
    log_view,
    partition_of,
    replica,
    tell,
    voter_set,
)


def snapshot_request(
    snapshot_id: OffsetAndEpoch, *, epoch: int, position: int = 0, topic: str = METADATA_TOPIC
) -> FetchSnapshotRequest:
    """A FetchSnapshot of replica 2."""
    request = FetchSnapshotRequest
    partition = request.PartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=request.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        position=position,
    )
    topics = (request.TopicSnapshot(name=topic, partitions=(partition,)),)
    return request(cluster_id="cluster", replica_id=2, max_bytes=1_000, topics=topics)


def test_a_leader_sends_a_slice_of_what_it_has() -> None:
    """The executor has the file; the core says which part of it."""
    log = log_view(3, 3, start=8, snapshots=(SNAPSHOT,), voters=voter_set(1, 2, 3))
    core = leader(log=log)
    actions = tell(core, snapshot_request(SNAPSHOT, epoch=core.epoch, position=100))
    sent = next(action for action in actions if isinstance(action, SendSnapshotChunk))

    assert (sent.request_id, sent.snapshot_id, sent.position, sent.max_bytes) == (77, SNAPSHOT, 100, 1_000)


def test_whoever_downloads_is_heard_of_and_gets_on_though_its_log_does_not() -> None:
    """Else a leader whose followers all download would take itself for cut off, or for one that gets nowhere."""
    log = log_view(3, 3, start=8, snapshots=(SNAPSHOT,), voters=voter_set(1, 2, 3))
    core = leader(log=log)
    role = as_leader(core)
    for error, position in ((True, -1), (False, 0)):
        before = role.check_quorum_deadline_ms
        later = core.state.now_ms + 100
        tell(core, snapshot_request(SNAPSHOT, epoch=core.epoch, position=position), now_ms=later)
        assert role.check_quorum_deadline_ms == (
            before if error else later + core.state.config.fetch_timeout_ms * 3 // 2
        )
        assert role.progress[2].moved_ms == (0 if error else later)
        assert role.sent == ({} if error else {SNAPSHOT: later})
        assert (role.progress[2].end_offset, role.progress[2].last_fetch_ms) == (-1, None)


def test_a_voter_that_downloads_is_told_of_as_one_that_fetches() -> None:
    """A replica with its id must not take it for dead (see `joining`)."""
    log = log_view(3, 3, start=8, snapshots=(SNAPSHOT,), voters=voter_set(1, 2, 3))
    core = leader(log=log)
    said = []
    for step in (1, 2):
        later = core.state.now_ms + 100 * step
        tell(core, snapshot_request(SNAPSHOT, epoch=core.epoch, position=0), now_ms=later)
        answer = ask(core, DESCRIBE_QUORUM, version=2)
        said.append([row.last_fetch_timestamp for row in answer.topics[0].partitions[0].current_voters])
        assert said[-1] == [later, later, -1]
    assert said[0] != said[1]


def test_a_voter_does_not_get_on_because_somebody_downloads_on_another_disk() -> None:
    log = log_view(3, 3, start=8, snapshots=(SNAPSHOT,), voters=voter_set(1, 2, 3))
    core = leader(log=log)
    role = as_leader(core)
    role.progress[2].key = ReplicaKey(2, UUID(int=7))
    core.state.log.voters.add(20, voter_set(1, ReplicaKey(2, UUID(int=7)), 3))
    tell(core, snapshot_request(SNAPSHOT, epoch=core.epoch, position=0), now_ms=core.state.now_ms + 100)

    assert role.progress[2].moved_ms == 0
    assert role.sent != {}, "it is served"


def test_an_observer_that_downloads_keeps_nobody_in_office() -> None:
    log = log_view(3, 3, start=8, snapshots=(SNAPSHOT,), voters=voter_set(1, 3))
    core = replica(log=log, voters=voter_set(1, 3))
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    for pre_vote in (True, False):
        answer_vote(core, 3, granted=True, pre_vote=pre_vote)
    role = as_leader(core)
    before = role.check_quorum_deadline_ms
    tell(core, snapshot_request(SNAPSHOT, epoch=core.epoch, position=0), now_ms=core.state.now_ms + 100)
    assert role.check_quorum_deadline_ms == before


@pytest.mark.parametrize(
    ("snapshot_id", "epoch_shift", "position", "topic", "error"),
    [
        (OffsetAndEpoch(offset=11, epoch=3), 0, 0, METADATA_TOPIC, ErrorCode.SNAPSHOT_NOT_FOUND),
        (BOOTSTRAP_SNAPSHOT, 0, 0, METADATA_TOPIC, ErrorCode.SNAPSHOT_NOT_FOUND),
        (SNAPSHOT, 0, -1, METADATA_TOPIC, ErrorCode.POSITION_OUT_OF_RANGE),
        (SNAPSHOT, -1, 0, METADATA_TOPIC, ErrorCode.FENCED_LEADER_EPOCH),
        (SNAPSHOT, 1, 0, METADATA_TOPIC, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (SNAPSHOT, 0, 0, "other", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_error_reaches_the_asker_with_empty_records(
    snapshot_id: OffsetAndEpoch, epoch_shift: int, position: int, topic: str, error: ErrorCode
) -> None:
    """Not null: Kafka's own errors fail on that and reach nobody."""
    log = log_view(3, 3, start=8, snapshots=(BOOTSTRAP_SNAPSHOT, SNAPSHOT), voters=voter_set(1, 2, 3))
    core = leader(log=log)
    request = snapshot_request(snapshot_id, epoch=core.epoch + epoch_shift, position=position, topic=topic)
    partition = partition_of(ask(core, request))

    assert (partition.error_code, partition.unaligned_records) == (error, b"")


def test_a_snapshot_that_was_just_frozen_may_be_fetched() -> None:
    """SnapshotCreated makes it known."""
    core = leader()
    core.handle(SnapshotCreated(OffsetAndEpoch(offset=1, epoch=1)), core.state.now_ms)

    assert core.state.log.latest_snapshot == OffsetAndEpoch(offset=1, epoch=1)


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


def test_whoever_holds_a_snapshot_says_its_hash() -> None:
    log = log_view(3, 3, start=8, snapshots=(BOOTSTRAP_SNAPSHOT, SNAPSHOT), voters=voter_set(1, 2, 3))
    core = follower(log=log, epoch=5, leader_id=2)

    def hash_of(offset: int, epoch: int, position: int, cluster_id: str = "cluster") -> list[Any]:
        request = SnapshotHashRequest(cluster_id=cluster_id, end_offset=offset, epoch=epoch, position=position)
        return tell(core, request, version=0)

    assert SendSnapshotHash(77, SNAPSHOT, 4) in hash_of(10, 3, 4)
    for wrong, error in (
        (hash_of(0, 0, 4), ErrorCode.SNAPSHOT_NOT_FOUND),
        (hash_of(11, 3, 4), ErrorCode.SNAPSHOT_NOT_FOUND),
        (hash_of(10, 3, 0), ErrorCode.POSITION_OUT_OF_RANGE),
        (hash_of(10, 3, 4, "other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ):
        (answer,) = [action.response for action in wrong if isinstance(action, SendResponse)]
        assert answer.error_code == error


@pytest.mark.parametrize("count", [0, 2])
def test_a_request_for_not_exactly_one_topic_is_refused_at_top_level(count: int) -> None:
    core = leader()
    request = snapshot_request(SNAPSHOT, epoch=core.epoch)
    answer = ask(core, attrs.evolve(request, topics=request.topics * count))

    assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, ())


def test_a_log_that_is_behind_its_own_snapshot_does_not_begin_there() -> None:
    ahead = OffsetAndEpoch(offset=9, epoch=2)
    view = log_view(1, 1, 2, voters=voter_set(1, 2, 3))
    view.snapshots = [OffsetAndEpoch(offset=2, epoch=1), ahead]
    core = replica(log=view)
    assert core.state.committed_offset == 9

    assert core.handle(RetentionDue(ahead), 0) == []
