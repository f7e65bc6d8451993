"""A snapshot instead of the log, the follower's side (KIP-630, FetchSnapshot)."""

from __future__ import annotations

from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import (
    AdvanceHighWatermark,
    DropSnapshotDownload,
    InstallSnapshot,
    SendRequest,
    SendSnapshotChunk,
    WriteSnapshotChunk,
)
from kraftlib.consensus.events import (
    SnapshotChunkWritten,
    SnapshotCreated,
    SnapshotInstalled,
    SnapshotRefused,
    TimeoutReached,
)
from kraftlib.consensus.joining import DESCRIBE_QUORUM
from kraftlib.consensus.roles import Download
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.types import BOOTSTRAP_SNAPSHOT, METADATA_TOPIC, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tests.consensus.build import (
    SNAPSHOT,
    answer_vote,
    as_leader,
    ask,
    asked_for,
    begin_request,
    downloading,
    fetch_response,
    follower,
    interrupted,
    kinds,
    leader,
    log_view,
    partition_of,
    replica,
    reply,
    requests,
    snapshot_chunk,
    snapshot_request,
    tell,
    voter_set,
)


def test_a_download_goes_chunk_by_chunk_and_is_installed_as_a_whole() -> None:
    """The next request waits until the last bytes are written; the log begins anew behind the snapshot."""
    core = downloading()
    assert kinds(reply(core, 2, snapshot_chunk(b"1234"))) == [WriteSnapshotChunk]
    actions = core.handle(SnapshotChunkWritten(SNAPSHOT, 4), core.state.now_ms)
    assert partition_of(actions[0].request).position == 4  # type: ignore[union-attr]
    assert kinds(reply(core, 2, snapshot_chunk(b"5678", position=4))) == [WriteSnapshotChunk]
    assert kinds(core.handle(SnapshotChunkWritten(SNAPSHOT, 8), core.state.now_ms)) == [InstallSnapshot]
    controls = (KRaftVersionRecord(kraft_version=1), voter_set(1, 2, 3).to_record())
    actions = core.handle(SnapshotInstalled(SNAPSHOT, controls), core.state.now_ms)

    assert kinds(actions) == [AdvanceHighWatermark, FetchRequest]
    assert (core.high_watermark, core.state.log.end) == (10, SNAPSHOT)
    assert core.kraft_version == 1


@pytest.mark.parametrize(
    "response",
    [
        snapshot_chunk(b"1234", position=4),
        snapshot_chunk(b"1234", snapshot_id=OffsetAndEpoch(offset=10, epoch=4)),
        snapshot_chunk(b"1234", size=3),
        snapshot_chunk(b"1234", size=-1),
        snapshot_chunk(b""),
    ],
    ids=["other position", "other snapshot", "more than the size", "negative size", "nothing"],
)
def test_a_chunk_that_does_not_fit_drops_the_download_and_stops_nobody(response: FetchSnapshotResponse) -> None:
    """Kafka stops; what a peer sends never stops a replica of ours (scenario N10)."""
    core = downloading()
    actions = reply(core, 2, response)

    assert DropSnapshotDownload in kinds(actions)
    assert core.state.refused == {"foreign snapshot chunk": 1}


def test_a_snapshot_that_is_gone_is_asked_for_anew_by_fetch() -> None:
    """SNAPSHOT_NOT_FOUND of ours, or the -1 that is all a Kafka leader can say."""
    for response in (snapshot_chunk(b"", error=ErrorCode.SNAPSHOT_NOT_FOUND), FetchSnapshotResponse(error_code=-1)):
        core = downloading()
        actions = reply(core, 2, response)
        assert (DropSnapshotDownload in kinds(actions)) == (not response.error_code), "of -1 nobody knows what it means"
        assert FetchRequest not in kinds(actions), "a leader that names what it does not have is not asked in a loop"
        actions = core.handle(TimeoutReached(), core.state.now_ms + 50)
        asked = [action for action in actions if isinstance(action, SendRequest)]
        waiting = [request.request for request in core.state.connections._outstanding.values()]

        assert [type(request) for request in [*waiting] or asked] == [FetchRequest]


def test_a_snapshot_that_is_gone_is_asked_for_anew_after_a_pause() -> None:
    """A leader may name a snapshot that it cannot read: the two would ask and refuse at the speed of the network."""
    core = downloading()
    assert FetchRequest not in kinds(reply(core, 2, snapshot_chunk(b"", error=ErrorCode.SNAPSHOT_NOT_FOUND)))

    due_ms = core.deadline_ms()
    assert due_ms is not None
    assert due_ms > core.state.now_ms
    asked = [action.request for action in core.handle(TimeoutReached(), due_ms) if isinstance(action, SendRequest)]
    assert [type(request) for request in asked] == [FetchRequest]


def test_a_damaged_snapshot_replaces_nothing() -> None:
    """It is refused as a whole; Fetch decides what to do next (scenario N4)."""
    core = downloading()
    reply(core, 2, snapshot_chunk(b"12345678"))
    core.handle(SnapshotChunkWritten(SNAPSHOT, 8), core.state.now_ms)
    core.handle(SnapshotRefused(SNAPSHOT, "no footer"), core.state.now_ms)

    assert core.state.log.end == OffsetAndEpoch(offset=1, epoch=1)
    assert core.state.refused == {"damaged snapshot": 1}


