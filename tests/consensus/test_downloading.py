"""A snapshot instead of the log, the follower's side (KIP-630, FetchSnapshot)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib.consensus.actions import (
    AdvanceHighWatermark,
    DropSnapshotDownload,
    HashDownload,
    InstallSnapshot,
    SendRequest,
    WriteSnapshotChunk,
)
from kraftlib.consensus.events import (
    DownloadHashed,
    Failure,
    RequestFailed,
    SnapshotChunkWritten,
    SnapshotInstalled,
    SnapshotRefused,
    TimeoutReached,
)
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Download
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.types import LeaderAndEpoch, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest, SnapshotHashResponse
from tests.consensus.build import (
    SNAPSHOT,
    answer_vote,
    begin_request,
    fetch_response,
    follower,
    kinds,
    outstanding_to,
    partition_of,
    replica,
    reply,
    requests,
    snapshot_chunk,
    tell,
    voter_set,
)


def downloading() -> Replica:
    """A follower of 2 that was just told to fetch a snapshot."""
    core = follower(1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))
    assert isinstance(outstanding_to(core, 2).request, FetchSnapshotRequest)
    return core


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
        actions = core.handle(TimeoutReached(), core.state.now_ms + 50)
        asked = [action for action in actions if isinstance(action, SendRequest)]
        waiting = [request.request for request in core.state.connections._outstanding.values()]

        assert [type(request) for request in [*waiting] or asked] == [FetchRequest]


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


# What has come is kept ------------------------------------------------------------------------------------------------


def interrupted() -> Replica:
    """A follower of 2 in epoch 5 that has 4 of 8 bytes of the snapshot, then finds itself in epoch 6."""
    core = downloading()
    reply(core, 2, snapshot_chunk(b"1234"))
    core.handle(SnapshotChunkWritten(SNAPSHOT, 4), core.state.now_ms)
    return core


def follow(core: Replica, leader_id: int, *, epoch: int = 6) -> list[Any]:
    """Let the core hear of a leader, and that one name the snapshot."""
    tell(core, begin_request(epoch=epoch, leader_id=leader_id))
    return reply(
        core,
        leader_id,
        fetch_response(epoch=epoch, leader_id=leader_id, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)),
    )


def asked_for(core: Replica, leader_id: int) -> Any:
    return outstanding_to(core, leader_id).request


@pytest.mark.parametrize("leader_id", [2, 3], ids=["the same replica", "another one"])
def test_the_leader_of_another_epoch_goes_on_once_its_bytes_are_the_same(leader_id: int) -> None:
    """The same replica may have another disk by then, with another file of this id and size."""
    core = interrupted()
    actions = follow(core, leader_id)
    assert DropSnapshotDownload not in kinds(actions)
    assert [action for action in actions if isinstance(action, HashDownload)] == [HashDownload(SNAPSHOT, 4)]
    (sent,) = requests(core.handle(DownloadHashed(SNAPSHOT, 4, b"hash"), core.state.now_ms), SnapshotHashRequest)
    assert (sent.request.end_offset, sent.request.epoch, sent.request.position) == (10, 3, 4)
    reply(core, leader_id, SnapshotHashResponse(size=8, digest=b"hash"))
    assert partition_of(asked_for(core, leader_id)).position == 4
    kept = core.state.kept
    assert kept is not None
    assert (kept.source_epoch, kept.unproven) == (core.epoch, False)


@pytest.mark.parametrize(
    "answer",
    [
        SnapshotHashResponse(size=8, digest=b"other"),
        SnapshotHashResponse(size=9, digest=b"hash"),
        SnapshotHashResponse(error_code=ErrorCode.SNAPSHOT_NOT_FOUND),
        None,
    ],
    ids=["other bytes", "other size", "not there", "no answer"],
)
def test_anybody_elses_file_is_fetched_from_the_beginning(answer: SnapshotHashResponse | None) -> None:
    core = interrupted()
    follow(core, 3)
    core.handle(DownloadHashed(SNAPSHOT, 4, b"hash"), core.state.now_ms)
    if answer is not None:
        reply(core, 3, answer)
    else:
        number = outstanding_to(core, 3).correlation_id
        core.handle(RequestFailed(number, Failure.UNSUPPORTED_VERSION), core.state.now_ms)
        core.handle(TimeoutReached(), core.state.now_ms + 100)
    assert partition_of(asked_for(core, 3)).position == 0
    assert core.state.kept is not None
    assert core.state.kept.source_epoch == core.epoch


def test_a_hash_that_could_not_be_made_proves_nothing() -> None:
    core = interrupted()
    follow(core, 3)
    core.handle(DownloadHashed(SNAPSHOT, 4, b""), core.state.now_ms)
    reply(core, 3, SnapshotHashResponse(size=8, digest=b""))
    assert partition_of(asked_for(core, 3)).position == 0


def test_another_snapshot_begins_at_0() -> None:
    core = interrupted()
    tell(core, begin_request(epoch=6, leader_id=2))
    reply(core, 2, fetch_response(epoch=6, leader_id=2, snapshot=(12, 4)))
    partition = partition_of(asked_for(core, 2))
    assert (partition.snapshot_id.end_offset, partition.position) == (12, 0)


def test_what_an_earlier_life_has_left_is_gone_on_with_once_it_is_proved() -> None:
    """The leader may have been another one meanwhile, or have another disk."""
    kept = Download(snapshot_id=SNAPSHOT, source_epoch=None, position=6, size=8)
    core = follower(1, epoch=5, leader_id=2, kept=kept)
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(10, 3)))
    assert HashDownload(SNAPSHOT, 6) in actions
    core.handle(DownloadHashed(SNAPSHOT, 6, b"hash"), core.state.now_ms)
    reply(core, 2, SnapshotHashResponse(size=8, digest=b"hash"))
    assert partition_of(asked_for(core, 2)).position == 6


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


def test_a_hash_that_never_comes_proves_nothing() -> None:
    core = interrupted()
    follow(core, 3)
    core.handle(DownloadHashed(SNAPSHOT, 4, b"hash"), core.state.now_ms)
    core.state.role_state.fetch_deadline_ms = 100_000  # type: ignore[union-attr]
    core.handle(TimeoutReached(), core.state.now_ms + core.state.config.request_timeout_ms)
    core.handle(TimeoutReached(), core.state.now_ms + 100)

    assert partition_of(asked_for(core, 3)).position == 0


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
