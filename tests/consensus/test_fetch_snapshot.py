"""A snapshot instead of the log, the follower's side (KIP-630, FetchSnapshot)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import (
    AdoptSnapshot,
    AdvanceHighWatermark,
    DropSnapshotDownload,
    HashDownload,
    InstallSnapshot,
    SendRequest,
    WriteSnapshotChunk,
)
from kraftlib.consensus.events import (
    SnapshotAdopted,
    SnapshotChunkWritten,
    SnapshotCreated,
    SnapshotInstalled,
    SnapshotRefused,
    TimeoutReached,
)
from kraftlib.consensus.fetch_snapshot import (
    LIMITED_BYTES_MIN,
    begin_download,
    drop_download,
    fetch_chunk,
    handle_fetch_snapshot_response,
)
from kraftlib.consensus.joining import DESCRIBE_QUORUM
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Download, Follower, Heard, Role
from kraftlib.consensus.state import Amnesia, Filling
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.types import ZERO_UUID, Endpoint, LeaderAndEpoch, OffsetAndEpoch, OffsetRange, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from tests.consensus.build import (
    CLUSTER,
    LISTENER,
    NOW_MS,
    OTHER,
    SNAPSHOT,
    answer_vote,
    as_leader,
    ask,
    asked_for,
    begin_request,
    downloading,
    fetch_response,
    follower,
    following,
    half_downloaded,
    interrupted,
    kinds,
    leader,
    log_view,
    outstanding_to,
    partition_of,
    pending_requests,
    place,
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
        snapshot_chunk(b"", size=0),
    ],
    ids=["other position", "other snapshot", "more than the size", "negative size", "nothing", "an empty file"],
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
        due_ms = core.deadline_ms() or 0
        assert due_ms > core.state.now_ms
        actions = core.handle(TimeoutReached(), due_ms)
        asked = [action for action in actions if isinstance(action, SendRequest)]
        waiting = [request.request for request in pending_requests(core)]

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


CHUNK_TOPIC = snapshot_chunk(b"1234").topics
CHUNK = CHUNK_TOPIC[0].partitions


@pytest.mark.parametrize(
    "answer",
    [
        attrs.evolve(snapshot_chunk(b"1234"), error_code=ErrorCode.INCONSISTENT_CLUSTER_ID),
        attrs.evolve(snapshot_chunk(b"1234"), topics=()),
        attrs.evolve(snapshot_chunk(b"1234"), topics=CHUNK_TOPIC * 2),
        attrs.evolve(snapshot_chunk(b"1234"), topics=(attrs.evolve(CHUNK_TOPIC[0], name="other"),)),
        *(
            attrs.evolve(snapshot_chunk(b"1234"), topics=(attrs.evolve(CHUNK_TOPIC[0], partitions=partitions),))
            for partitions in (CHUNK * 2, (), (attrs.evolve(CHUNK[0], index=7),))
        ),
    ],
    ids=["error", "no topic", "two topics", "another topic", "two partitions", "no partition", "another partition"],
)
def test_an_answer_without_our_partition_brings_nothing_and_costs_nothing(answer: FetchSnapshotResponse) -> None:
    """The leader is left alone for a while, and the download goes on where it was."""
    core = downloading()
    assert kinds(reply(core, 2, answer)) == []
    assert core.state.connections.is_backing_off(2, core.state.now_ms)
    actions = core.handle(TimeoutReached(), core.state.now_ms + 200)

    assert kinds(actions) == [FetchSnapshotRequest]
    assert partition_of(actions[0].request).position == 0


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
        assert core.state.sent == ({} if error else {SNAPSHOT: later})
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
    assert core.state.sent != {}, "it is served"


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


DISK = UUID(int=7)


def chunk(data: bytes = b"5678", *, position: int = 4, **more: Any) -> FetchSnapshotResponse:
    """The rest of the snapshot."""
    return snapshot_chunk(data, position=position, **more)


def damaged() -> tuple[Replica, Follower]:
    """A replica with records 0 to 5, of epochs 1, 1, 1, 2, 2, 2, all committed, that is filling the hole [0, 4)."""
    view = log_view(1, 1, 1, 2, 2, 2, voters=voter_set(1, 2, 3))
    view.holes = [OffsetRange(0, 4)]
    core, role = following(log=view)
    core.state.committed_offset = 6
    core.state.filling = Filling(epoch=5, next_offset=0, last_epoch=0)
    return core, role


def adopted(**more: Any) -> SnapshotAdopted:
    controls: tuple[Any, ...] = (voter_set(1, 2, 3).to_record(),)
    return SnapshotAdopted(
        snapshot_id=OffsetAndEpoch(offset=5, epoch=2),
        controls=controls,
        holes=more.get("holes", ()),
        control_batches=(),
    )


@pytest.mark.parametrize(("end_offset", "epoch"), [(0, 3), (-1, 3), (10, -1), (10, 1_000)])
def test_no_leader_can_name_such_a_snapshot(end_offset: int, epoch: int) -> None:
    core, role = following()
    assert begin_download(core.state, role, end_offset, epoch) is None
    assert core.state.refused == {"impossible snapshot": 1}


def test_the_least_that_a_snapshot_can_be_is_fetched() -> None:
    core, role = following()
    assert begin_download(core.state, role, 1, 0) == []
    assert role.download == Download(snapshot_id=OffsetAndEpoch(offset=1, epoch=0), source_epoch=5)
    assert core.state.kept is role.download


def test_a_snapshot_that_ends_where_the_commits_do_takes_nothing_back() -> None:
    core, role = following(1, 1, 1)
    core.state.committed_offset, core.state.high_watermark = 3, None
    assert begin_download(core.state, role, 2, 1) is None
    assert begin_download(core.state, role, 3, 1) == []


def test_one_that_stands_in_for_what_is_missing_may_end_below_the_commits_if_it_is_of_this_log() -> None:
    """Of this log it is only where the leader is known to have all of it, and the epochs agree."""
    core, role = damaged()
    assert begin_download(core.state, role, 5, 2) == []
    assert role.download is not None
    assert role.download.fills
    core, role = damaged()
    assert begin_download(core.state, role, 5, 1) is None
    core, role = damaged()
    core.state.filling = None
    assert begin_download(core.state, role, 5, 2) is None
    core, role = damaged()
    assert begin_download(core.state, role, 9, 4) == []
    assert role.download is not None
    assert not role.download.fills


@pytest.mark.parametrize(
    ("kept", "goes_on"),
    [
        (Download(snapshot_id=SNAPSHOT, source_epoch=5, position=4, size=8), True),
        (Download(snapshot_id=OTHER, source_epoch=5, position=4, size=8), False),
        (Download(snapshot_id=SNAPSHOT, source_epoch=5, position=4), False),
        (Download(snapshot_id=SNAPSHOT, source_epoch=5, position=0, size=8), False),
    ],
    ids=["half of it", "of another one", "of unknown size", "nothing"],
)
def test_what_is_kept_is_gone_on_with_where_there_is_something_to_go_on_with(kept: Download, goes_on: bool) -> None:
    core, role = following(kept=kept)
    assert begin_download(core.state, role, SNAPSHOT.offset, SNAPSHOT.epoch) == []
    assert (role.download is kept) == goes_on
    assert core.state.kept is role.download


def test_what_is_kept_serves_what_is_wanted_now() -> None:
    """It was to stand in for what was missing, and the log has been repaired since."""
    kept = Download(snapshot_id=SNAPSHOT, source_epoch=5, position=4, size=8, fills=True)
    core, role = following(kept=kept)
    begin_download(core.state, role, SNAPSHOT.offset, SNAPSHOT.epoch)
    assert not kept.fills


def test_what_came_from_another_is_compared_anew() -> None:
    """Whatever was known of it before: that was of another leader."""
    kept = Download(snapshot_id=SNAPSHOT, source_epoch=4, position=4, size=8, digest=b"old")
    core, role = following(kept=kept)
    assert begin_download(core.state, role, SNAPSHOT.offset, SNAPSHOT.epoch) == [HashDownload(SNAPSHOT, 4)]
    assert (kept.unproven, kept.digest) == (True, None)


def test_a_question_says_who_asks_and_for_what() -> None:
    for directory_id in (DISK, None):
        core, _, _ = half_downloaded(directory_id=directory_id)
        request = outstanding_to(core, 2).request
        assert isinstance(request, FetchSnapshotRequest)
        partition = request.topics[0].partitions[0]
        assert (request.cluster_id, request.replica_id, request.max_bytes) == (CLUSTER, 1, 1024 * 1024)
        assert (partition.snapshot_id.end_offset, partition.snapshot_id.epoch, partition.position) == (10, 3, 4)
        assert (partition.current_leader_epoch, partition.replica_directory_id) == (5, directory_id or ZERO_UUID)


def test_who_has_forgotten_its_votes_keeps_no_leader_in_office_by_half_downloaded() -> None:
    core, role, download = half_downloaded(directory_id=DISK)
    core.state.connections.forget()
    core.state.amnesia = Amnesia()
    (sent,) = fetch_chunk(core.state, role, download)

    assert isinstance(sent, SendRequest)
    assert isinstance(sent.request, FetchSnapshotRequest)
    assert sent.request.replica_id == -1
    assert sent.request.topics[0].partitions[0].replica_directory_id == ZERO_UUID


def test_nobody_stands_while_a_snapshot_takes_the_place_of_its_log() -> None:
    """After a pause it would name the end that its log has no more by the time at which that is heard."""
    core, role, _ = half_downloaded()
    late_ms = NOW_MS + 10 * core.state.config.fetch_timeout_ms
    reply(core, 2, chunk())
    actions = core.handle(SnapshotChunkWritten(SNAPSHOT, 8), late_ms)

    assert InstallSnapshot(SNAPSHOT) in actions
    assert (core.role, core.deadline_ms()) == (Role.FOLLOWER, None)
    core.handle(SnapshotInstalled(SNAPSHOT, ()), late_ms)
    assert core.role is Role.FOLLOWER
    assert role.fetch_deadline_ms == late_ms + core.state.config.fetch_timeout_ms
    assert core.state.log.end_offset == SNAPSHOT.offset


def test_nothing_is_asked_before_the_last_bytes_are_written_nor_before_its_time() -> None:
    core, role, download = half_downloaded()
    core.state.connections.forget()
    role.writing_chunk = True
    assert fetch_chunk(core.state, role, download) == []
    role.writing_chunk = False
    download.not_before_ms = NOW_MS + 1
    assert fetch_chunk(core.state, role, download) == []
    download.not_before_ms = NOW_MS
    assert kinds(fetch_chunk(core.state, role, download)) == [FetchSnapshotRequest]
    assert fetch_chunk(core.state, role, download) == [], "it is asked already"


def test_a_leader_of_whom_it_is_not_known_where_it_is_cannot_be_asked() -> None:
    core, role, download = half_downloaded()
    core.state.connections.forget()
    role.leader_endpoints = {"ANOTHER": place(2)}
    assert fetch_chunk(core.state, role, download) == []


def test_what_is_whole_is_used_only_once_it_is_known_to_be_the_leaders() -> None:
    core, role, download = half_downloaded()
    core.state.connections.forget()
    download.position = 8
    download.unproven = True
    assert fetch_chunk(core.state, role, download) == [], "our own bytes are being hashed"
    download.digest = b"hash"
    (asked,) = fetch_chunk(core.state, role, download)
    assert isinstance(asked, SendRequest)
    request = asked.request
    assert isinstance(request, SnapshotHashRequest)
    assert (request.cluster_id, request.replica_id) == (CLUSTER, 1)
    assert (request.end_offset, request.epoch, request.position) == (10, 3, 8)
    core.state.connections.forget()
    download.unproven = False
    assert fetch_chunk(core.state, role, download) == [InstallSnapshot(SNAPSHOT)]
    assert role.writing_chunk


@pytest.mark.parametrize(
    ("rate", "at_once", "asked"),
    [
        (0, 50_000, 50_000),
        (100_000, 50_000, 25_000),
        (10**9, 50_000, 50_000),
        (1, 50_000, LIMITED_BYTES_MIN),
        (1, 1_000, 1_000),
    ],
)
def test_so_much_is_asked_for_at_once(rate: int, at_once: int, asked: int) -> None:
    """An eighth of a second's worth for each second of the fetch timeout; never more than is allowed at once."""
    core, _, _ = half_downloaded(snapshot_rate_bytes=rate, snapshot_max_bytes=at_once)
    assert outstanding_to(core, 2).request.max_bytes == asked


