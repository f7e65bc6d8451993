"""The conversation of snapshots: FetchSnapshot, both sides (KIP-630).

A follower whose position lies before the leader's log is told a snapshot id by Fetch. It fetches the file in chunks of
raw bytes, verifies the whole of it, and only then lets it replace its log.
"""

from __future__ import annotations

from kraftlib.consensus import answers
from kraftlib.consensus.actions import (
    Action,
    AdvanceHighWatermark,
    DeleteBefore,
    DropSnapshotDownload,
    FlushLog,
    InstallSnapshot,
    SendResponse,
    SendSnapshotChunk,
    WriteSnapshotChunk,
)
from kraftlib.consensus.checks import (
    Answer,
    back_off,
    cluster_error,
    common_part,
    endpoint_of,
    leader_only_error,
    node_endpoints,
    refuse_request,
    send,
)
from kraftlib.consensus.connections import Outstanding
from kraftlib.consensus.contact import note_contact
from kraftlib.consensus.events import (
    RequestReceived,
    RetentionDue,
    SnapshotChunkWritten,
    SnapshotCreated,
    SnapshotInstalled,
    SnapshotRefused,
)
from kraftlib.consensus.roles import Download, Follower, Leader
from kraftlib.consensus.state import ReplicaState, log
from kraftlib.errors import ensure
from kraftlib.types import BOOTSTRAP_SNAPSHOT, METADATA_TOPIC, ZERO_UUID, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

MAX_BYTES_LIMIT = 8 * 1024 * 1024

# --- the leader's side -----------------------------------------------------------------------------------------------


def handle_fetch_snapshot(state: ReplicaState, event: RequestReceived) -> list[Action]:
    """Answer a FetchSnapshot with a slice of the file. It is a sign of life, but no progress of the follower's log."""
    request: FetchSnapshotRequest = event.request
    error = cluster_error(state, request.cluster_id)
    if error is not ErrorCode.NONE:
        return refuse_request(event, error)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return refuse_request(event, ErrorCode.INVALID_REQUEST)
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
        note_contact(state, role, ReplicaKey(request.replica_id, None if directory_id == ZERO_UUID else directory_id))
    max_bytes = min(max(request.max_bytes, 0), MAX_BYTES_LIMIT)
    return [SendSnapshotChunk(event.request_id, response, snapshot_id, partition.position, max_bytes)]


def handle_snapshot_created(state: ReplicaState, event: SnapshotCreated) -> list[Action]:
    """The application froze a snapshot: from now on it may be sent to others."""
    state.log.add_snapshot(event.snapshot_id)
    return []


def handle_retention_due(state: ReplicaState, event: RetentionDue) -> list[Action]:
    """Let the log begin at the end of a snapshot, if that is stored and committed. The flush removes the files."""
    stored = event.snapshot_id in state.log.snapshots and event.snapshot_id.offset <= state.committed_offset
    if not stored or event.snapshot_id == state.log.snapshots[0]:
        return []
    state.log.delete_before(event.snapshot_id)
    return [DeleteBefore(event.snapshot_id), FlushLog(state.log.log_version)]


# --- the follower's side ---------------------------------------------------------------------------------------------


def begin_download(state: ReplicaState, role: Follower, end_offset: int, epoch: int) -> list[Action] | None:
    """The leader's log begins behind ours: its snapshot is wanted. None: what it names is impossible."""
    if end_offset < 1 or epoch < 0:  # the bootstrap checkpoint ends at 0 and is nobody else's
        state.refuse("impossible snapshot", f"the leader names {end_offset}@{epoch}")
        return None
    snapshot_id = OffsetAndEpoch(offset=end_offset, epoch=epoch)
    if end_offset < state.committed_offset:
        state.refuse("old snapshot", f"the leader names {snapshot_id}, committed here is {state.committed_offset}")
        return None
    log.info("%s: fetching snapshot %s, our log ends at %s", state.id_text, snapshot_id, state.log.end)
    role.download = Download(snapshot_id=snapshot_id)
    return []


def fetch_chunk(state: ReplicaState, role: Follower, download: Download) -> list[Action]:
    """Ask for the next bytes, once the last ones are written."""
    place = endpoint_of(state, role.leader_endpoints)
    if role.writing_chunk or place is None:
        return []
    if not state.connections.is_ready(role.leader_id, state.now_ms):
        return []
    partition = FetchSnapshotRequest.PartitionSnapshot(
        current_leader_epoch=state.epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(
            end_offset=download.snapshot_id.offset, epoch=download.snapshot_id.epoch
        ),
        position=download.position,
        replica_directory_id=state.key.directory_id or ZERO_UUID,
    )
    request = FetchSnapshotRequest(
        cluster_id=state.cluster_id,
        replica_id=state.key.id,
        max_bytes=state.config.snapshot_max_bytes,
        topics=(FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),),
    )
    return [send(state, role.leader_id, place, request)]


