"""FetchSnapshot, both sides: a follower that lies before its leader's log fetches a snapshot instead (KIP-630).

A Fetch tells it a snapshot id. It fetches the file in chunks of raw bytes, verifies the whole of it, and only then lets
it replace its log. The received bytes are kept when the leader or the follower's own process ends, and the download
goes on once the leader's bytes so far have proved to be the same (`extensions.snapshot_hash`).
"""

from __future__ import annotations

from kraftlib.codec.declared import Message
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus import responses
from kraftlib.consensus.actions import Action
from kraftlib.consensus.deadlines import note_contact, note_sign_of_life, restart_fetch_timer
from kraftlib.consensus.extensions.downstream import may_serve
from kraftlib.consensus.extensions.quarantine import reload_state
from kraftlib.consensus.extensions.snapshot_hash import ask_for_hash
from kraftlib.consensus.extensions.upstreams import MARK, REFUSALS, is_source, is_upstream, leave, source_of
from kraftlib.consensus.outstanding import Outstanding
from kraftlib.consensus.received import refuses_snapshot
from kraftlib.consensus.requests import back_off, common_part, read_answer, send
from kraftlib.consensus.responses import cluster_error, leader_only_error, only_partition, refuse_request
from kraftlib.consensus.roles import Download, Follower, Leader
from kraftlib.consensus.state import ReplicaState, logger
from kraftlib.errors import ensure
from kraftlib.types import BOOTSTRAP_SNAPSHOT, METADATA_TOPIC, ZERO_UUID, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

MAX_BYTES_LIMIT = 8 * 1024 * 1024
"""The limit of one answer, even if a request asks for more."""

BEGIN_ANEW = (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)
"""Errors after which a Fetch, a little later, tells what snapshot to have from its beginning."""

REFUSALS_MAX = 3
"""After so many answers in a row that say nothing, the download begins anew: its position may be what is wrong."""

LIMITED_BYTES_MIN = 4 * 1024
"""The least that is asked for at once where the rate is limited."""


# --- the leader's side ------------------------------------------------------------------------------------------------


def handle_fetch_snapshot(state: ReplicaState, event: ev.RequestReceived[FetchSnapshotRequest]) -> list[Action]:
    """Answer a FetchSnapshot with a slice of the file. It is a sign of life, but no progress of the follower's log."""
    request = event.request
    error = cluster_error(state, request.cluster_id)
    if error is not ErrorCode.NONE:
        return refuse_request(state, event, error)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return refuse_request(state, event, ErrorCode.INVALID_REQUEST)
    topic = request.topics[0]
    partition = topic.partitions[0]
    snapshot_id = OffsetAndEpoch(offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch)
    error = leader_only_error(state, partition.current_leader_epoch)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and may_serve(state, request, partition.current_leader_epoch):
        error = ErrorCode.NONE
    if topic.name != METADATA_TOPIC or partition.partition != 0:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif error is ErrorCode.NONE and (snapshot_id == BOOTSTRAP_SNAPSHOT or snapshot_id not in state.log.snapshots):
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    elif error is ErrorCode.NONE and partition.position < 0:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    response = responses.fetch_snapshot(
        state,
        error=error,
        snapshot_id=snapshot_id,
        position=partition.position,
        topic_name=topic.name,
        version=event.version,
    )
    role = state.role_state
    if error is not ErrorCode.NONE:
        return [act.SendResponse(event.request_id, response)]
    if isinstance(role, Leader) and request.replica_id >= 0:
        key = ReplicaKey.of(request.replica_id, partition.replica_directory_id)
        note_contact(state, role, key)
        if key in state.voters and key.id in role.progress:
            role.progress[key.id].moved_ms = state.now_ms
    state.sent[snapshot_id] = state.now_ms
    max_bytes, asker = min(max(request.max_bytes, 0), MAX_BYTES_LIMIT), request.replica_id
    return [act.SendSnapshotChunk(event.request_id, response, snapshot_id, partition.position, max_bytes, asker)]


# --- the follower's side ----------------------------------------------------------------------------------------------


def begin_download(
    state: ReplicaState, role: Follower, end_offset: int, epoch: int, source: int | None = None
) -> list[Action] | None:
    """The log of the leader, or of the upstream `source`, begins behind ours: its snapshot is wanted.

    None: it cannot be taken.
    """
    snapshot_id = OffsetAndEpoch(offset=end_offset, epoch=epoch)
    fills = state.filling is not None and state.log.may_begin_at(snapshot_id)
    if refuses_snapshot(state, snapshot_id, fills=fills):
        return None
    kept = state.kept
    if kept is None or kept.snapshot_id != snapshot_id or kept.size is None or not kept.position:
        logger.info("%s: fetching snapshot %s, our log ends at %s", state.id_text, snapshot_id, state.log.end)
        role.download = state.kept = Download(
            snapshot_id=snapshot_id, source_epoch=state.epoch, source=source, fills=fills
        )
        return []
    kept.fills = fills
    logger.info("%s: snapshot %s goes on at %d of %d bytes", state.id_text, snapshot_id, kept.position, kept.size)
    role.download = kept
    if (kept.source_epoch, kept.source) != (state.epoch, source):
        kept.source_epoch = None  # until this source has proved to have the same bytes, however often it is asked
    kept.unproven, kept.digest, kept.source = kept.source_epoch is None and kept.position < kept.size, None, source
    return [act.HashDownload(snapshot_id, kept.position)] if kept.unproven else []