def test_a_chunk_is_written_where_it_belongs_and_says_that_the_leader_lives() -> None:
    core, role, download = half_downloaded()
    download.refusals = 2
    role.fetch_deadline_ms, role.heard = NOW_MS + 7, Heard.NOTHING
    core.state.now_ms = NOW_MS + 5
    actions = reply(core, 2, chunk(b"56", size=8))
    assert actions == [WriteSnapshotChunk(SNAPSHOT, 4, b"56", 8)]
    assert role.fetch_deadline_ms == NOW_MS + 5 + core.state.config.fetch_timeout_ms
    assert (role.has_fetched, role.writing_chunk, download.refusals, download.position) == (True, True, 0, 4)


def test_the_first_chunk_says_how_much_there_is() -> None:
    core, _, download = half_downloaded(Download(snapshot_id=SNAPSHOT, source_epoch=5))
    assert kinds(reply(core, 2, chunk(b"12", position=0, size=9))) == [WriteSnapshotChunk]
    assert download.size == 9


@pytest.mark.parametrize("size", [0, -1, 7])
def test_a_size_that_does_not_hold_what_came_is_wrong(size: int) -> None:
    core, role, _ = half_downloaded(Download(snapshot_id=SNAPSHOT, source_epoch=5, position=4))
    assert DropSnapshotDownload in kinds(reply(core, 2, chunk(size=size)))
    assert core.state.refused == {"foreign snapshot chunk": 1}
    assert (role.download, core.state.kept) == (None, None)
    assert core.state.connections.is_backing_off(2, core.state.now_ms), "it would say the same again at once"


