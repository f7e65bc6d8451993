"""A snapshot instead of the log, the follower's side (KIP-630, FetchSnapshot)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import (
    DropSnapshotDownload,
    HashDownload,
    SendResponse,
    SendSnapshotHash,
)
from kraftlib.consensus.events import (
    DownloadHashed,
    Failure,
    RequestFailed,
    TimeoutReached,
)
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Download
from kraftlib.types import BOOTSTRAP_SNAPSHOT
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest, SnapshotHashResponse
from tests.consensus.build import (
    SNAPSHOT,
    asked_for,
    begin_request,
    fetch_response,
    follower,
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
        core,
        leader_id,
        fetch_response(epoch=epoch, leader_id=leader_id, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)),
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
