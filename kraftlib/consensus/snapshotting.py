"""The snapshots that a replica has: it sends them to others, and lets them stand in for what its log had (KIP-630).

A leader sends the bytes of one in chunks (FetchSnapshot); whoever holds one says what its first bytes come to
(SnapshotHash, between replicas of ours). How a follower fetches one is told in `downloading`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftlib.consensus import answers
from kraftlib.consensus.actions import (
    Action,
    DeleteBefore,
    FlushLog,
    SendResponse,
    SendSnapshotChunk,
    SendSnapshotHash,
    SetSnapshotAside,
)
from kraftlib.consensus.checks import cluster_error, leader_only_error, refuse_request
from kraftlib.consensus.contact import note_contact
from kraftlib.consensus.events import (
    RequestReceived,
    RetentionDue,
    SnapshotCreated,
    SnapshotDamaged,
    SnapshotLost,
    StorageFailed,
)
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.repairing import handle_storage_failed
from kraftlib.consensus.roles import Leader
from kraftlib.consensus.state import ReplicaState, log
from kraftlib.types import BOOTSTRAP_SNAPSHOT, METADATA_TOPIC, ZERO_UUID, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest, SnapshotHashResponse

MAX_BYTES_LIMIT = 8 * 1024 * 1024
"""Never more than this in one answer, whatever is asked for."""


def handle_fetch_snapshot(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """Answer a FetchSnapshot with a slice of the file. It is a sign of life, but no progress of the follower's log."""
    request: FetchSnapshotRequest = event.request
    error = cluster_error(state, request.cluster_id)
    if error is not ErrorCode.NONE:
        return refuse_request(state, event, error)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return refuse_request(state, event, ErrorCode.INVALID_REQUEST)
    topic = request.topics[0]
    partition = topic.partitions[0]
    snapshot_id = OffsetAndEpoch(offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch)
    error = leader_only_error(state, partition.current_leader_epoch)
    if topic.name != METADATA_TOPIC or partition.partition != 0:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif error is ErrorCode.NONE and (snapshot_id == BOOTSTRAP_SNAPSHOT or snapshot_id not in state.log.snapshots):
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    elif error is ErrorCode.NONE and partition.position < 0:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    response = answers.fetch_snapshot(
        state,
        error=error,
        snapshot_id=snapshot_id,
        position=partition.position,
        topic_name=topic.name,
        version=event.version,
    )
    role = state.role_state
    if error is not ErrorCode.NONE or not isinstance(role, Leader):
        return [SendResponse(event.request_id, response)]
    if request.replica_id >= 0:
        directory_id = partition.replica_directory_id
        key = ReplicaKey(request.replica_id, None if directory_id == ZERO_UUID else directory_id)
        note_contact(state, role, key)
        if key in state.voters and key.id in role.progress:
            role.progress[key.id].moved_ms = state.now_ms
    role.sent[snapshot_id] = state.now_ms
    max_bytes = min(max(request.max_bytes, 0), MAX_BYTES_LIMIT)
    return [SendSnapshotChunk(event.request_id, response, snapshot_id, partition.position, max_bytes)]


def handle_snapshot_hash(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """Say what the first bytes of one of our snapshots are; whoever holds it may be asked, leader or not."""
    request: SnapshotHashRequest = event.request
    snapshot_id = OffsetAndEpoch(offset=request.end_offset, epoch=request.epoch)
    error = cluster_error(state, request.cluster_id)
    if error is ErrorCode.NONE and (snapshot_id == BOOTSTRAP_SNAPSHOT or snapshot_id not in state.log.snapshots):
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    if error is ErrorCode.NONE and request.position < 1:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    if error is not ErrorCode.NONE:
        return [SendResponse(event.request_id, SnapshotHashResponse(error_code=error))]
    return [SendSnapshotHash(event.request_id, snapshot_id, request.position)]


def handle_snapshot_created(state: ReplicaState, event: SnapshotCreated) -> list[Action]:
    """The application froze a snapshot: from now on it may be sent to others.

    Where the beginning of the log is missing, it stands in for it. One that the log has passed while it was written is
    needless, and the storage drops it.
    """
    log, snapshot_id = state.log, event.snapshot_id
    if _has_passed(log, snapshot_id):
        return []
    log.add_snapshot(snapshot_id)
    lacks_beginning = bool(log.holes) and log.holes[0].start_offset == log.start_offset
    if not lacks_beginning or not log.is_whole_before(snapshot_id) or snapshot_id.offset > state.committed_offset:
        return []
    return _begin_log_at(state, snapshot_id)


def _has_passed(view: LogView, snapshot_id: OffsetAndEpoch) -> bool:
    """Whether the log begins behind this snapshot, or at its offset with another one."""
    start_offset = view.start_offset
    begins_with_another = any(kept.offset == start_offset and kept != snapshot_id for kept in view.snapshots)
    return snapshot_id.offset < start_offset or (snapshot_id.offset == start_offset and begins_with_another)


def handle_snapshot_damaged(state: ReplicaState, event: SnapshotDamaged) -> list[Action]:
    """It is sent to nobody any more, nor loaded, and nothing goes on its word."""
    if event.snapshot_id not in state.log.snapshots:
        return []
    state.log.lose_snapshot(event.snapshot_id)
    return [SetSnapshotAside(event.snapshot_id, event.reason)]


def handle_snapshot_lost(state: ReplicaState, event: SnapshotLost) -> list[Action]:
    """Another snapshot stands in, or the log does from its very beginning; else something is missing there."""
    state.log.start_offset = event.start_offset
    state.log.epoch_starts = list(event.epoch_starts)
    state.log.lose_snapshot(event.snapshot_id)
    if event.holes == tuple(state.log.holes):
        return []
    return handle_storage_failed(state, StorageFailed(event.holes))


def handle_retention_due(state: ReplicaState, event: RetentionDue) -> list[Action]:
    """Let the log begin at the end of a snapshot, if that is stored and committed. The flush removes the files.

    A snapshot that is being sent stays until that is done, or whoever fetches more slowly than new ones are taken would
    never have one; but a full disk does not wait.
    """
    # A log that has lost its end may be behind a snapshot of its own.
    reached = min(state.committed_offset, state.log.end_offset)
    stored = event.snapshot_id in state.log.snapshots and event.snapshot_id.offset <= reached
    if not stored or event.snapshot_id == state.log.snapshots[0]:
        return []
    if state.log.holes and not state.log.is_whole_before(event.snapshot_id):
        return []
    if not state.disk_full and any(snapshot_id < event.snapshot_id for snapshot_id in _being_sent(state)):
        return []
    return _begin_log_at(state, event.snapshot_id)


def _being_sent(state: ReplicaState) -> Iterable[OffsetAndEpoch]:
    """Return the snapshots that somebody asked for within the last fetch timeout."""
    role = state.role_state
    if not isinstance(role, Leader):
        return ()
    earliest_ms = state.now_ms - state.config.fetch_timeout_ms
    role.sent = {snapshot_id: at_ms for snapshot_id, at_ms in role.sent.items() if at_ms > earliest_ms}
    return role.sent


def _begin_log_at(state: ReplicaState, snapshot_id: OffsetAndEpoch) -> list[Action]:
    """Let what the snapshot replaces go, with what is missing of it."""
    holes = list(state.log.holes)
    state.log.delete_before(snapshot_id)
    if state.log.holes != holes:
        state.filling = None
        log.warning("%s: snapshot %s stands in for what was missing", state.id_text, snapshot_id)
    return [DeleteBefore(snapshot_id), FlushLog(state.log.log_version)]
