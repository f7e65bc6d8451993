"""SnapshotHash, both sides: have two replicas the same bytes of a snapshot? (Beyond Kafka.)

Snapshots of one id differ between replicas. A download that was begun with one leader goes on with another one only
where the bytes so far, and their number in all, are the same. Every holder of a snapshot answers, leader or not.
"""

from __future__ import annotations

from typing import Any

from kraftlib.codec.declared import Message
from kraftlib.consensus.actions import Action, SendResponse, SendSnapshotHash
from kraftlib.consensus.deadlines import restart_fetch_timer
from kraftlib.consensus.events import DownloadHashed, Failure, RequestReceived
from kraftlib.consensus.extensions.upstreams import is_source
from kraftlib.consensus.outstanding import Outstanding
from kraftlib.consensus.requests import back_off, send
from kraftlib.consensus.responses import cluster_error
from kraftlib.consensus.roles import Download, Follower
from kraftlib.consensus.state import ReplicaState, logger
from kraftlib.types import BOOTSTRAP_SNAPSHOT, Endpoint, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest, SnapshotHashResponse


def handle_snapshot_hash(state: ReplicaState, event: RequestReceived[SnapshotHashRequest]) -> list[Action]:
    """Say what the first bytes of one of our snapshots are; any replica that holds it may be asked, leader or not."""
    request = event.request
    snapshot_id = OffsetAndEpoch(offset=request.end_offset, epoch=request.epoch)
    error = cluster_error(state, request.cluster_id)
    if error is ErrorCode.NONE and (snapshot_id == BOOTSTRAP_SNAPSHOT or snapshot_id not in state.log.snapshots):
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    if error is ErrorCode.NONE and request.position < 1:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    if error is not ErrorCode.NONE:
        return [SendResponse(event.request_id, SnapshotHashResponse(error_code=error))]
    return [SendSnapshotHash(event.request_id, snapshot_id, request.position)]


def ask_for_hash(state: ReplicaState, download: Download, destination: int, place: Endpoint) -> list[Action]:
    if download.digest is None:
        return []  # our own bytes are being hashed
    request = SnapshotHashRequest(
        cluster_id=state.cluster_id,
        replica_id=state.key.id,
        end_offset=download.snapshot_id.offset,
        epoch=download.snapshot_id.epoch,
        position=download.position,
    )
    return [send(state, destination, place, request)]


def handle_download_hashed(state: ReplicaState, event: DownloadHashed) -> list[Action]:
    """Our own bytes are hashed: now the leader may be asked for its."""
    download = state.kept
    if download is not None and (download.snapshot_id, download.position) == (event.snapshot_id, event.position):
        download.digest = event.digest
    return []


def handle_snapshot_hash_response(
    state: ReplicaState, outstanding: Outstanding[SnapshotHashRequest], response: SnapshotHashResponse
) -> list[Action]:
    """Go on if the leader has the same bytes so far, and as many in all; else begin at 0 with its own."""
    state.connections.succeeded(outstanding.destination)
    role, download = state.role_state, _unproven(state, outstanding)
    if not isinstance(role, Follower) or download is None:
        return []
    asked = outstanding.request
    asked_id = OffsetAndEpoch(offset=asked.end_offset, epoch=asked.epoch)
    if (asked_id, asked.position) != (download.snapshot_id, download.position):
        return []  # of another download
    same = response.error_code == ErrorCode.NONE and response.size == download.size
    if same and download.digest and response.digest == download.digest:
        download.unproven, download.source_epoch = False, state.epoch
        restart_fetch_timer(state, role)
    else:
        _begin_anew(state, role, download)
    return []


def handle_snapshot_hash_failed(
    state: ReplicaState, outstanding: Outstanding[Message], failure: Failure
) -> list[Action]:
    """The leader was not reached in time, or is none of ours: its bytes cannot be compared."""
    back_off(state, outstanding)
    role, download = state.role_state, _unproven(state, outstanding)
    if isinstance(role, Follower) and download is not None:
        _begin_anew(state, role, download)
    return []


def _unproven(state: ReplicaState, outstanding: Outstanding[Any]) -> Download | None:
    """Return the download whose bytes are to be proved by the replica that was asked, if it still is its source."""
    role = state.role_state
    download = role.download if isinstance(role, Follower) else None
    is_wanted = download is not None and download.unproven and is_source(download, outstanding.destination)
    return download if is_wanted else None


def _begin_anew(state: ReplicaState, role: Follower, download: Download) -> None:
    snapshot_id = download.snapshot_id
    logger.info("%s: snapshot %s begins anew: other bytes at its source", state.id_text, snapshot_id)
    role.download = state.kept = Download(
        snapshot_id=snapshot_id, source_epoch=state.epoch, source=download.source, fills=download.fills
    )