@pytest.mark.parametrize("rate", [0, 1_000, 10**9])
def test_what_comes_faster_than_it_may_is_waited_for_and_half_the_fetch_timeout_at_most(rate: int) -> None:
    core, role, download = half_downloaded(snapshot_rate_bytes=rate)
    pause_ms = {0: -NOW_MS, 1_000: 4, 10**9: 0}[rate]
    reply(core, 2, chunk())
    assert download.not_before_ms == NOW_MS + pause_ms
    if rate == 1_000:
        assert core.deadline_ms() != NOW_MS + 4, "what is being written is waited for first"
        core.handle(SnapshotChunkWritten(SNAPSHOT, 6), NOW_MS)
        assert core.deadline_ms() == NOW_MS + 4
        core.state.now_ms = NOW_MS + 4
        role.writing_chunk = False
        download.size, download.position = 10**6, 4
        core.state.connections.forget()
        fetch_chunk(core.state, role, download)
        reply(core, 2, chunk(b"x" * 9_000, size=10**6))
        assert download.not_before_ms == NOW_MS + 4 + core.state.config.fetch_timeout_ms // 2


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_a_leader_that_does_not_have_it_is_asked_by_fetch_what_it_has(error: ErrorCode) -> None:
    """It lives that says that it has none. The same might come again, so it is asked after a pause."""
    core, role, _ = half_downloaded()
    role.fetch_deadline_ms = NOW_MS + 7
    actions = handle_fetch_snapshot_response(core.state, outstanding_to(core, 2), chunk(b"", error=error))
    assert actions == [DropSnapshotDownload()]
    assert (role.download, core.state.kept) == (None, None)
    lives = error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert role.fetch_deadline_ms == (NOW_MS + core.state.config.fetch_timeout_ms if lives else NOW_MS + 7)
    assert core.state.connections.is_backing_off(2, NOW_MS)


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_the_word_of_another_epoch_drops_nothing(error: ErrorCode) -> None:
    core, role, download = half_downloaded()
    role.fetch_deadline_ms = NOW_MS + 7
    actions = handle_fetch_snapshot_response(core.state, outstanding_to(core, 2), chunk(b"", error=error, epoch=4))
    assert (actions, role.download, role.fetch_deadline_ms) == ([], download, NOW_MS + 7)
    for leader_id in (-1, 3):
        core, _, download = half_downloaded()
        newer = chunk(b"", error=error, epoch=6, leader_id=leader_id)
        actions = handle_fetch_snapshot_response(core.state, outstanding_to(core, 2), newer)
        assert DropSnapshotDownload not in kinds(actions)
        assert core.leader_and_epoch == LeaderAndEpoch(None if leader_id < 0 else leader_id, 6)
        assert core.state.kept is download