def handle_fetch_snapshot_response(
    state: ReplicaState, outstanding: Outstanding, response: FetchSnapshotResponse
) -> list[Action]:
    """Write the bytes, or begin again: Fetch tells whether the snapshot still is the one to have."""
    role = state.role_state
    if response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR and isinstance(role, Follower):
        # All that a Kafka leader can say when it means "gone" or "not leader" (rpcs.md section 8, the trap).
        back_off(state, outstanding)
        return _drop_download(role)
    answer, partition = _read_response(state, response)
    gone = partition is not None and partition.error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    if gone and isinstance(role, Follower) and answer.epoch == state.epoch:
        role.fetch_deadline_ms = state.now_ms + state.config.fetch_timeout_ms
        return _drop_download(role)
    concerns_us, actions = common_part(state, outstanding, answer)
    role = state.role_state
    if not concerns_us or partition is None or not isinstance(role, Follower) or role.download is None:
        return actions
    download = role.download
    snapshot_id = OffsetAndEpoch(offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch)
    data = partition.unaligned_records
    size_is_wrong = partition.size <= 0 or download.position + len(data) > partition.size or not len(data)
    if snapshot_id != download.snapshot_id or partition.position != download.position or size_is_wrong:
        state.refuse(
            "foreign snapshot chunk",
            f"{len(data)} bytes at {partition.position} of {partition.size} of {snapshot_id}, wanted"
            f" {download.position} of {download.snapshot_id}",
        )
        back_off(state, outstanding)
        return [*actions, *_drop_download(role)]
    download.size = partition.size
    role.writing_chunk = True
    role.fetch_deadline_ms = state.now_ms + state.config.fetch_timeout_ms
    role.has_fetched = True
    return [*actions, WriteSnapshotChunk(snapshot_id, download.position, data)]


def _read_response(
    state: ReplicaState, response: FetchSnapshotResponse
) -> tuple[Answer, FetchSnapshotResponse.PartitionSnapshot | None]:
    if response.error_code != ErrorCode.NONE:
        return Answer(top_level_error=response.error_code), None
    topics = response.topics
    if len(topics) != 1 or topics[0].name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return Answer(top_level_error=ErrorCode.NONE, misplaced=True), None
    partition = topics[0].partitions[0]
    leader_id = None if partition.current_leader.leader_id < 0 else partition.current_leader.leader_id
    answer = Answer(
        top_level_error=ErrorCode.NONE,
        error=partition.error_code,
        epoch=partition.current_leader.leader_epoch,
        leader_id=leader_id,
        endpoints=node_endpoints(state, response.node_endpoints, leader_id),
    )
    return answer, partition


def _drop_download(role: Follower) -> list[Action]:
    if role.download is None:
        return []
    role.download = None
    return [DropSnapshotDownload()]


def handle_chunk_written(state: ReplicaState, event: SnapshotChunkWritten) -> list[Action]:
    """Go on at the new position; with the last byte, let the whole be verified and take the log's place."""
    role = state.role_state
    if not isinstance(role, Follower) or role.download is None or role.download.snapshot_id != event.snapshot_id:
        return []
    role.writing_chunk = False
    role.download.position = event.size
    if event.size != role.download.size:
        return []
    role.writing_chunk = True
    return [InstallSnapshot(event.snapshot_id)]


def handle_snapshot_installed(state: ReplicaState, event: SnapshotInstalled) -> list[Action]:
    """The log begins anew at the end of the snapshot, all of which is committed."""
    ensure(event.snapshot_id.offset >= state.committed_offset, f"snapshot {event.snapshot_id} is behind the commits")
    state.log.install(event.snapshot_id, event.controls)
    state.high_watermark = state.committed_offset = event.snapshot_id.offset
    role = state.role_state
    if isinstance(role, Follower):
        role.download = None
        role.writing_chunk = False
        role.fetch_deadline_ms = state.now_ms + state.config.fetch_timeout_ms
    return [AdvanceHighWatermark(event.snapshot_id.offset)]


def handle_snapshot_refused(state: ReplicaState, event: SnapshotRefused) -> list[Action]:
    """What came did not verify: nothing was replaced. Fetch again, and begin at 0."""
    state.refuse("damaged snapshot", f"{event.snapshot_id}: {event.reason}")
    role = state.role_state
    if isinstance(role, Follower):
        role.download = None
        role.writing_chunk = False
        state.connections.failed(role.leader_id, state.now_ms, state.jittered_backoff_ms())
    return []
