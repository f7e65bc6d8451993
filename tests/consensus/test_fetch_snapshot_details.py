"""Each condition of a download by itself: what is begun, asked, believed, written, used, and when it is given up."""

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
    DownloadHashed,
    SnapshotAdopted,
    SnapshotChunkWritten,
    SnapshotInstalled,
    SnapshotRefused,
)
from kraftlib.consensus.extensions.snapshot_hash import handle_snapshot_hash_failed, handle_snapshot_hash_response
from kraftlib.consensus.fetch_snapshot import (
    LIMITED_BYTES_MIN,
    REFUSALS_MAX,
    begin_download,
    drop_download,
    fetch_chunk,
    handle_fetch_snapshot_response,
)
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Download, Follower, Role
from kraftlib.consensus.state import Amnesia, Filling
from kraftlib.types import ZERO_UUID, Endpoint, OffsetAndEpoch, OffsetRange, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest, SnapshotHashResponse
from tests.consensus.build import (
    CLUSTER,
    LISTENER,
    SNAPSHOT,
    begin_request,
    follower,
    kinds,
    log_view,
    outstanding_to,
    place,
    reply,
    snapshot_chunk,
    tell,
    voter_set,
)

OTHER = OffsetAndEpoch(offset=10, epoch=2)
DISK = UUID(int=7)
NOW_MS = 1_000


def following(*epochs: int, **more: Any) -> tuple[Replica, Follower]:
    """A follower of 2 in epoch 5, at 1,000 ms, that is asking for nothing."""
    core = follower(*(epochs or (1,)), epoch=5, leader_id=2, now_ms=NOW_MS, **more)
    core.state.connections.forget()
    role = core.state.role_state
    assert isinstance(role, Follower)
    return core, role


def downloading(download: Download | None = None, **more: Any) -> tuple[Replica, Follower, Download]:
    """One that is fetching a snapshot, 4 of 8 bytes of which are here, and has asked for more."""
    core, role = following(**more)
    download = download or Download(snapshot_id=SNAPSHOT, source_epoch=5, position=4, size=8)
    role.download = core.state.kept = download
    core.handle(SnapshotChunkWritten(OTHER, 0), NOW_MS)  # which is nothing to it, but lets it ask
    return core, role, download


def chunk(data: bytes = b"5678", *, position: int = 4, **more: Any) -> FetchSnapshotResponse:
    """The rest of the snapshot."""
    return snapshot_chunk(data, position=position, **more)


# --- begin -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("end_offset", "epoch"), [(0, 3), (-1, 3), (10, -1)])
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


def damaged() -> tuple[Replica, Follower]:
    """A replica with records 0 to 5, of epochs 1, 1, 1, 2, 2, 2, all committed, that is filling the hole [0, 4)."""
    view = log_view(1, 1, 1, 2, 2, 2, voters=voter_set(1, 2, 3))
    view.holes = [OffsetRange(0, 4)]
    core, role = following(log=view)
    core.state.committed_offset = 6
    core.state.filling = Filling(epoch=5, next_offset=0, last_epoch=0)
    return core, role


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


# --- ask -------------------------------------------------------------------------------------------------------------


def test_a_question_says_who_asks_and_for_what() -> None:
    for directory_id in (DISK, None):
        core, _, _ = downloading(directory_id=directory_id)
        request = outstanding_to(core, 2).request
        assert isinstance(request, FetchSnapshotRequest)
        partition = request.topics[0].partitions[0]
        assert (request.cluster_id, request.replica_id, request.max_bytes) == (CLUSTER, 1, 1024 * 1024)
        assert (partition.snapshot_id.end_offset, partition.snapshot_id.epoch, partition.position) == (10, 3, 4)
        assert (partition.current_leader_epoch, partition.replica_directory_id) == (5, directory_id or ZERO_UUID)


def test_who_has_forgotten_its_votes_keeps_no_leader_in_office_by_downloading() -> None:
    core, role, download = downloading(directory_id=DISK)
    core.state.connections.forget()
    core.state.amnesia = Amnesia()
    (sent,) = fetch_chunk(core.state, role, download)

    assert isinstance(sent, SendRequest)
    assert isinstance(sent.request, FetchSnapshotRequest)
    assert sent.request.replica_id == -1
    assert sent.request.topics[0].partitions[0].replica_directory_id == ZERO_UUID