def test_an_answer_that_names_a_newer_leader_brings_no_bytes() -> None:
    core, _, download = half_downloaded()
    actions = reply(core, 2, chunk(epoch=6, leader_id=3))
    assert WriteSnapshotChunk not in kinds(actions)
    assert (core.epoch, download.position) == (6, 4)


def test_an_answer_without_a_leader_is_that_of_nobody() -> None:
    """Id 0 is somebody; -1 is nobody."""
    core, _, _ = half_downloaded()
    assert kinds(reply(core, 2, chunk(leader_id=-1))) == [WriteSnapshotChunk]
    core, _, _ = half_downloaded()
    reply(core, 2, chunk(leader_id=0))
    assert core.state.refused == {"two leaders": 1}


def test_bytes_that_nobody_waits_for_any_more_are_not_written() -> None:
    core, role, _ = half_downloaded()
    role.download = None
    assert handle_fetch_snapshot_response(core.state, outstanding_to(core, 2), chunk()) == []


def test_whoever_keeps_nothing_drops_nothing() -> None:
    core, role = following()
    assert drop_download(core.state, role) == []


def test_what_is_written_counts_for_the_snapshot_that_it_is_of() -> None:
    core, role, download = half_downloaded()
    role.writing_chunk = True
    core.handle(SnapshotChunkWritten(OTHER, 6), NOW_MS)
    assert (download.position, role.writing_chunk) == (4, True)
    core.handle(SnapshotChunkWritten(SNAPSHOT, 6), NOW_MS)
    assert (download.position, role.writing_chunk) == (6, False)


