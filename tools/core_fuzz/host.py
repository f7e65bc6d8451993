"""One replica of the core fuzzer: a real core, and the actions that it asks for, carried out on a `CoreStore`.

A life ends at any action (`World.dies_now`): the actions behind it in the list are never done.
"""

from __future__ import annotations

import hashlib
import random as chance
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role, RoleState
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import InvariantError
from kraftlib.types import BOOTSTRAP_SNAPSHOT, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashResponse
from kraftlib.wire.messages.state_digest import StateDigestRequest
from tools.core_fuzz.coverage import answer_of, kind_of, situation_of
from tools.core_fuzz.forged_answers import SPOILED
from tools.core_fuzz.promises import BrokenPromiseError
from tools.core_fuzz.store import CoreStore, PendingFlush, StoredSnapshot
from tools.rules import Referee
from tools.rules.status import judge_status

if TYPE_CHECKING:
    from tools.core_fuzz.world import CoreWorld

CHUNK_BYTES: Final = 10
"""The number of bytes of a snapshot in one answer."""


VERSIONS: Final = {
    "VoteRequest": 2,
    "BeginQuorumEpochRequest": 1,
    "EndQuorumEpochRequest": 1,
    "FetchRequest": 18,
    "FetchSnapshotRequest": 1,
    "AddRaftVoterRequest": 1,
    "DescribeQuorumRequest": 2,
    "DescribeClusterRequest": 2,
    "UpdateFeaturesRequest": 1,
}
"""In which version a request arrives; 0, unless it stands here."""


@attrs.frozen
class Letter:
    """A message on its way. `life` is the life of the one that asked: no other hears the answer."""

    source: ReplicaId
    life: int
    target: ReplicaId
    destination: int
    """By what number the one that asked knows its connection: an id, a bootstrap server, a lane."""
    correlation_id: int
    body: Any
    """None as an answer: the connection was closed instead."""
    is_answer: bool = False


REBUILDS: Final = (ev.LogTruncated, ev.Repaired, ev.SnapshotInstalled, ev.SnapshotAdopted, ev.SnapshotLost)
"""After these the core must know its log anew."""

LOOKED_AT_EVERY: Final = 8
"""At each so many-th event a program looks at the status of the replica."""

OPERATOR: Final = -100
"""The source of a request that no replica sends."""

NO_LIFE: Final = -1
"""The life of one that waits for no answer."""