def test_nobody_stands_while_a_snapshot_takes_the_place_of_its_log() -> None:
    """After a pause it would name the end that its log has no more by the time at which that is heard."""
    core, role, _ = downloading()
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
    core, role, download = downloading()
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
    core, role, download = downloading()
    core.state.connections.forget()
    role.leader_endpoints = {"ANOTHER": place(2)}
    assert fetch_chunk(core.state, role, download) == []


def test_what_is_whole_is_used_only_once_it_is_known_to_be_the_leaders() -> None:
    core, role, download = downloading()
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
    core, _, _ = downloading(snapshot_rate_bytes=rate, snapshot_max_bytes=at_once)
    assert outstanding_to(core, 2).request.max_bytes == asked


# --- what comes ------------------------------------------------------------------------------------------------------


def test_a_chunk_is_written_where_it_belongs_and_says_that_the_leader_lives() -> None:
    core, role, download = downloading()
    download.refusals = 2
    role.fetch_deadline_ms, role.has_fetched = NOW_MS + 7, False
    core.state.now_ms = NOW_MS + 5
    actions = reply(core, 2, chunk(b"56", size=8))
    assert actions == [WriteSnapshotChunk(SNAPSHOT, 4, b"56", 8)]
    assert role.fetch_deadline_ms == NOW_MS + 5 + core.state.config.fetch_timeout_ms
    assert (role.has_fetched, role.writing_chunk, download.refusals, download.position) == (True, True, 0, 4)


def test_the_first_chunk_says_how_much_there_is() -> None:
    core, _, download = downloading(Download(snapshot_id=SNAPSHOT, source_epoch=5))
    assert kinds(reply(core, 2, chunk(b"12", position=0, size=9))) == [WriteSnapshotChunk]
    assert download.size == 9


@pytest.mark.parametrize("size", [0, -1, 7])
def test_a_size_that_does_not_hold_what_came_is_wrong(size: int) -> None:
    core, role, _ = downloading(Download(snapshot_id=SNAPSHOT, source_epoch=5, position=4))
    assert DropSnapshotDownload in kinds(reply(core, 2, chunk(size=size)))
    assert core.state.refused == {"foreign snapshot chunk": 1}
    assert (role.download, core.state.kept) == (None, None)
    assert core.state.connections.is_backing_off(2, core.state.now_ms), "it would say the same again at once"


def test_an_empty_file_of_no_bytes_is_none() -> None:
    core, _, _ = downloading(Download(snapshot_id=SNAPSHOT, source_epoch=5))
    assert DropSnapshotDownload in kinds(reply(core, 2, chunk(b"", position=0, size=0)))


@pytest.mark.parametrize("rate", [0, 1_000, 10**9])
def test_what_comes_faster_than_it_may_is_waited_for_and_half_the_fetch_timeout_at_most(rate: int) -> None:
    core, role, download = downloading(snapshot_rate_bytes=rate)
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
    core, role, _ = downloading()
    role.fetch_deadline_ms = NOW_MS + 7
    actions = handle_fetch_snapshot_response(core.state, outstanding_to(core, 2), chunk(b"", error=error))
    assert actions == [DropSnapshotDownload()]
    assert (role.download, core.state.kept) == (None, None)
    lives = error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert role.fetch_deadline_ms == (NOW_MS + core.state.config.fetch_timeout_ms if lives else NOW_MS + 7)
    assert core.state.connections.is_backing_off(2, NOW_MS)


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_the_word_of_another_epoch_drops_nothing(error: ErrorCode) -> None:
    core, role, download = downloading()
    role.fetch_deadline_ms = NOW_MS + 7
    actions = handle_fetch_snapshot_response(core.state, outstanding_to(core, 2), chunk(b"", error=error, epoch=4))
    assert (actions, role.download, role.fetch_deadline_ms) == ([], download, NOW_MS + 7)
    core, _, download = downloading()
    actions = handle_fetch_snapshot_response(
        core.state, outstanding_to(core, 2), chunk(b"", error=error, epoch=6, leader_id=3)
    )
    assert DropSnapshotDownload not in kinds(actions)
    assert (core.leader_and_epoch.leader_id, core.epoch, core.state.kept) == (3, 6, download)