def fetch_chunk(state: ReplicaState, role: Follower, download: Download) -> list[Action]:
    """Ask for the next bytes, once the last ones are written and their source is the leader's file."""
    destination, place = source_of(state, role)
    if role.writing_chunk or place is None or state.now_ms < download.not_before_ms:
        return []
    if not download.unproven and download.position == download.size:
        return _use(state, role, download)
    if not state.connections.is_ready(destination, state.now_ms):
        return []
    if download.unproven:
        return ask_for_hash(state, download, destination, place)
    anonymous = state.amnesia is not None  # it keeps no leader in office
    partition = FetchSnapshotRequest.PartitionSnapshot(
        current_leader_epoch=state.epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(
            end_offset=download.snapshot_id.offset, epoch=download.snapshot_id.epoch
        ),
        position=download.position,
        replica_directory_id=ZERO_UUID if anonymous else state.key.directory_id or ZERO_UUID,
    )
    request = FetchSnapshotRequest(
        cluster_id=state.cluster_id,
        replica_id=-1 if anonymous else state.key.id,
        max_bytes=_bytes_at_once(state),
        topics=(FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),),
        unknown_tagged_fields=MARK if is_upstream(destination) else (),
    )
    return [send(state, destination, place, request)]


def handle_fetch_snapshot_response(
    state: ReplicaState, outstanding: Outstanding[Message], response: FetchSnapshotResponse
) -> list[Action]:
    """Write the bytes, or begin again: Fetch tells whether the snapshot still is the one to have."""
    role, is_of_source = state.role_state, is_source(state.kept, outstanding.destination)
    if response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR and isinstance(role, Follower):
        # All that a Kafka leader can say when it means "gone" or "not leader" (KIP-630, FetchSnapshot). Fetch
        # tells which: the same snapshot of the same leader goes on where it was.
        back_off(state, outstanding)
        return _pause_download(state, role) if is_of_source else []
    answer, partition = read_answer(state, response, only_partition(response.topics, "name", "index"))
    if partition is None or (answer.epoch == state.epoch and answer.error in REFUSALS):
        leave(state, outstanding.destination, "it serves no observers")
    is_lost = partition is not None and partition.error_code in BEGIN_ANEW
    if is_lost and isinstance(role, Follower) and answer.epoch == state.epoch:
        if answer.error == ErrorCode.SNAPSHOT_NOT_FOUND:
            restart_fetch_timer(state, role)
        back_off(state, outstanding)
        return drop_download(state, role) if is_of_source else []
    concerns_us, actions = common_part(state, outstanding, answer)
    role = state.role_state
    if not concerns_us or partition is None or not isinstance(role, Follower) or role.download is None:
        return actions
    download = role.download
    if download.unproven or not is_of_source:
        return actions  # it was on its way when the source changed
    data = partition.unaligned_records
    if not _is_next_chunk(state, download, partition):
        back_off(state, outstanding)
        return [*actions, *drop_download(state, role)]
    download.size = partition.size
    download.refusals = 0
    download.not_before_ms = _next_allowed_ms(state, len(data))
    role.writing_chunk = True
    if not is_upstream(outstanding.destination):
        note_sign_of_life(state, role)
    return [*actions, act.WriteSnapshotChunk(download.snapshot_id, download.position, data, partition.size)]


def _is_next_chunk(state: ReplicaState, download: Download, partition: FetchSnapshotResponse.PartitionSnapshot) -> bool:
    """Whether a response continues the download: the same file, at its end."""
    snapshot_id = OffsetAndEpoch(offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch)
    length, size = len(partition.unaligned_records), partition.size
    fits = length > 0 and download.position + length <= size and download.size in (None, size)
    if fits and (snapshot_id, partition.position) == (download.snapshot_id, download.position):
        return True
    text = f"{length} bytes at {partition.position} of {size} of {snapshot_id}, wanted {download.position} of"
    state.refuse("foreign snapshot chunk", f"{text} {download.snapshot_id}")
    return False


def drop_download(state: ReplicaState, role: Follower) -> list[Action]:
    """Forget what was downloaded: the rest of it is not needed any more."""
    was_kept, role.download, state.kept = state.kept, None, None
    return [] if was_kept is None else [act.DropSnapshotDownload()]


def _pause_download(state: ReplicaState, role: Follower) -> list[Action]:
    """Ask by Fetch whether the snapshot still is the one to have."""
    download, role.download = role.download, None
    if download is None:
        return []
    download.refusals += 1
    return drop_download(state, role) if download.refusals >= REFUSALS_MAX else []


