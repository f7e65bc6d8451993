"""A snapshot on its way to a follower: where it begins, what is asked, written, compared, used and dropped.

| id | rule |
|---|---|
| RF32 | a download begins where the leader names a snapshot, and goes on if what is there is of the same id |
| RF33 | the next bytes are asked for as soon as the last ones are written, from there, of the leader, and no others |
| RF34 | bytes are written if they are the next ones of this snapshot, and of its size; else the download is dropped |
| RF35 | what came in another epoch goes on only once the leader has proved to have the same bytes |
| RF36 | the whole is used at once: in place of the log, or of what is missing in it, as it began |
| RF37 | it is dropped when it is of no more use, and not before |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Download, Follower, Leader, Prospective
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import METADATA_TOPIC, ZERO_UUID, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest, SnapshotHashResponse
from tools.rules.positions import may_stand_in
from tools.rules.upstreams import MARK, source

REFUSALS_MAX = 3
"""After so many answers in a row that say nothing, a download begins anew."""

LEAST_BYTES = 4_096
"""With a limit to the rate, no less than this is asked for at once."""

DISK = frozenset(
    {act.WriteSnapshotChunk, act.HashDownload, act.DropSnapshotDownload, act.InstallSnapshot, act.AdoptSnapshot}
)


class Downloads:
    """The download of one replica, in one life."""

    def __init__(self, core: Replica) -> None:
        self._core, self._state = core, core.state
        kept = core.state.kept
        self._kept: Download | None = None if kept is None else attrs.evolve(kept)
        """As it must be; it outlives the role in which it came."""
        self._role: object = None
        self._is_active = False
        """Whether the role that is held now wants it."""
        self._is_writing = False
        self._is_same_source: bool | None = None
        """Whether a download goes on from the same source; None: none goes on."""
        self._rests: dict[int, int] = {}
        """The upstreams that were left, and until when."""
        self._asked: dict[int, tuple[Any, int, int | None]] = {}
        self._wanted: list[act.Action] = []
        """The actions for the disk that must come next."""
        self._is_proved = False
        """Whether the leader has just proved to have the same bytes, which is a sign of life."""

    @property
    def is_active(self) -> bool:
        """Whether a download is under way."""
        return self._is_active

    # --- what comes --------------------------------------------------------------------------------------------------

    def hear(self, event: ev.Event, now_ms: int) -> None:
        """Work out what an event means to the download."""
        if self._wanted:
            self._wanted = []
        if self._kept is None and not self._asked:
            return
        match event:
            case ev.ResponseReceived() if event.correlation_id in self._asked:
                request, _, source = self._asked.pop(event.correlation_id)
                if isinstance(request, FetchSnapshotRequest):
                    self._chunk_comes(event.response, max(now_ms, self._state.now_ms), source)
                else:
                    self._hash_comes(request, event.response, source)
            case ev.RequestFailed() if event.correlation_id in self._asked:
                request, _, source = self._asked.pop(event.correlation_id)
                self._fails(request, source)
            case ev.SnapshotChunkWritten():
                self._is_written(event)
            case ev.ConnectionLost():
                if self._kept is not None and self._kept.source == event.destination:
                    self._kept.source_epoch = None  # another process may answer there
            case ev.DownloadHashed():
                kept = self._kept
                if kept is not None and (kept.snapshot_id, kept.position) == (event.snapshot_id, event.position):
                    kept.digest = event.digest
            case ev.SnapshotInstalled() | ev.SnapshotAdopted() | ev.SnapshotRefused():
                self._kept, self._is_active, self._is_writing = None, False, False

    def begin(self, snapshot_id: OffsetAndEpoch, *, fills: bool, source: int | None = None) -> None:
        """The leader, or this upstream, has named this snapshot in an answer that counts."""
        kept, epoch = self._kept, self._state.epoch
        self._is_active = True
        if kept is None or kept.snapshot_id != snapshot_id or not kept.size or not kept.position:
            self._kept = Download(snapshot_id=snapshot_id, source_epoch=epoch, source=source, fills=fills)
            return
        self._is_same_source = kept.source == source
        kept.fills, kept.digest, kept.source = fills, None, source

    @property
    def heals(self) -> bool:
        """Whether what was downloaded is to replace a wrong state, so that it does not matter what the log has."""
        return self._kept is not None and self._kept.heals

    def heal(self, snapshot_id: OffsetAndEpoch) -> None:
        """The leader offers this snapshot to a replica whose state is wrong."""
        state = self._state
        fills = may_stand_in(state.log, snapshot_id)
        if self._is_active or self._is_writing or state.log.holes or snapshot_id in state.log.snapshots:
            return
        if snapshot_id.epoch <= state.epoch and (fills or not self._is_old(snapshot_id)):
            self._is_active = True
            self._kept = Download(snapshot_id=snapshot_id, source_epoch=state.epoch, fills=fills, heals=True)

    def _is_old(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether it would take committed records away."""
        return snapshot_id.offset < min(self._state.committed_offset, self._state.log.end_offset)

    def drop(self) -> None:
        """The rest of it is not needed any more."""
        self._is_active = False
        if self._kept is not None:
            self._kept = None
            self._wanted.append(act.DropSnapshotDownload())

    def _chunk_comes(self, response: FetchSnapshotResponse, now_ms: int, source: int | None) -> None:
        state, kept = self._state, self._kept
        if response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
            if self._is_active and kept is not None and kept.source == source:
                self._is_active = False
                kept.refusals += 1
                if kept.refusals >= REFUSALS_MAX:
                    self.drop()
            return
        partition = _partition_of(response)
        if partition is None or partition.current_leader.leader_epoch != state.epoch:
            return
        if partition.error_code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            if kept is not None and kept.source == source:
                self.drop()
            return
        named = partition.current_leader.leader_id
        if partition.error_code != ErrorCode.NONE or (named >= 0 and named != state.leader_id):
            return
        if not self._is_active or kept is None or kept.unproven or kept.source != source:
            return
        data, size = partition.unaligned_records, partition.size
        claimed = OffsetAndEpoch(offset=partition.snapshot_id.end_offset, epoch=partition.snapshot_id.epoch)
        fits = 0 < len(data) <= size - kept.position and kept.size in (None, size)
        if claimed != kept.snapshot_id or partition.position != kept.position or not fits:
            self.drop()
            return
        kept.size, kept.refusals, self._is_writing = size, 0, True
        rate, timeout_ms = state.config.snapshot_rate_bytes, state.config.fetch_timeout_ms
        kept.not_before_ms = now_ms + min(len(data) * 1_000 // rate, timeout_ms // 2) if rate else 0
        self._wanted.append(act.WriteSnapshotChunk(claimed, kept.position, data, size))

    def _hash_comes(self, asked: SnapshotHashRequest, response: SnapshotHashResponse, source: int | None) -> None:
        kept = self._kept
        if not self._is_active or kept is None or not kept.unproven or kept.source != source:
            return
        if (asked.end_offset, asked.epoch, asked.position) != (*_numbers(kept.snapshot_id), kept.position):
            return
        is_same = response.error_code == ErrorCode.NONE and response.size == kept.size and bool(kept.digest)
        if is_same and response.digest == kept.digest:
            kept.unproven, kept.source_epoch = False, self._state.epoch
            self._is_proved = True
        else:
            self._begin_anew(kept)

    def _fails(self, request: Any, source: int | None) -> None:
        kept = self._kept
        if not isinstance(request, SnapshotHashRequest) or not self._is_active or kept is None:
            return
        if kept.unproven and kept.source == source:
            self._begin_anew(kept)

    def _begin_anew(self, kept: Download) -> None:
        epoch = self._state.epoch
        self._kept = Download(snapshot_id=kept.snapshot_id, source_epoch=epoch, source=kept.source, fills=kept.fills)

    def _is_written(self, event: ev.SnapshotChunkWritten) -> None:
        kept = self._kept
        if kept is not None and kept.snapshot_id == event.snapshot_id:
            kept.position = event.size
            if self._is_active:
                self._is_writing = False
                if kept.size == event.size:
                    self._use(kept)

    def _use(self, kept: Download) -> None:
        state = self._state
        fills = (kept.heals or state.filling is not None) and may_stand_in(state.log, kept.snapshot_id)
        if kept.fills != fills or (not fills and self._is_old(kept.snapshot_id)):
            self.drop()
            return
        self._is_writing = True
        self._wanted.append((act.AdoptSnapshot if fills else act.InstallSnapshot)(kept.snapshot_id))

    # --- what the core does ------------------------------------------------------------------------------------------

    def follow(self, actions: Sequence[act.Action]) -> None:
        """Compare what the disk is asked for, what the leader is asked for, and what is known."""
        state = self._state
        role = state.role_state
        is_proved, self._is_proved = self._is_proved, False
        until_ms = state.now_ms + state.config.fetch_timeout_ms
        is_heard = is_proved and role is self._role
        if is_heard and isinstance(role, Follower) and not role.is_left and role.fetch_deadline_ms < until_ms:
            text = f"a leader has proved its bytes, and is waited for until {role.fetch_deadline_ms}"
            raise BrokenRuleError("RF35", f"{text}, must be until {until_ms}")
        if role is self._role or isinstance(role, Prospective):
            self._give_up_late_requests()  # a fetch timeout makes it stand, and is looked at after them
        if role is not self._role:
            self._role, self._is_active, self._is_writing = role, False, False
            self._asked.clear()
            if isinstance(role, Leader):
                self.drop()
        self._look_at_source(role)
        if self._kept is None and state.kept is None and not self._wanted and not self._is_active:
            if actions and not DISK.isdisjoint(map(type, actions)):
                raise BrokenRuleError("RF37", f"there is no download, and the disk is asked for {actions}")
            return
        self._look_at_requests(actions)
        self._look_at_rest(role)
        asked = [action for action in actions if type(action) in DISK]
        if asked != self._wanted:
            raise BrokenRuleError(self._rule_of(asked), f"the disk is asked for {asked}, must be for {self._wanted}")
        self._compare(role)

    def _look_at_source(self, role: object) -> None:
        """A download pauses where it is not fetched from its source any more, whose next process may have others."""
        kept, rests = self._kept, self._state.upstreams.resting_until_ms
        if kept is not None and kept.source is not None and rests.get(kept.source) != self._rests.get(kept.source):
            kept.source_epoch = None
        self._rests = dict(rests)
        # The very answer that names the snapshot may be a reason to leave the upstream.
        is_same, self._is_same_source = self._is_same_source, None
        if kept is not None and is_same is not None:
            if not is_same or kept.source_epoch != self._state.epoch:
                kept.source_epoch = None
            kept.unproven = kept.source_epoch is None and kept.position < (kept.size or 0)
            if kept.unproven:
                self._wanted.append(act.HashDownload(kept.snapshot_id, kept.position))
        is_asking = isinstance(role, Follower) and self._state.shutdown_deadline_ms is None
        if kept is not None and self._is_active and not self._is_writing and is_asking:
            self._is_active = kept.source == source(self._state)

    def _give_up_late_requests(self) -> None:
        late_ms = self._state.now_ms - self._state.config.request_timeout_ms
        for number in [number for number, (_, sent_ms, _) in self._asked.items() if sent_ms <= late_ms]:
            request, _, source = self._asked.pop(number)
            self._fails(request, source)

    def _rule_of(self, asked: list[act.Action]) -> str:
        kinds = {type(action) for action in (*asked, *self._wanted)}
        rows = ("RF37", act.DropSnapshotDownload), ("RF34", act.WriteSnapshotChunk), ("RF35", act.HashDownload)
        return next((rule for rule, kind in rows if kind in kinds), "RF36")

    def _look_at_requests(self, actions: Sequence[act.Action]) -> None:
        state, kept = self._state, self._kept
        for action in actions:
            if type(action) is not act.SendRequest:
                continue
            request = action.request
            if not isinstance(request, FetchSnapshotRequest | SnapshotHashRequest):
                continue
            asked = state.leader_id if kept is None or kept.source is None else kept.source
            if kept is None or not self._is_active or self._is_writing or action.destination != asked:
                raise BrokenRuleError("RF33", f"{request} is sent to {action.destination}, {kept} is there")
            wanted = self._hash_request(kept) if kept.unproven else self._chunk_request(kept)
            if request != wanted or (kept.unproven and kept.digest is None) or state.now_ms < kept.not_before_ms:
                raise BrokenRuleError("RF35" if kept.unproven else "RF33", f"{request} is sent, must be {wanted}")
            self._asked[action.correlation_id] = request, state.now_ms, kept.source

    def _hash_request(self, kept: Download) -> SnapshotHashRequest:
        state = self._state
        offset, epoch = _numbers(kept.snapshot_id)
        return SnapshotHashRequest(
            cluster_id=state.cluster_id,
            replica_id=state.key.id,
            end_offset=offset,
            epoch=epoch,
            position=kept.position,
        )

    def _chunk_request(self, kept: Download) -> FetchSnapshotRequest:
        state = self._state
        config, is_anonymous = state.config, state.amnesia is not None
        offset, epoch = _numbers(kept.snapshot_id)
        at_once, rate = config.snapshot_max_bytes, config.snapshot_rate_bytes
        if rate:
            at_once = min(at_once, max(rate * config.fetch_timeout_ms // 8_000, LEAST_BYTES))
        partition = FetchSnapshotRequest.PartitionSnapshot(
            current_leader_epoch=state.epoch,
            snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=offset, epoch=epoch),
            position=kept.position,
            replica_directory_id=ZERO_UUID if is_anonymous else state.key.directory_id or ZERO_UUID,
        )
        return FetchSnapshotRequest(
            cluster_id=state.cluster_id,
            replica_id=-1 if is_anonymous else state.key.id,
            max_bytes=at_once,
            topics=(FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),),
            unknown_tagged_fields=() if kept.source is None else ((MARK, b""),),
        )

    def _look_at_rest(self, role: object) -> None:
        """A complete download is used, and of an incomplete one the next bytes are asked for, unless it waits."""
        state, kept = self._state, self._kept
        if (
            not isinstance(role, Follower)
            or not self._is_active
            or kept is None
            or state.shutdown_deadline_ms is not None
        ):
            return
        has_place = kept.source is not None or state.config.listener_name.upper() in state.leader_endpoints
        if self._is_writing or not has_place:
            return
        if state.now_ms < kept.not_before_ms:
            wakes_ms = self._core.deadline_ms()
            if wakes_ms is None or wakes_ms > kept.not_before_ms:
                raise BrokenRuleError("RF33", f"it wakes at {wakes_ms}, and may ask for more at {kept.not_before_ms}")
            return
        if not kept.unproven and kept.position == kept.size:
            self._use(kept)
        elif not (kept.unproven and kept.digest is None):
            asked = role.leader_id if kept.source is None else kept.source
            if state.connections.is_ready(asked, state.now_ms):
                raise BrokenRuleError("RF33", f"nothing is asked of {asked}, and {kept} is there")

    def _compare(self, role: object) -> None:
        ours, theirs = self._kept, self._state.kept
        if ours is not None and theirs is not None and not theirs.position:
            theirs = attrs.evolve(theirs, source_epoch=ours.source_epoch)  # of no bytes
        if ours != theirs:
            raise BrokenRuleError("RF32", f"the download is {theirs}, must be {ours}")
        wanted = isinstance(role, Follower) and role.download is not None
        if wanted != self._is_active or (isinstance(role, Follower) and role.writing_chunk != self._is_writing):
            raise BrokenRuleError("RF32", f"the download is wanted: {wanted}, must be {self._is_active}")


def _numbers(snapshot_id: OffsetAndEpoch) -> tuple[int, int]:
    return snapshot_id.offset, snapshot_id.epoch


def _partition_of(response: FetchSnapshotResponse) -> Any:
    """Return the one partition of an answer; None if it has not exactly this one."""
    topics = response.topics
    if response.error_code != ErrorCode.NONE or len(topics) != 1 or topics[0].name != METADATA_TOPIC:
        return None
    partitions = topics[0].partitions
    return partitions[0] if [partition.index for partition in partitions] == [0] else None