def test_an_answer_that_names_a_newer_leader_brings_no_bytes() -> None:
    core, _, download = downloading()
    actions = reply(core, 2, chunk(epoch=6, leader_id=3))
    assert WriteSnapshotChunk not in kinds(actions)
    assert (core.epoch, download.position) == (6, 4)


def test_an_answer_without_a_leader_is_that_of_nobody() -> None:
    """Id 0 is somebody; -1 is nobody."""
    core, _, _ = downloading()
    assert kinds(reply(core, 2, chunk(leader_id=-1))) == [WriteSnapshotChunk]
    core, _, _ = downloading()
    reply(core, 2, chunk(leader_id=0))
    assert core.state.refused == {"two leaders": 1}


def test_an_answer_of_another_topic_or_of_two_partitions_is_misplaced() -> None:
    whole = chunk()
    (topic,) = whole.topics
    for topics in (
        (attrs.evolve(topic, name="other"),),
        (attrs.evolve(topic, partitions=topic.partitions * 2),),
        (attrs.evolve(topic, partitions=()),),
        (attrs.evolve(topic, partitions=(attrs.evolve(topic.partitions[0], index=7),)),),
    ):
        core, role, download = downloading()
        actions = handle_fetch_snapshot_response(
            core.state, outstanding_to(core, 2), attrs.evolve(whole, topics=topics)
        )
        assert (actions, role.download) == ([], download)
        assert core.state.connections.is_backing_off(2, NOW_MS)


def test_bytes_that_nobody_waits_for_any_more_are_not_written() -> None:
    core, role, _ = downloading()
    role.download = None
    assert handle_fetch_snapshot_response(core.state, outstanding_to(core, 2), chunk()) == []


def test_a_leader_that_only_says_that_something_is_wrong_is_left_alone_and_asked_by_fetch() -> None:
    core, role, download = downloading()
    unknown = FetchSnapshotResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    for count in range(1, REFUSALS_MAX + 1):
        role.download = download
        actions = handle_fetch_snapshot_response(core.state, outstanding_to(core, 2), unknown)
        assert core.state.connections.is_backing_off(2, NOW_MS)
        assert role.download is None
        assert actions == ([DropSnapshotDownload()] if count == REFUSALS_MAX else [])
    assert handle_fetch_snapshot_response(core.state, outstanding_to(core, 2), unknown) == [], "there is none"


def test_whoever_keeps_nothing_drops_nothing() -> None:
    core, role = following()
    assert drop_download(core.state, role) == []


# --- from another source than before ---------------------------------------------------------------------------------


def unproven(**more: Any) -> tuple[Replica, Follower, Download]:
    """One whose 4 bytes came from 3, and which asks 2 what its first 4 bytes come to."""
    download = Download(snapshot_id=SNAPSHOT, source_epoch=4, position=4, size=8, unproven=True, digest=b"hash", **more)
    return downloading(download)


def test_a_hash_of_something_else_than_is_there_now_is_none() -> None:
    for event in (DownloadHashed(OTHER, 4, b"x"), DownloadHashed(SNAPSHOT, 3, b"x")):
        core, _, download = downloading(
            Download(snapshot_id=SNAPSHOT, source_epoch=4, position=4, size=8, unproven=True)
        )
        core.handle(event, NOW_MS)
        assert download.digest is None
        core.state.kept = None
        assert DropSnapshotDownload not in kinds(core.handle(DownloadHashed(SNAPSHOT, 4, b"x"), NOW_MS))


def test_the_same_bytes_say_that_the_leader_lives_and_are_its_own_from_now_on() -> None:
    core, role, download = unproven()
    role.fetch_deadline_ms = NOW_MS + 7
    core.state.connections.failed(2, 0, 1)
    outstanding = outstanding_to(core, 2)
    assert handle_snapshot_hash_response(core.state, outstanding, SnapshotHashResponse(size=8, digest=b"hash")) == []
    assert (download.unproven, download.source_epoch) == (False, 5)
    assert role.fetch_deadline_ms == NOW_MS + core.state.config.fetch_timeout_ms
    assert core.state.connections.failures(2) == 0