class CoreHost:
    """A replica, running or not, and its disk."""

    def __init__(self, world: CoreWorld, number: ReplicaId, store: CoreStore) -> None:
        self.world = world
        self.number = number
        self.store = store
        self.disks = 0
        self.lost_disks: list[tuple[ReplicaKey, CoreStore]] = []
        """Those in whose place an empty one was put."""
        self.core: Replica | None = None
        self.referee: Referee
        """Of the life that runs."""
        self.life = 0
        self.down_until_ms = 0
        self.led_epoch: int | None = None
        """The epoch that it led when the event that is being handled came."""
        self.events: list[ev.Event] = []
        """The answers of the disk: the core hears them before anything else."""
        self.slow: list[ev.Event] = []
        """The ends of the work beside the loop, which the core hears some time later."""
        self.writing: dict[OffsetAndEpoch, StoredSnapshot] = {}
        """Snapshots of our own that are written beside the loop."""
        self.hearing: ev.Event | None = None
        """The event that is being handled."""
        self.requests: dict[int, Letter] = {}
        self.reads: dict[int, Offset] = {}
        self.control: act.SubmitControl | None = None
        self.control_epoch = 0
        self.appends_from: int | None = None
        self.high_watermark: Offset = 0
        self.applied_from: Offset = 0
        """The end of the newest snapshot when this life began: the state machine loaded it, and is never before."""
        self.is_full = False
        self.heard_ms: dict[ReplicaId, int] = {}
        self.role_seen: RoleState | None = None
        self.led_since_ms = 0
        self.voters_seen: VoterSet | None = None
        self.voters_since_ms = 0
        self.has_known_voters = False
        self._leaves = False
        self._wakes: tuple[int | None] | None = None
        """When the core is due next; None while it was not asked since its last event."""
        self.asked_for_snapshot = False
        """Whether the core wants a snapshot, of which the runtime hears when the event is over."""
        self._actions: Mapping[type, Callable[[Any], None]] = {
            act.PersistElection: self._persist_election,
            act.AppendToLog: self._append,
            act.TruncateLog: self._truncate,
            act.WriteRepair: self._write_repair,
            act.FlushLog: self._flush,
            act.SendRequest: self._send_request,
            act.SendResponse: self._send_response,
            act.SendRecords: self._send_records,
            act.AnswerObservers: self._answer_observers,
            act.SendSnapshotChunk: self._send_chunk,
            act.SendSnapshotHash: self._send_hash,
            act.WriteSnapshotChunk: self._write_chunk,
            act.HashDownload: self._hash_download,
            act.DropSnapshotDownload: self._drop_download,
            act.InstallSnapshot: self._install,
            act.AdoptSnapshot: self._adopt,
            act.SetSnapshotAside: self._set_aside,
            act.DeleteBefore: self._delete_before,
            act.AdvanceHighWatermark: self._advance,
            act.SubmitControl: self._submit_control,
            act.PassReadBarrier: self._pass_read,
            act.ShutdownComplete: self._leave,
            act.TakeSnapshot: self._take_snapshot,
            act.QuarantineState: self._quarantine,
            act.ReloadState: self._reload,
        }

    def __str__(self) -> str:
        return f"replica {self.number}"

    # --- lives -------------------------------------------------------------------------------------------------------

    @property
    def key(self) -> ReplicaKey:
        """The key of the replica on this disk."""
        return ReplicaKey(self.number, uuid.UUID(int=1_000 * (self.disks + 1) + self.number))

    @property
    def running(self) -> Replica:
        """The core of the life that runs."""
        if self.core is None:  # spelled out: the text of `ensure` is made in any case
            raise InvariantError(f"{self} is down")
        return self.core

    @property
    def wakes_ms(self) -> int | None:
        """When the core has something to do next: that changes with its events alone, and is asked all the time."""
        if self._wakes is None:
            self._wakes = (self.running.deadline_ms(),)
        return self._wakes[0]

    def new_disk(self) -> None:
        """Be another replica from now on, with an empty disk."""
        self.lost_disks.append((self.key, self.store))
        self.world.states.has_new_disk(self)
        self.disks += 1
        self.store = CoreStore()
        self.has_known_voters = False

    def start(self) -> None:
        """Begin a life with what the disk has."""
        world = self.world
        self.life += 1
        self._leaves = self.asked_for_snapshot = False
        self.events, self.slow, self.requests, self.reads, self.heard_ms = [], [], {}, {}, {}
        self.writing = {}
        world.may_move(self.number)
        self.high_watermark, self.control, self.role_seen, self.is_full = 0, None, None, False
        if self.store.holes:
            self.store.come_upon_damage()
        self.led_epoch = None
        self.core = Replica(
            RaftConfig(node_id=self.number, **world.settings_of(self)),
            key=self.key,
            cluster_id="fuzz",
            log=self.store.view(world.static_voters),
            election=self.store.election,
            random=chance.Random(world.random.getrandbits(32)),
            endpoints=world.places_of(self.number),
            kept=self.store.kept_download(),
        )
        self.applied_from = max((kept.offset for kept in self.store.snapshots), default=0)
        self.has_known_voters |= BOOTSTRAP_SNAPSHOT in self.store.snapshots
        self.referee, self._wakes = Referee(self.core), None
        self._perform(self.referee.start(world.now_ms))
        self._hear_the_disk()

    def write_slowly(self, snapshot_id: OffsetAndEpoch, snapshot: StoredSnapshot) -> None:
        """Write a snapshot beside the loop: it is there when the core hears of it."""
        if snapshot_id not in self.writing:
            self.writing[snapshot_id] = snapshot
            self.slow.append(ev.SnapshotCreated(snapshot_id))

    def hear_slow_disk(self) -> None:
        """Let the oldest of what is done beside the loop be done. A snapshot that the log has passed is dropped."""
        event = self.slow.pop(0)
        if isinstance(event, ev.SnapshotCreated):
            snapshot = self.writing.pop(event.snapshot_id)
            if not self.store.has_passed(event.snapshot_id):
                self.store.snapshots.setdefault(event.snapshot_id, snapshot)
        self.tell(event)
        if isinstance(event, ev.SnapshotCreated) and self.world.oddities.random.random() < 0.7:
            self.tell(ev.RetentionDue(event.snapshot_id))

    def crash(self) -> None:
        """End the life: power loss."""
        self.core, self._leaves = None, False
        self.store.crash(self.world.random)

    def tell(self, event: ev.Event) -> None:
        """Let the core handle an event, and all that the disk answers to what it does."""
        if self.core is None:
            return
        self._handle(event)
        self._hear_the_disk()
        if self._leaves:
            self.world.trouble.end(self)
        elif self.asked_for_snapshot and self.core is not None:
            self.asked_for_snapshot = False
            self.world.take_snapshot(self)

    def _leave(self, action: act.ShutdownComplete) -> None:
        self._leaves = True

    def _hear_the_disk(self) -> None:
        while self.core is not None and self.events:
            self._handle(self.events.pop(0))

    def _handle(self, event: ev.Event) -> None:
        world, state = self.world, self.running.state
        self.hearing, self._wakes = event, None
        before = situation_of(state)
        self.led_epoch = state.epoch if before[0] is Role.LEADER else None
        world.events += 1
        actions = self.referee.handle(event, world.now_ms)
        world.coverage.count(before, kind_of(event), answer_of(event, actions))
        if world.trace is not None:
            world.trace(f"{world.now_ms:6} {self.number} hears {kind_of(event)} {answer_of(event, actions)}")
        if world.events % LOOKED_AT_EVERY == 0:
            judge_status(self.referee.core)
        self._perform(actions)
        if type(event) in REBUILDS and self.core is not None and not self.events:
            world.promises.rebuilt(self)

    def _perform(self, actions: Iterable[act.Action]) -> None:
        world = self.world
        for action in actions:
            if world.dies_now():
                world.count("power loss amid actions")
                self.crash()
                return
            if world.trace is not None:
                world.trace(f"{world.now_ms:6} {self.number}   {str(action)[:160]}")
            carry_out = self._actions.get(type(action))
            if carry_out is not None:
                carry_out(action)
        world.promises.looked_at(self)

    # --- the disk ----------------------------------------------------------------------------------------------------

    def _persist_election(self, action: act.PersistElection) -> None:
        self.store.catch_up()
        self.world.promises.election_written(self, action.election)
        self.store.election = action.election
        if action.election.voted_key == self.key and action.election.leader_id is None:
            self.world.errands.stood(self)
        if action.election.voted_key not in (None, self.key) and action.election.leader_id is None:
            self.world.trouble.vote_is_cast(self)

    def _append(self, action: act.AppendToLog) -> None:
        batches = tuple(action.batches)
        if self.store.is_damaged and self.store.holes:
            raise BrokenPromiseError("I12", f"{self} appends to a log that lacks {self.store.holes}")
        self.world.promises.appended(self, batches)
        self.store.append(batches)

    def _truncate(self, action: act.TruncateLog) -> None:
        self.store.catch_up()
        had_holes = self.store.is_damaged
        dropped = self.store.truncate(action.end_offset)
        self.world.count("truncation")
        self.world.promises.truncated(self, dropped, had_holes=had_holes)
        self.events.insert(0, ev.LogTruncated(self.store.end_offset))
        self.world.errands.was_cut(self)

    def _flush(self, action: act.FlushLog) -> None:
        self.store.flushes.append(PendingFlush(self.store.end_offset, action.log_version))

    def finish_flush(self) -> None:
        """Let the oldest flush come back."""
        store = self.store
        flush = store.flushes.pop(0)
        end_offset = min(flush.end_offset, store.end_offset)
        store.flushed_offset = max(store.flushed_offset, end_offset)
        self.tell(ev.Flushed(end_offset, flush.log_version))

    def _write_repair(self, action: act.WriteRepair) -> None:
        if self.is_full or self.world.oddities.is_out_of_space():
            self.world.count("repair without space")
            self.store.give_up_repair()
            self.events.insert(0, ev.RepairRefused("no space left on device"))
            return
        self.store.catch_up()
        event = self.store.write_repair(action.batches)
        self.world.count("repair")
        self.events.insert(0, event)

    def come_upon_damage(self) -> None:
        """Read where something is missing, and tell the core."""
        if self.core is not None and self.store.latent:
            self.store.catch_up()
            self.tell(self.store.come_upon_damage())

    def _delete_before(self, action: act.DeleteBefore) -> None:
        self.store.delete_before(action.snapshot_id)
        self.world.count("retention")

    def _advance(self, action: act.AdvanceHighWatermark) -> None:
        self.world.promises.advanced(self, action.high_watermark)
        self.world.states.applied(self, action.high_watermark)
        self.high_watermark = action.high_watermark
        self.world.errands.committed(self)
        self.world.inquiries.committed(self)

    def _submit_control(self, action: act.SubmitControl) -> None:
        self.control, self.control_epoch = action, self.running.epoch

    def _pass_read(self, action: act.PassReadBarrier) -> None:
        self.world.promises.read_passed(self, self.reads.pop(action.request), action.offset)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def _write_chunk(self, action: act.WriteSnapshotChunk) -> None:
        store, snapshot_id = self.store, action.snapshot_id
        if self.is_full or self.world.oddities.is_out_of_space():
            store.incoming = None
            self.events.insert(0, ev.SnapshotRefused(snapshot_id, "no space left on device", lacks_space=True))
            return
        incoming = store.incoming
        written = 0 if incoming is None or incoming.snapshot_id != snapshot_id else len(incoming.data)
        if action.position not in (0, written):
            raise BrokenPromiseError("I22", f"{self} writes at {action.position} of {snapshot_id} behind {written}")
        data = bytes(action.data)
        store.write_chunk(snapshot_id, action.position, data, size=action.size)
        # A replica waits for the disk here: it hears nothing else before.
        self.events.insert(0, ev.SnapshotChunkWritten(snapshot_id, action.position + len(data)))
        if action.position + len(data) < action.size:
            self.world.errands.piece_is_written(self)

    def _hash_download(self, action: act.HashDownload) -> None:
        digest = self.store.digest(action.snapshot_id, action.position)
        self.slow.append(ev.DownloadHashed(action.snapshot_id, action.position, digest))

    def _drop_download(self, action: act.DropSnapshotDownload) -> None:
        self.store.incoming = None

    def _is_spoiled(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether a download does not verify: then it is gone, and nothing has changed."""
        if SPOILED not in self.store.downloaded(snapshot_id):
            return False
        self.world.count("spoiled download")
        self.store.incoming = None
        self.events.insert(0, ev.SnapshotRefused(snapshot_id, "does not verify"))
        return True

    def _install(self, action: act.InstallSnapshot) -> None:
        self.store.catch_up()
        snapshot_id = action.snapshot_id
        if self._is_spoiled(snapshot_id):
            return
        snapshot = self.world.snapshot_of(self, snapshot_id, self.store.downloaded(snapshot_id))
        dropped, had_holes = self.store.batches, self.store.is_damaged
        self.store.install(snapshot_id, snapshot)
        self.world.states.replaced(self)
        self.world.count("installed snapshot")
        self.world.promises.installed(self, dropped, snapshot_id, had_holes=had_holes)
        self.events.insert(0, ev.SnapshotInstalled(snapshot_id, snapshot.controls))

    def _adopt(self, action: act.AdoptSnapshot) -> None:
        self.store.catch_up()
        snapshot_id = action.snapshot_id
        if self._is_spoiled(snapshot_id):
            return
        snapshot = self.world.snapshot_of(self, snapshot_id, self.store.downloaded(snapshot_id))
        self.store.adopt(snapshot_id, snapshot)
        self.world.count("adopted snapshot")
        adopted = ev.SnapshotAdopted(
            snapshot_id=snapshot_id,
            controls=snapshot.controls,
            holes=tuple(self.store.holes),
            control_batches=self.store.control_batches(),
        )
        self.events.insert(0, adopted)

    def _set_aside(self, action: act.SetSnapshotAside) -> None:
        self.events.append(self.store.set_aside(action.snapshot_id))  # of two, the first one is heard of first

    # --- the state machine -------------------------------------------------------------------------------------------

    def _take_snapshot(self, action: act.TakeSnapshot) -> None:
        self.asked_for_snapshot = True

    def _quarantine(self, action: act.QuarantineState) -> None:
        self.world.states.quarantined(self)

    def _reload(self, action: act.ReloadState) -> None:
        """The next life loads that snapshot, too."""
        self.world.count("healed replica")
        self.world.states.replaced(self)
        self.slow.append(ev.StateHealed(action.snapshot_id))

    # --- the network -------------------------------------------------------------------------------------------------

    def _send_request(self, action: act.SendRequest[Any]) -> None:
        self.world.promises.request_sent(self, action.request)
        target = self.world.number_at(action.endpoint)
        letter = Letter(self.number, self.life, target, action.destination, action.correlation_id, action.request)
        self.world.post(letter)

    def _send_response(self, action: act.SendResponse) -> None:
        self.world.promises.response_sent(self, action.response)
        self.answer(action.request_id, action.response)

    def answer(self, request_id: int, response: Any) -> None:
        """Send the answer of a request, or close its connection."""
        asked = self.requests.pop(request_id, None)
        if asked is None or asked.life == NO_LIFE:
            return
        if asked.source == OPERATOR:
            self.world.operator_hears(self, asked.body, response)
            return
        letter = Letter(self.number, asked.life, asked.source, asked.destination, asked.correlation_id, response, True)
        self.world.post(letter)

    def _send_records(self, action: act.SendRecords, end_offset: Offset | None = None) -> None:
        store, start = self.store, action.start_offset
        if start < store.start_offset:
            raise BrokenPromiseError(
                "I22", f"{self} sends records from {start}, its log begins at {store.start_offset}"
            )
        if start >= store.end_offset:
            raise BrokenPromiseError("I22", f"{self} sends records from {start}, and its log ends at {store.end}")
        batches = store.readable(start)
        if not batches and start < store.end_offset:
            self.answer(action.request_id, None)
            self.world.count("read in a hole")
            self.events += [store.come_upon_damage()] if store.latent else []
            return
        batches = batches[: self.world.batches_at_once]
        data = b"".join(bytes(batch.data) for batch in batches if end_offset is None or batch.end_offset <= end_offset)
        topic = action.response.responses[0]
        partition = attrs.evolve(topic.partitions[0], records=data)
        filled = attrs.evolve(action.response, responses=(attrs.evolve(topic, partitions=(partition,)),))
        self.answer(action.request_id, filled)

    def _answer_observers(self, action: act.AnswerObservers) -> None:
        for number in action.request_ids:
            if action.start_offset is None:
                self._send_response(act.SendResponse(number, action.response))
            else:
                alone = act.SendRecords(number, action.response, action.start_offset, action.max_bytes)
                self._send_records(alone, action.end_offset)

    def _send_chunk(self, action: act.SendSnapshotChunk) -> None:
        if self.world.oddities.is_unreadable():
            self.answer(action.request_id, FetchSnapshotResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        snapshot = self.store.snapshots.get(action.snapshot_id)
        changes: dict[str, Any]
        if snapshot is None:
            changes = {"error_code": ErrorCode.SNAPSHOT_NOT_FOUND}
        elif action.position >= len(snapshot.data):
            changes = {"error_code": ErrorCode.POSITION_OUT_OF_RANGE}
        else:
            data = snapshot.data[action.position : action.position + CHUNK_BYTES]
            changes = {"size": len(snapshot.data), "unaligned_records": data}
        topic = action.response.topics[0]
        partition = attrs.evolve(topic.partitions[0], **changes)
        self.answer(
            action.request_id, attrs.evolve(action.response, topics=(attrs.evolve(topic, partitions=(partition,)),))
        )

    def _send_hash(self, action: act.SendSnapshotHash) -> None:
        snapshot = self.store.snapshots.get(action.snapshot_id)
        if snapshot is None or action.position > len(snapshot.data):
            response = SnapshotHashResponse(error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
        else:
            digest = hashlib.sha256(snapshot.data[: action.position]).digest()
            response = SnapshotHashResponse(size=len(snapshot.data), digest=digest)
        self.answer(action.request_id, response)

    def hear_request(self, letter: Letter, version: int) -> None:
        """Let the core handle a request."""
        request_id = self.world.next_number()
        self.requests[request_id] = letter
        if isinstance(letter.body, FetchRequest | FetchSnapshotRequest):
            self.heard_ms[letter.source] = self.world.now_ms
        elif isinstance(letter.body, UpdateRaftVoterRequest):
            self.heard_ms[letter.body.voter_id] = self.world.now_ms
        is_unproven = isinstance(letter.body, FetchRequest | StateDigestRequest) and self.world.oddities.is_unproven()
        self.tell(ev.RequestReceived(request_id, letter.body, version, of_observer=is_unproven))