def _bytes_at_once(state: ReplicaState) -> int:
    """With a limit to the rate, ask for little at a time: between two answers the leader must not seem dead."""
    rate, at_once = state.config.snapshot_rate_bytes, state.config.snapshot_max_bytes
    return min(at_once, max(rate * state.config.fetch_timeout_ms // 8_000, LIMITED_BYTES_MIN)) if rate else at_once


def _next_allowed_ms(state: ReplicaState, size: int) -> int:
    rate = state.config.snapshot_rate_bytes
    # Bounded, whatever an old leader sends at once: the fetch timeout must not pass over it.
    return state.now_ms + min(size * 1_000 // rate, state.config.fetch_timeout_ms // 2) if rate else 0


def download_deadline_ms(state: ReplicaState, role: Follower) -> int | None:
    """When the next bytes may be asked for, if that is what is waited for."""
    download = None if role.writing_chunk else role.download
    return download.not_before_ms if download is not None and download.not_before_ms > state.now_ms else None


# --- what the disk says -----------------------------------------------------------------------------------------------


def handle_chunk_written(state: ReplicaState, event: ev.SnapshotChunkWritten) -> list[Action]:
    """Go on at the new position; with the last byte, let the whole be verified and take the log's place."""
    if state.kept is not None and state.kept.snapshot_id == event.snapshot_id:
        state.kept.position = event.size
    role = state.role_state
    if not isinstance(role, Follower) or role.download is None or role.download.snapshot_id != event.snapshot_id:
        return []
    role.writing_chunk = False
    return _use(state, role, role.download) if event.size == role.download.size else []


def _use(state: ReplicaState, role: Follower, download: Download) -> list[Action]:
    """Let the snapshot take the place of the log, or of its missing records; begin again where that is not so any
    more, or where it would take committed records away: one that heals comes while the log goes on."""
    wants_filling = state.filling is not None or download.heals
    fills = wants_filling and state.log.may_begin_at(download.snapshot_id)
    if download.fills != fills or refuses_snapshot(state, download.snapshot_id, fills=fills):
        return drop_download(state, role)
    role.writing_chunk = True
    return [act.AdoptSnapshot(download.snapshot_id) if download.fills else act.InstallSnapshot(download.snapshot_id)]


def handle_snapshot_adopted(state: ReplicaState, event: ev.SnapshotAdopted) -> list[Action]:
    """The snapshot replaces the missing records, and the log behind them stays as it is."""
    state.log.adopt(event.snapshot_id, event.controls, event.holes, event.control_batches)
    logger.warning("%s: snapshot %s stands in for the missing records", state.id_text, event.snapshot_id)
    _end_download(state)
    reloads = reload_state(state, event.snapshot_id)
    if state.high_watermark is not None and event.snapshot_id.offset <= state.high_watermark <= state.log.end_offset:
        # Readers that waited before the missing range go on.
        return [*reloads, act.AdvanceHighWatermark(state.high_watermark)]
    return [*reloads, *_commit_snapshot(state, event.snapshot_id)]


def handle_snapshot_installed(state: ReplicaState, event: ev.SnapshotInstalled) -> list[Action]:
    """The log begins anew at the end of the snapshot, all of which is committed."""
    least = min(state.committed_offset, state.log.end_offset)
    ensure(event.snapshot_id.offset >= least, f"snapshot {event.snapshot_id} is behind the commits")
    state.log.install(event.snapshot_id, event.controls)
    _end_download(state)
    return [*reload_state(state, event.snapshot_id), *_commit_snapshot(state, event.snapshot_id)]


def _end_download(state: ReplicaState) -> None:
    """The download is in its place: the leader has its whole time again for the next answer."""
    state.filling = state.kept = None
    role = state.role_state
    if isinstance(role, Follower):
        role.download, role.writing_chunk = None, False
        restart_fetch_timer(state, role)


def _commit_snapshot(state: ReplicaState, snapshot_id: OffsetAndEpoch) -> list[Action]:
    """All that a snapshot has is committed: tell so, unless more is known to be committed than the log has.

    The high watermark does not fall: it is told when the log has caught up with it.
    """
    state.committed_offset = max(state.committed_offset, snapshot_id.offset)
    if state.committed_offset > state.log.end_offset:
        return []
    state.high_watermark = state.committed_offset
    return [act.AdvanceHighWatermark(state.committed_offset)]


def handle_snapshot_refused(state: ReplicaState, event: ev.SnapshotRefused) -> list[Action]:
    """The download did not verify, or found no space: nothing was replaced. Fetch again in a while, and begin at 0."""
    what = "no space for a snapshot" if event.lacks_space else "damaged snapshot"
    state.refuse(what, f"{event.snapshot_id}: {event.reason}")
    state.kept = None
    role = state.role_state
    if isinstance(role, Follower):
        role.download, role.writing_chunk = None, False
        if state.upstreams.chosen is not None:
            leave(state, state.upstreams.chosen, what)
        state.connections.failed(role.leader_id, state.now_ms, state.jittered_backoff_ms())
    return []