def test_a_hash_that_was_asked_for_another_position_is_no_answer() -> None:
    core, role, download = unproven()
    outstanding = outstanding_to(core, 2)
    download.position = 5
    for digest in (b"hash", b"other"):
        answer = SnapshotHashResponse(size=8, digest=digest)
        assert handle_snapshot_hash_response(core.state, outstanding, answer) == []
        assert role.download is download
        assert download.unproven


def test_an_error_proves_nothing_whatever_comes_with_it() -> None:
    core, role, download = unproven()
    refused = SnapshotHashResponse(error_code=ErrorCode.SNAPSHOT_NOT_FOUND, size=8, digest=b"hash")
    handle_snapshot_hash_response(core.state, outstanding_to(core, 2), refused)
    assert role.download == core.state.kept == Download(snapshot_id=SNAPSHOT, source_epoch=5)
    assert role.download is not download


def test_a_beginning_anew_is_for_the_same_purpose() -> None:
    for fills in (True, False):
        core, role, _ = unproven(fills=fills)
        handle_snapshot_hash_response(core.state, outstanding_to(core, 2), SnapshotHashResponse(size=8, digest=b"no"))
        assert role.download is not None
        assert (role.download.fills, role.download.position) == (fills, 0)


def test_what_is_proved_already_or_not_wanted_any_more_is_left_as_it_is() -> None:
    core, role, download = unproven()
    outstanding = outstanding_to(core, 2)
    download.unproven = False
    handle_snapshot_hash_response(core.state, outstanding, SnapshotHashResponse(size=8, digest=b"no"))
    handle_snapshot_hash_failed(core.state, outstanding)
    assert role.download is download
    assert core.state.connections.is_backing_off(2, NOW_MS)
    role.download = None
    assert handle_snapshot_hash_response(core.state, outstanding, SnapshotHashResponse()) == []
    assert handle_snapshot_hash_failed(core.state, outstanding) == []
    tell(core, begin_request(epoch=6, leader_id=3))
    resigned = follower(1, epoch=5, leader_id=1)
    assert handle_snapshot_hash_response(resigned.state, outstanding, SnapshotHashResponse()) == []
    assert handle_snapshot_hash_failed(resigned.state, outstanding) == []


# --- what the disk says ----------------------------------------------------------------------------------------------


def test_what_is_written_counts_for_the_snapshot_that_it_is_of() -> None:
    core, role, download = downloading()
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
    core, role, _ = downloading()
    core.state.connections.forget()
    core.state.connections.back_off(2, NOW_MS + 1_000)
    assert core.handle(SnapshotChunkWritten(SNAPSHOT, 8), NOW_MS) == [InstallSnapshot(SNAPSHOT)]
    assert role.writing_chunk
    core, role, _ = downloading()
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


def adopted(**more: Any) -> SnapshotAdopted:
    controls: tuple[Any, ...] = (voter_set(1, 2, 3).to_record(),)
    return SnapshotAdopted(
        snapshot_id=OffsetAndEpoch(offset=5, epoch=2),
        controls=controls,
        holes=more.get("holes", ()),
        control_batches=(),
    )


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
    core, role, _ = downloading()
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
    core, role, _ = downloading()
    core.state.connections.forget()
    role.writing_chunk = True
    assert core.handle(SnapshotRefused(SNAPSHOT, "no footer"), NOW_MS) == []
    assert (core.state.kept, role.download, role.writing_chunk) == (None, None, False)
    assert core.state.connections.failures(2) == 1
    alone = follower(1, epoch=5, leader_id=1, kept=Download(snapshot_id=SNAPSHOT, source_epoch=5))
    alone.handle(SnapshotRefused(SNAPSHOT, "no footer"), alone.state.now_ms)
    assert alone.state.kept is None


def test_endpoints_of_the_leader_are_those_of_our_listener() -> None:
    core, role, download = downloading()
    core.state.connections.forget()
    role.leader_endpoints = {LISTENER: Endpoint("elsewhere", 1), "ANOTHER": place(2)}
    (asked,) = fetch_chunk(core.state, role, download)
    assert isinstance(asked, SendRequest)
    assert asked.endpoint == Endpoint("elsewhere", 1)
    assert ReplicaKey(asked.destination) == ReplicaKey(2)