def test_a_snapshot_that_finds_no_space_is_not_called_damaged() -> None:
    core = downloading()
    core.handle(SnapshotRefused(SNAPSHOT, "no space left", lacks_space=True), core.state.now_ms)

    assert core.state.refused == {"no space for a snapshot": 1}


def test_a_snapshot_behind_what_is_committed_is_refused() -> None:
    """It would take back what was acknowledged."""
    core = follower(1, 1, 1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=3))
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(2, 1)))

    assert core.state.refused == {"old snapshot": 1}


def test_an_observer_whose_leader_vanishes_in_a_download_asks_others_for_a_new_one() -> None:
    """It has no fetch timer to tell it, and would wait for ever (found by simulation)."""
    core = follower(1, epoch=5, leader_id=2, own_id=9, request_timeout_ms=600)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))
    asked: list[int] = []
    for _ in range(12):
        actions = core.handle(TimeoutReached(), core.deadline_ms() or 0)
        asked += [request.destination for request in requests(actions, FetchRequest)]
        if asked:
            break
    assert asked, "it asks nobody but its leader"
    number = asked[0]
    reply(core, number, fetch_response(epoch=6, leader_id=3, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))

    assert core.leader_and_epoch == LeaderAndEpoch(3, 6)


def test_a_download_that_had_all_its_bytes_is_installed_under_the_next_leader() -> None:
    core = downloading()
    reply(core, 2, snapshot_chunk(b"12345678"))
    tell(core, begin_request(epoch=6, leader_id=2))
    core.handle(SnapshotChunkWritten(SNAPSHOT, 8), core.state.now_ms)
    actions = reply(core, 2, fetch_response(epoch=6, leader_id=2, snapshot=(10, 3)))
    assert kinds(actions) == [InstallSnapshot]


def test_a_kafka_leader_that_only_says_minus_1_is_asked_again_and_not_for_ever() -> None:
    core = interrupted()
    for attempt in range(3):
        actions = reply(core, 2, FetchSnapshotResponse(error_code=-1))
        assert (DropSnapshotDownload in kinds(actions)) == (attempt == 2)
        core.handle(TimeoutReached(), core.state.now_ms + 100)
        reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(10, 3)))
        assert partition_of(asked_for(core, 2)).position == (0 if attempt == 2 else 4)


def test_a_position_that_the_leader_does_not_have_begins_anew() -> None:
    core = interrupted()
    assert DropSnapshotDownload in kinds(reply(core, 2, snapshot_chunk(b"", error=ErrorCode.POSITION_OUT_OF_RANGE)))
    assert core.state.kept is None


def test_a_size_that_changes_on_the_way_is_another_file() -> None:
    core = interrupted()
    assert DropSnapshotDownload in kinds(reply(core, 2, snapshot_chunk(b"5678", position=4, size=9)))


def test_what_is_not_wanted_any_more_is_dropped() -> None:
    """The log goes on without it, or this replica leads."""
    core = interrupted()
    tell(core, begin_request(epoch=6, leader_id=3))
    actions = reply(core, 3, fetch_response(epoch=6, leader_id=3, high_watermark=1))
    assert DropSnapshotDownload in kinds(actions)
    assert core.state.kept is None
    core = replica(1, kept=Download(snapshot_id=SNAPSHOT, source_epoch=5, position=4, size=8))
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    answer_vote(core, 2, granted=True, pre_vote=True)
    actions = answer_vote(core, 2, granted=True, pre_vote=False)
    assert DropSnapshotDownload in kinds(actions)


def test_a_limit_to_the_rate_asks_for_little_at_a_time_and_waits_between() -> None:
    core = follower(1, epoch=5, leader_id=2, snapshot_rate_bytes=100_000)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(10, 3)))
    assert asked_for(core, 2).max_bytes == 25_000
    reply(core, 2, snapshot_chunk(b"x" * 25_000, size=100_000))
    assert kinds(core.handle(SnapshotChunkWritten(SNAPSHOT, 25_000), core.state.now_ms)) == []
    assert core.deadline_ms() == core.state.now_ms + 250
    actions = core.handle(TimeoutReached(), core.state.now_ms + 250)
    assert kinds(actions) == [FetchSnapshotRequest]


@pytest.mark.parametrize(
    "answer",
    [
        attrs.evolve(snapshot_chunk(b"1234"), error_code=ErrorCode.INCONSISTENT_CLUSTER_ID),
        attrs.evolve(snapshot_chunk(b"1234"), topics=()),
        attrs.evolve(snapshot_chunk(b"1234"), topics=snapshot_chunk(b"1234").topics * 2),
    ],
    ids=["error", "no topic", "two topics"],
)
def test_an_answer_without_our_partition_brings_nothing_and_costs_nothing(answer: FetchSnapshotResponse) -> None:
    """The leader is left alone for a while, and the download goes on where it was."""
    core = downloading()
    assert kinds(reply(core, 2, answer)) == []
    assert core.state.connections.is_backing_off(2, core.state.now_ms)
    actions = core.handle(TimeoutReached(), core.state.now_ms + 200)

    assert kinds(actions) == [FetchSnapshotRequest]
    assert partition_of(actions[0].request).position == 0


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


@pytest.mark.parametrize("count", [0, 2])
def test_a_request_for_not_exactly_one_topic_is_refused_at_top_level(count: int) -> None:
    core = leader()
    request = snapshot_request(SNAPSHOT, epoch=core.epoch)
    answer = ask(core, attrs.evolve(request, topics=request.topics * count))

    assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, ())
