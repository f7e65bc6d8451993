"""A snapshot instead of the log, the follower's side (KIP-630, FetchSnapshot)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import DropSnapshotDownload, HashDownload, SendResponse, SendSnapshotHash
from kraftlib.consensus.events import DownloadHashed, Failure, RequestFailed, TimeoutReached
from kraftlib.consensus.extensions.snapshot_hash import handle_snapshot_hash_failed, handle_snapshot_hash_response
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Download, Follower
from kraftlib.types import BOOTSTRAP_SNAPSHOT
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest, SnapshotHashResponse
from tests.consensus.build import (
    NOW_MS,
    OTHER,
    SNAPSHOT,
    asked_for,
    begin_request,
    fetch_response,
    follower,
    half_downloaded,
    interrupted,
    kinds,
    log_view,
    outstanding_to,
    partition_of,
    reply,
    requests,
    tell,
    voter_set,
)


def follow(core: Replica, leader_id: int, *, epoch: int = 6) -> list[Any]:
    """Let the core hear of a leader, and that one name the snapshot."""
    tell(core, begin_request(epoch=epoch, leader_id=leader_id))
    return reply(
        core, leader_id, fetch_response(epoch=epoch, leader_id=leader_id, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch))
    )


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


def test_a_hash_that_never_comes_proves_nothing() -> None:
    core = interrupted()
    follow(core, 3)
    core.handle(DownloadHashed(SNAPSHOT, 4, b"hash"), core.state.now_ms)
    core.state.role_state.fetch_deadline_ms = 100_000  # type: ignore[union-attr]
    core.handle(TimeoutReached(), core.state.now_ms + core.state.config.request_timeout_ms)
    core.handle(TimeoutReached(), core.state.now_ms + 100)

    assert partition_of(asked_for(core, 3)).position == 0


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


def unproven(**more: Any) -> tuple[Replica, Follower, Download]:
    """One whose 4 bytes came from 3, and which asks 2 what its first 4 bytes come to."""
    download = Download(snapshot_id=SNAPSHOT, source_epoch=4, position=4, size=8, unproven=True, digest=b"hash", **more)
    return half_downloaded(download)


def test_a_hash_of_something_else_than_is_there_now_is_none() -> None:
    for event in (DownloadHashed(OTHER, 4, b"x"), DownloadHashed(SNAPSHOT, 3, b"x")):
        core, _, download = half_downloaded(
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
    handle_snapshot_hash_failed(core.state, outstanding, Failure.TIMED_OUT)
    assert role.download is download
    assert core.state.connections.is_backing_off(2, NOW_MS)
    role.download = None
    assert handle_snapshot_hash_response(core.state, outstanding, SnapshotHashResponse()) == []
    assert handle_snapshot_hash_failed(core.state, outstanding, Failure.TIMED_OUT) == []
    tell(core, begin_request(epoch=6, leader_id=3))
    resigned = follower(1, epoch=5, leader_id=1)
    assert handle_snapshot_hash_response(resigned.state, outstanding, SnapshotHashResponse()) == []
    assert handle_snapshot_hash_failed(resigned.state, outstanding, Failure.TIMED_OUT) == []