def test_what_is_written_is_remembered_by_one_that_follows_nobody() -> None:
    kept = Download(snapshot_id=SNAPSHOT, source_epoch=5, position=4, size=8)
    core = follower(1, epoch=5, leader_id=1, kept=kept)
    assert core.handle(SnapshotChunkWritten(SNAPSHOT, 8), core.state.now_ms) == []
    assert kept.position == 8
    core.state.kept = None
    core.handle(SnapshotChunkWritten(SNAPSHOT, 8), core.state.now_ms)


def test_the_last_byte_lets_it_be_used_at_once() -> None:
    core, role, _ = half_downloaded()
    core.state.connections.forget()
    core.state.connections.back_off(2, NOW_MS + 1_000)
    assert core.handle(SnapshotChunkWritten(SNAPSHOT, 8), NOW_MS) == [InstallSnapshot(SNAPSHOT)]
    assert role.writing_chunk
    core, role, _ = half_downloaded()
    core.state.connections.forget()
    core.state.connections.back_off(2, NOW_MS + 1_000)
    assert core.handle(SnapshotChunkWritten(SNAPSHOT, 7), NOW_MS) == []


@pytest.mark.parametrize(
    ("snapshot_id", "fills", "is_filling", "used"),
    [
        (OffsetAndEpoch(offset=5, epoch=2), True, True, [AdoptSnapshot(OffsetAndEpoch(offset=5, epoch=2))]),
        (OffsetAndEpoch(offset=5, epoch=2), True, False, [DropSnapshotDownload()]),
        (OffsetAndEpoch(offset=5, epoch=2), False, True, [DropSnapshotDownload()]),
        (OffsetAndEpoch(offset=9, epoch=4), True, True, [DropSnapshotDownload()]),
        (OffsetAndEpoch(offset=9, epoch=4), False, True, [InstallSnapshot(OffsetAndEpoch(offset=9, epoch=4))]),
    ],
    ids=["fills", "fills what is filled", "was to replace what is damaged", "fills another log", "replaces"],
)
def test_what_has_come_is_used_for_what_it_was_fetched_for_or_not_at_all(
    snapshot_id: OffsetAndEpoch, fills: bool, is_filling: bool, used: list[Any]
) -> None:
    core, role = damaged()
    if not is_filling:
        core.state.filling = None
    download = Download(snapshot_id=snapshot_id, source_epoch=5, position=8, size=8, fills=fills)
    role.download = core.state.kept = download
    core.state.connections.forget()
    assert fetch_chunk(core.state, role, download) == used


