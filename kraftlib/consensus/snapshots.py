"""The snapshots that a replica has stored: when the log begins at one, and the consequences when one is lost
(KIP-630)."""

from __future__ import annotations

from collections.abc import Iterable

from kraftlib.consensus.actions import Action, DeleteBefore, FlushLog, SetSnapshotAside
from kraftlib.consensus.events import RetentionDue, SnapshotCreated, SnapshotDamaged, SnapshotLost, StorageFailed
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.repair import handle_storage_failed
from kraftlib.consensus.state import ReplicaState, logger
from kraftlib.types import OffsetAndEpoch


def handle_snapshot_created(state: ReplicaState, event: SnapshotCreated) -> list[Action]:
    """The application froze a snapshot: from now on it may be sent to others.

    Where the beginning of the log is missing, it stands in for it. One that the log has passed while it was written is
    needless, and the storage drops it.
    """
    log, snapshot_id = state.log, event.snapshot_id
    if _has_passed(log, snapshot_id):
        return []
    if state.digests.quarantine is not None:  # it was begun before the state was found to be wrong
        if snapshot_id in log.snapshots:
            return []  # the storage keeps the one that is there, and that one is the leader's
        return [SetSnapshotAside(snapshot_id, "the state of this replica differs from that of the majority")]
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
    """It is not sent or loaded any more, and nothing relies on it."""
    if event.snapshot_id not in state.log.snapshots:
        return []
    state.log.lose_snapshot(event.snapshot_id)
    return [SetSnapshotAside(event.snapshot_id, event.reason)]


def handle_snapshot_lost(state: ReplicaState, event: SnapshotLost) -> list[Action]:
    """Another snapshot stands in, or the log does from its very beginning; else something is missing there."""
    state.log.start_offset = event.start_offset
    state.log.epoch_starts = list(event.epoch_starts)
    state.log.lose_snapshot(event.snapshot_id)
    quarantine = state.digests.quarantine
    if quarantine is not None and event.snapshot_id.offset >= quarantine.offset:
        quarantine.is_loading = False  # it may have been the one that was to heal the state
    if event.holes == tuple(state.log.holes):
        return []
    return handle_storage_failed(state, StorageFailed(event.holes))


def handle_retention_due(state: ReplicaState, event: RetentionDue) -> list[Action]:
    """Let the log begin at the end of a snapshot, if that is stored and committed. The flush removes the files.

    A snapshot that is being sent stays until that is done, for those who fetch slowly; a full disk does not wait.
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
    """Return the snapshots that a replica asked for within the last fetch timeout."""
    earliest_ms = state.now_ms - state.config.fetch_timeout_ms
    state.sent = {snapshot_id: at_ms for snapshot_id, at_ms in state.sent.items() if at_ms > earliest_ms}
    return state.sent


def _begin_log_at(state: ReplicaState, snapshot_id: OffsetAndEpoch) -> list[Action]:
    """Drop the records that the snapshot replaces, and the missing ranges among them."""
    holes = list(state.log.holes)
    state.log.delete_before(snapshot_id)
    if state.log.holes != holes:
        state.filling = None
        logger.warning("%s: snapshot %s stands in for the missing records", state.id_text, snapshot_id)
    return [DeleteBefore(snapshot_id), FlushLog(state.log.log_version)]
