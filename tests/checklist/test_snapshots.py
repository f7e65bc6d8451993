"""Checklist section 9: snapshots, as Kafka's KafkaRaftClientSnapshotTest pins them."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import InstallSnapshot
from kraftlib.consensus.events import SnapshotChunkWritten, TimeoutReached
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower
from kraftlib.types import BOOTSTRAP_SNAPSHOT, LeaderAndEpoch, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from tests.consensus.build import (
    ask,
    begin_request,
    fetch_response,
    follower,
    leader,
    log_view,
    outstanding_to,
    partition_of,
    place,
    reply,
    snapshot_chunk,
    snapshot_request,
    tell,
    voter_set,
)
from tests.runtime.test_applier import Recorder, Rig


def snapshot(offset: int, epoch: int) -> OffsetAndEpoch:
    """The id of a snapshot."""
    return OffsetAndEpoch(offset=offset, epoch=epoch)


SNAPSHOT = snapshot(10, 1)


def log_behind_snapshot(*epochs: int, snapshots: tuple[OffsetAndEpoch, ...] = (SNAPSHOT,)) -> LogView:
    """A log that begins at the end of a snapshot."""
    return log_view(*epochs, start=10, snapshots=snapshots, voters=voter_set(1, 2, 3))


# --- what is reported ------------------------------------------------------------------------------------------------


# --- listeners -------------------------------------------------------------------------------------------------------


@pytest.fixture
def feeds() -> Rig:
    """An applier whose log begins with a snapshot at offset 10."""
    rig = Rig()
    rig.log.install_snapshot(rig.snapshot(10, 1, b"state"))
    return rig


def test_a_listener_behind_the_log_gets_the_snapshot_once_it_is_committed(feeds: Rig) -> None:
    """testLeaderListenerNotified, testFollowerListenerNotified."""
    feeds.append(b"a")
    listener = Recorder()
    feeds.applier.register(listener)
    feeds.run()
    assert listener.heard == [], "the high watermark is not known yet"
    feeds.applier.advance(11)
    feeds.run()

    assert listener.heard == [("snapshot", SNAPSHOT, [b"state"]), ("commit", 10, 10)]


def test_a_second_listener_gets_the_snapshot_too(feeds: Rig) -> None:
    """testSecondListenerNotified."""
    first, second = Recorder(), Recorder()
    feeds.applier.register(first)
    feeds.applier.advance(10)
    feeds.run()
    feeds.applier.register(second)
    feeds.run()

    assert first.heard == second.heard == [("snapshot", SNAPSHOT, [b"state"])]


def test_a_listener_that_falls_behind_again_gets_the_next_snapshot(feeds: Rig) -> None:
    """testListenerRenotified."""
    listener = Recorder()
    feeds.applier.register(listener)
    feeds.applier.advance(10)
    feeds.run()
    feeds.log.install_snapshot(feeds.snapshot(20, 2, b"newer"))
    feeds.applier.advance(20)
    feeds.run()

    assert listener.heard == [("snapshot", SNAPSHOT, [b"state"]), ("snapshot", snapshot(20, 2), [b"newer"])]


# --- Fetch is answered with a snapshot -------------------------------------------------------------------------------


# --- FetchSnapshot, the leader ---------------------------------------------------------------------------------------


NOT_SENT: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "testFetchSnapshotRequestMissingSnapshot": ({"snapshot_id": snapshot(11, 1)}, ErrorCode.SNAPSHOT_NOT_FOUND),
    "testFetchSnapshotRequestBootstrapSnapshot": ({"snapshot_id": BOOTSTRAP_SNAPSHOT}, ErrorCode.SNAPSHOT_NOT_FOUND),
    "testFetchSnapshotRequestUnknownPartition": ({"topic": "other"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "testFetchSnapshotRequestWithInvalidPosition": ({"position": -1}, ErrorCode.POSITION_OUT_OF_RANGE),
    "testFetchSnapshotRequestWithOlderEpoch": ({"epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
    "testFetchSnapshotRequestWithNewerEpoch": ({"epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
}


@pytest.mark.parametrize(("changes", "error"), NOT_SENT.values(), ids=NOT_SENT)
def test_a_snapshot_that_cannot_be_sent_is_said_so(changes: dict[str, Any], error: ErrorCode) -> None:
    """With empty records."""
    core = leader(log=log_behind_snapshot(1, snapshots=(BOOTSTRAP_SNAPSHOT, SNAPSHOT)))
    partition = partition_of(ask(core, snapshot_request(**({"snapshot_id": SNAPSHOT, "epoch": core.epoch} | changes))))

    assert (partition.error_code, partition.unaligned_records) == (error, b"")
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, core.epoch)


def test_a_follower_sends_no_snapshot_and_names_the_leader() -> None:
    """testFetchSnapshotRequestAsFollower."""
    core = follower(epoch=5, leader_id=3, log=log_behind_snapshot(1))
    response = ask(core, snapshot_request(SNAPSHOT, epoch=5))
    partition = partition_of(response)

    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (3, 5)
    assert [(node.node_id, node.port) for node in response.node_endpoints] == [(3, place(3).port)]


# --- FetchSnapshot, the follower -------------------------------------------------------------------------------------


def chunk(data: bytes = b"", *, snapshot_id: OffsetAndEpoch = SNAPSHOT, **more: Any) -> FetchSnapshotResponse:
    """An answer to FetchSnapshot."""
    return snapshot_chunk(data, snapshot_id=snapshot_id, **more)


def downloading() -> Replica:
    """A follower of 2 in epoch 5 that was just told of a snapshot."""
    core = follower(1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(SNAPSHOT.offset, SNAPSHOT.epoch)))
    request = outstanding_to(core, 2).request
    assert isinstance(request, FetchSnapshotRequest)
    assert partition_of(request).position == 0
    return core


def asked_next(core: Replica, *, after_ms: int = 60) -> Any:
    """What a core asks the leader, once it does."""
    core.handle(TimeoutReached(), core.state.now_ms + after_ms)
    return outstanding_to(core, 2).request


@pytest.mark.parametrize("named", [(10, -1), (-1, 1)])
def test_half_a_snapshot_id_is_none_and_no_sign_of_life(named: tuple[int, int]) -> None:
    """testFetchResponseWithInvalidSnapshotId: backed off, and the fetch timer runs on."""
    core = follower(1, epoch=5, leader_id=2)
    response = fetch_response(epoch=5, leader_id=2, snapshot=named)
    reply(core, 2, response, now_ms=1_000)
    role = core.state.role_state

    assert isinstance(role, Follower)
    assert (role.download, role.fetch_deadline_ms) == (None, 2_000)
    assert core.state.connections.is_backing_off(2, 1_000)
    assert isinstance(asked_next(core), FetchRequest)


def test_a_leader_that_is_behind_is_asked_again() -> None:
    """testFetchSnapshotResponseFromOlderEpoch: UNKNOWN_LEADER_EPOCH; the download goes on where it was."""
    core = downloading()
    reply(core, 2, chunk(error=ErrorCode.UNKNOWN_LEADER_EPOCH, epoch=4, leader_id=3))
    request = asked_next(core)

    assert core.leader_and_epoch == LeaderAndEpoch(2, 5)
    assert isinstance(request, FetchSnapshotRequest)
    assert partition_of(request).position == 0


def test_a_snapshot_of_the_former_leader_is_not_installed_under_the_next() -> None:
    """testFetchSnapshotResponseToNotFollower: the other way round, written and not needed any more."""
    core = downloading()
    reply(core, 2, chunk(b"12345678"))
    tell(core, begin_request(epoch=6, leader_id=3))

    assert not [
        action
        for action in core.handle(SnapshotChunkWritten(SNAPSHOT, 8), core.state.now_ms)
        if isinstance(action, InstallSnapshot)
    ]


# --- creating snapshots ----------------------------------------------------------------------------------------------