@pytest.mark.parametrize(
    ("high_watermark", "committed", "announced", "committed_then"),
    [(None, 3, 5, 5), (4, 4, 5, 5), (5, 5, 5, 5), (6, 6, 6, 6), (None, 6, 6, 6)],
)
def test_what_stands_in_is_committed_and_takes_nothing_back(
    high_watermark: int | None, committed: int, announced: int, committed_then: int
) -> None:
    core, role = damaged()
    state = core.state
    state.high_watermark, state.committed_offset = high_watermark, committed
    role.download = state.kept = Download(snapshot_id=SNAPSHOT, source_epoch=5, fills=True)
    role.writing_chunk, role.fetch_deadline_ms = True, NOW_MS + 7
    actions = core.handle(adopted(), NOW_MS)
    assert [action for action in actions if isinstance(action, AdvanceHighWatermark)] == [
        AdvanceHighWatermark(announced)
    ]
    assert (state.high_watermark, state.committed_offset) == (announced, committed_then)
    assert (state.log.start_offset, state.log.end_offset, state.log.holes) == (5, 6, [])
    assert (state.filling, state.kept, role.download, role.writing_chunk) == (None, None, None, False)
    assert role.fetch_deadline_ms == NOW_MS + state.config.fetch_timeout_ms


def test_what_is_beyond_the_log_is_not_announced_before_the_log_is_there() -> None:
    """A snapshot of our own is ahead of it: a leader commits what its own disk does not have yet, and loses it."""
    core, role = damaged()
    state = core.state
    state.high_watermark, state.committed_offset = None, 7
    role.download = state.kept = Download(snapshot_id=SNAPSHOT, source_epoch=5, fills=True)
    actions = core.handle(adopted(), NOW_MS)

    assert [action for action in actions if isinstance(action, AdvanceHighWatermark)] == []
    assert (state.high_watermark, state.committed_offset, state.log.end_offset) == (None, 7, 6)


def test_one_that_follows_nobody_takes_it_over_just_the_same() -> None:
    view = log_view(1, 1, 1, 2, 2, 2, voters=voter_set(1, 2, 3))
    view.holes = [OffsetRange(0, 4)]
    core = follower(log=view, epoch=5, leader_id=1)
    assert AdvanceHighWatermark(5) in core.handle(adopted(), core.state.now_ms)
    assert core.state.log.start_offset == 5


def test_an_installed_snapshot_is_all_that_there_is() -> None:
    core, role, _ = half_downloaded()
    state = core.state
    state.filling = Filling(epoch=5, next_offset=0, last_epoch=0)
    state.committed_offset = 10
    role.writing_chunk, role.fetch_deadline_ms = True, NOW_MS + 7
    controls: tuple[Any, ...] = (voter_set(1, 2, 3).to_record(),)
    actions = core.handle(SnapshotInstalled(SNAPSHOT, controls), NOW_MS)
    assert actions[0] == AdvanceHighWatermark(10)
    assert (state.filling, state.kept, role.download, role.writing_chunk) == (None, None, None, False)
    assert role.fetch_deadline_ms == NOW_MS + state.config.fetch_timeout_ms
    assert (state.high_watermark, state.committed_offset, state.log.end) == (10, 10, SNAPSHOT)


def test_one_that_leads_its_leader_no_more_installs_it_all_the_same() -> None:
    """The disk was at it when the role changed."""
    core = follower(1, epoch=5, leader_id=1)
    core.handle(SnapshotInstalled(SNAPSHOT, ()), core.state.now_ms)
    assert core.state.log.end == SNAPSHOT


def test_a_refused_snapshot_is_forgotten_and_its_leader_left_alone_for_a_while() -> None:
    core, role, _ = half_downloaded()
    core.state.connections.forget()
    role.writing_chunk = True
    assert core.handle(SnapshotRefused(SNAPSHOT, "no footer"), NOW_MS) == []
    assert (core.state.kept, role.download, role.writing_chunk) == (None, None, False)
    assert core.state.connections.failures(2) == 1
    alone = follower(1, epoch=5, leader_id=1, kept=Download(snapshot_id=SNAPSHOT, source_epoch=5))
    alone.handle(SnapshotRefused(SNAPSHOT, "no footer"), alone.state.now_ms)
    assert alone.state.kept is None


def test_endpoints_of_the_leader_are_those_of_our_listener() -> None:
    core, role, download = half_downloaded()
    core.state.connections.forget()
    role.leader_endpoints = {LISTENER: Endpoint("elsewhere", 1), "ANOTHER": place(2)}
    (asked,) = fetch_chunk(core.state, role, download)
    assert isinstance(asked, SendRequest)
    assert asked.endpoint == Endpoint("elsewhere", 1)
    assert ReplicaKey(asked.destination) == ReplicaKey(2)
