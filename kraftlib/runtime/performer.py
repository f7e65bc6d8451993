"""The performer of the actions of the core: on the log and the disk, on the network, for callers and listeners.

`kraftlib.runtime.executor` has the order in which actions are performed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.errors import CorruptBatchError, InvariantError
from kraftlib.records.batch import Batch
from kraftlib.runtime.appends import Appends
from kraftlib.runtime.barriers import Barriers
from kraftlib.runtime.capabilities import capabilities_of
from kraftlib.runtime.disk import Disk
from kraftlib.runtime.log_repair import LogRepair
from kraftlib.runtime.metrics import RaftMetrics
from kraftlib.runtime.ports import Answers, Core, Listeners, SnapshotSending, SnapshotTransfer
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
from kraftlib.types import LeaderAndEpoch, Offset, OffsetAndEpoch
from kraftlib.wire.messages.fetch import FetchResponse


def nothing(*_: object) -> None:
    """Do nothing."""


class Turns(Protocol):
    """The executor, as the performer of its actions sees it."""

    @property
    def is_stopped(self) -> bool:
        """Whether results of the disk are dropped."""
        ...

    def suspend_for(self, function: Callable[[], Any], after: Callable[[Any], None] = nothing) -> None:
        """Run `function` on the disk; nothing else happens until it is done. `after` takes its result."""
        ...

    def put_first(self, event: ev.Event) -> None:
        """Tell the core before anything else that has happened meanwhile."""
        ...

    def submit(self, event: ev.Event) -> None:
        """Tell the core what happened."""
        ...

    def fail(self, error: BaseException) -> None:
        """Stop for good."""
        ...

    def damage_found(self, offset: Offset, error: CorruptBatchError) -> None:
        """The record at `offset` cannot be read."""
        ...

    def look_at_space(self) -> None:
        """Note whether the disk is full."""
        ...

    def note_role(self) -> None:
        """Note the role that the core has now."""
        ...

    def leader_announced(self, leader: LeaderAndEpoch) -> None:
        """Note the leader."""
        ...

    def leadership_over(self) -> None:
        """Note that this replica leads no more."""
        ...


StateAction = act.TakeSnapshot | act.QuarantineState | act.ReloadState
"""The actions on the state of the state machine."""


class Performer:
    """Performs the actions of one replica; `actions` has one method for each kind of them."""

    def __init__(
        self,
        turns: Turns,
        core: Core,
        *,
        config: RaftConfig,
        log: ReplicatedLog,
        elections: QuorumStateStore,
        disk: Disk,
        network: Answers,
        sender: SnapshotSending,
        snapshots: SnapshotTransfer,
        listeners: Listeners,
        metrics: RaftMetrics,
        appends: Appends,
        barriers: Barriers,
        repair: LogRepair | None,
        on_shutdown_complete: Callable[[], None],
        on_snapshot_lost: Callable[[OffsetAndEpoch], None],
        on_state: Callable[[StateAction], None],
    ) -> None:
        self.high_watermark: Offset | None = None
        self._turns = turns
        self._core = core
        self._voter_ids = tuple(voter.id for voter in config.voters)
        self._log = log
        self._elections = elections
        self._disk = disk
        self._network = network
        self._sender = sender
        self._snapshots = snapshots
        self._listeners = listeners
        self._metrics = metrics
        self._appends = appends
        self._barriers = barriers
        self._repair = repair
        self._on_shutdown_complete = on_shutdown_complete
        self._on_snapshot_lost = on_snapshot_lost
        self._noting = capabilities_of(log).note if config.sync_note == "auto" else None
        self._is_noted: bool | None = None
        """The last value that `sync_note` of the log was given."""
        self._flushing = False
        self._flush_version = 0
        self._next_flush_version: int | None = None
        self._flush_began_ns = 0
        self._last_answer: tuple[FetchResponse | None, tuple[Offset, int], Sequence[Batch]] = None, (0, 0), ()
        self.actions: Final[dict[type, Callable[[Any], None]]] = {
            act.PersistElection: self._persist_election,
            act.BeginEpoch: self._begin_epoch,
            act.AppendToLog: self._append_to_log,
            act.TruncateLog: self._truncate_log,
            act.WriteRepair: self._write_repair,
            act.FlushLog: self._flush_log,
            act.SendRequest: self._send_request,
            act.SendResponse: self._send_response,
            act.SendRecords: self._send_records,
            act.AnswerObservers: self._answer_observers,
            act.SendSnapshotChunk: self._send_snapshot_chunk,
            act.WriteSnapshotChunk: self._write_snapshot_chunk,
            act.HashDownload: self._hash_download,
            act.SendSnapshotHash: self._send_snapshot_hash,
            act.DropSnapshotDownload: self._drop_snapshot_download,
            act.InstallSnapshot: self._install_snapshot,
            act.AdoptSnapshot: self._adopt_snapshot,
            act.SetSnapshotAside: self._set_snapshot_aside,
            act.DeleteBefore: self._delete_before,
            act.AdvanceHighWatermark: self._advance_high_watermark,
            act.AcceptAppends: self._accept_appends,
            act.RefuseAppends: self._refuse_appends,
            act.SubmitControl: self._submit_control,
            act.AnnounceLeader: self._announce_leader,
            act.PassReadBarrier: self._pass_read_barrier,
            act.RefuseReadBarrier: self._refuse_read_barrier,
            act.TakeSnapshot: on_state,
            act.QuarantineState: on_state,
            act.ReloadState: on_state,
            act.ShutdownComplete: self._shutdown_complete,
        }

    # --- the disk ----------------------------------------------------------------------------------------------------

    def _persist_election(self, action: act.PersistElection) -> None:
        self._turns.note_role()

        def write() -> None:
            self._elections.write(action.election, kraft_version=action.kraft_version, voters=self._voter_ids)

        self._turns.suspend_for(write)

    def _truncate_log(self, action: act.TruncateLog) -> None:
        self._turns.suspend_for(
            lambda: self._log.truncate(action.end_offset),
            lambda end_offset: self._turns.put_first(ev.LogTruncated(end_offset)),
        )

    def _write_repair(self, action: act.WriteRepair) -> None:
        repair = self._repair
        if repair is None:
            raise InvariantError("a log that is repaired can be")
        self._turns.suspend_for(lambda: repair.write(action.batches), self._repaired)

    def _repaired(self, event: ev.Repaired | ev.RepairWritten | ev.RepairRefused) -> None:
        self._turns.put_first(event)
        if isinstance(event, ev.Repaired) and self.high_watermark is not None:
            self._listeners.advance(self.high_watermark)  # listeners that stood before the hole go on

    def _write_snapshot_chunk(self, action: act.WriteSnapshotChunk) -> None:
        self._turns.suspend_for(lambda: self._snapshots.write(action), self._turns.put_first)

    def _hash_download(self, action: act.HashDownload) -> None:
        self._snapshots.hash_download(action, self._turns.submit)

    def _send_snapshot_hash(self, action: act.SendSnapshotHash) -> None:
        self._sender.hash(action, lambda response: self._network.respond(action.request_id, response))

    def _drop_snapshot_download(self, action: act.DropSnapshotDownload) -> None:
        self._turns.suspend_for(self._snapshots.drop)

    def _install_snapshot(self, action: act.InstallSnapshot) -> None:
        self._turns.suspend_for(lambda: self._snapshots.install(action.snapshot_id), self._turns.put_first)

    def _adopt_snapshot(self, action: act.AdoptSnapshot) -> None:
        self._turns.suspend_for(lambda: self._snapshots.adopt(action.snapshot_id), self._turns.put_first)

    def _set_snapshot_aside(self, action: act.SetSnapshotAside) -> None:
        def lost(event: ev.SnapshotLost) -> None:
            self._turns.put_first(event)
            self._on_snapshot_lost(event.snapshot_id)
            if self.high_watermark is not None:
                self._listeners.advance(self.high_watermark)  # a listener that was to load it loads another one

        self._turns.suspend_for(lambda: self._snapshots.set_aside(action), lost)

    def _flush_log(self, action: act.FlushLog) -> None:
        if self._flushing:
            self._next_flush_version = action.log_version
        else:
            self._begin_flush(action.log_version)

    def _begin_flush(self, log_version: int) -> None:
        self._flushing, self._flush_version = True, log_version
        self._flush_began_ns = time.perf_counter_ns()
        if self._noting is not None and (is_noted := self._core.is_indispensable) is not self._is_noted:
            self._is_noted = self._noting.sync_note = is_noted
        self._disk.flush(self._log, self._flush_done)

    def _flush_done(self, end_offset: Any, error: BaseException | None) -> None:
        self._flushing = False
        if self._turns.is_stopped:
            return
        if error is not None:
            self._turns.fail(error)
            return
        self._metrics.flush_latency.record((time.perf_counter_ns() - self._flush_began_ns) / 1e6)
        flushed = ev.Flushed(end_offset, self._flush_version)
        next_version, self._next_flush_version = self._next_flush_version, None
        if next_version is not None:
            self._begin_flush(next_version)
        self._appends.flushed(end_offset)
        self._turns.look_at_space()
        self._turns.submit(flushed)

    # --- the log -----------------------------------------------------------------------------------------------------

    def _begin_epoch(self, action: act.BeginEpoch) -> None:
        self._log.begin_epoch(action.epoch, action.start_offset)

    def _append_to_log(self, action: act.AppendToLog) -> None:
        batches = action.batches
        self._log.append(batches)
        self._turns.look_at_space()  # the append may have spent the reserve
        end_offset = batches[-1].last_offset + 1
        if self._appends.leads:
            self._appends.written(end_offset)
        else:
            self._metrics.fetched.record(end_offset - batches[0].base_offset)

    def _delete_before(self, action: act.DeleteBefore) -> None:
        if self._repair is not None and self._repair.is_needed:
            # Damaged batches are stepped over, which copies segments and syncs them.
            self._turns.suspend_for(lambda: self._log.delete_before(action.snapshot_id))
        else:
            self._log.delete_before(action.snapshot_id)

    def _advance_high_watermark(self, action: act.AdvanceHighWatermark) -> None:
        high_watermark = self.high_watermark = action.high_watermark
        self._appends.committed(high_watermark)
        self._listeners.advance(high_watermark)

    # --- the network -------------------------------------------------------------------------------------------------

    def _send_request(self, action: act.SendRequest[Any]) -> None:
        self._network.send(action.correlation_id, action.destination, action.endpoint, action.request)

    def _send_response(self, action: act.SendResponse) -> None:
        self._network.respond(action.request_id, action.response)

    def _send_records(self, action: act.SendRecords) -> None:
        self._respond_records((action.request_id,), action.response, action.start_offset, action.max_bytes, None)

    def _answer_observers(self, action: act.AnswerObservers) -> None:
        if action.start_offset is None:
            self._network.respond_records(action.request_ids, action.response, ())
        else:
            place = action.start_offset, action.max_bytes, action.end_offset
            self._respond_records(action.request_ids, action.response, *place)

    def _respond_records(
        self,
        request_ids: Sequence[int],
        response: FetchResponse,
        start_offset: Offset,
        max_bytes: int,
        end_offset: Offset | None,
    ) -> None:
        # One answer is made for all followers that wait at one offset: its records are read once.
        question = (start_offset, max_bytes)
        if response is not self._last_answer[0] or question != self._last_answer[1]:
            try:
                batches = self._log.read(start_offset, max_bytes)
                if end_offset is not None:
                    batches = [batch for batch in batches if batch.end_offset <= end_offset]
            except CorruptBatchError as error:
                # The follower gets no bytes, so that it gets no wrong ones: it asks again, and finds another leader.
                for request_id in request_ids:
                    self._network.respond(request_id, None)
                self._turns.damage_found(start_offset, error)
                return
            self._last_answer = response, question, batches
        self._network.respond_records(request_ids, response, self._last_answer[2])

    def _send_snapshot_chunk(self, action: act.SendSnapshotChunk) -> None:
        self._sender.when_checked(action, lambda: self._network.respond(action.request_id, self._sender.chunk(action)))

    # --- leadership --------------------------------------------------------------------------------------------------

    def _accept_appends(self, action: act.AcceptAppends) -> None:
        self._appends.accept(action.epoch, action.base_offset)

    def _refuse_appends(self, action: act.RefuseAppends) -> None:
        self._appends.refuse(action.epoch, self.high_watermark or 0)
        self._listeners.leadership_over()
        self._turns.leadership_over()

    def _pass_read_barrier(self, action: act.PassReadBarrier) -> None:
        self._barriers.passed(action.request, action.offset)

    def _refuse_read_barrier(self, action: act.RefuseReadBarrier) -> None:
        self._barriers.refused(action.request, action.error)

    def _submit_control(self, action: act.SubmitControl) -> None:
        self._appends.append_control(action.records)

    def _announce_leader(self, action: act.AnnounceLeader) -> None:
        self._listeners.announce(action.leader, epoch_start=action.epoch_start_offset)
        self._turns.leader_announced(action.leader)

    def _shutdown_complete(self, action: act.ShutdownComplete) -> None:
        self._on_shutdown_complete()
