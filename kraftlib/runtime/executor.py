"""Performs the actions of the core: the one loop that asyncio, threads and the simulator share.

The core handles an event and returns a list of actions. The executor performs them in order, and each may rely on the
ones before it. Three rules keep the order:

* **Blocking actions suspend.** PersistElection, TruncateLog, actions that write or remove a snapshot, and DeleteBefore
  if the log is damaged go to the disk; the rest of the list, and every later event, waits until they are done.
  Nothing that depends on a vote can leave before the vote is durable.
* **Flushes overlap.** One flush is in flight at most; batches that are appended meanwhile share the next. Its end is an
  event with the log version of its beginning.
* **Records come last.** The accumulator is drained right before its batches are handed to the core, never queued:
  between the two, leadership cannot be lost.

This module does not use asyncio: everything is a call or a callback on one thread. Any error of the log, the
election store or the core stops the replica for good (fail-stop): a disk that failed once may lie the second time, and
a core that is wrong must not vote.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.roles import Role
from kraftlib.errors import CorruptBatchError, InvariantError, ReplicaFailedError
from kraftlib.runtime.alarm import Alarm
from kraftlib.runtime.appends import Appends
from kraftlib.runtime.barriers import Barriers
from kraftlib.runtime.capabilities import capabilities_of
from kraftlib.runtime.disk import Disk
from kraftlib.runtime.log_repair import LogRepair, repair_of
from kraftlib.runtime.metrics import RaftMetrics
from kraftlib.runtime.ports import Answers, Core, Listeners, SnapshotTransfer
from kraftlib.runtime.waiters import Promise, Waiters
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
from kraftlib.types import LeaderAndEpoch, Offset, OffsetAndEpoch

logger = logging.getLogger("kraftlib.runtime.executor")


def _nothing(*_: object) -> None:
    pass


class Executor:
    """One replica at work. `submit` takes events; records go to `appends`.

    `clock` gives the ms in which the core thinks, `wall_clock` ms since 1970; `call_soon` has a function called from
    the loop, never at once; `set_timer` asks for `timer_fired` at a time of `clock`, in place of what was asked before.
    """

    def __init__(
        self,
        core: Core,
        *,
        config: RaftConfig,
        log: ReplicatedLog,
        elections: QuorumStateStore,
        disk: Disk,
        network: Answers,
        snapshots: SnapshotTransfer,
        waiters: Waiters,
        listeners: Listeners,
        metrics: RaftMetrics,
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        set_timer: Callable[[int], None],
        on_failure: Callable[[ReplicaFailedError], None],
        on_leader: Callable[[LeaderAndEpoch], None] = _nothing,
        on_shutdown_complete: Callable[[], None] = _nothing,
        on_snapshot_lost: Callable[[OffsetAndEpoch], None] = _nothing,
    ) -> None:
        self.core = core
        self.appends = Appends(
            core, config=config, waiters=waiters, metrics=metrics, clock=clock, wall_clock=wall_clock, wake=self.wake
        )
        self.barriers = Barriers(config.node_id, waiters, listeners)
        self.high_watermark: Offset | None = None
        self.failure: ReplicaFailedError | None = None
        self.leader = LeaderAndEpoch(None, 0)
        """Leader and epoch of one moment, fit to be read by other threads."""
        self._node_id = config.node_id
        self._lingers = config.append_linger_ms > 0
        self._voter_ids = tuple(voter.id for voter in config.voters)
        self._log = log
        self._elections = elections
        self._disk = disk
        self._network = network
        self._snapshots = snapshots
        self._listeners = listeners
        self._metrics = metrics
        self._clock = clock
        self._call_soon = call_soon
        self._alarm = Alarm(core.deadline_ms, clock=clock, set_timer=set_timer)
        self._on_failure = on_failure
        self._on_leader = on_leader
        self._on_shutdown_complete = on_shutdown_complete
        self._on_snapshot_lost = on_snapshot_lost

        self._events: deque[ev.Event] = deque()
        self._actions: Iterator[act.Action] = iter(())
        self._running = False
        self._suspended = True  # until it is started
        self._after_disk: Callable[[Any], None] = _nothing
        capabilities = capabilities_of(log)
        self._roomy = capabilities.space
        self._noting = capabilities.note if config.sync_note == "auto" else None
        self._repair = repair_of(log)
        self._disk_full = False
        self._damaged_at: Offset | None = None
        """A record that could not be read; None once the disk was asked to look at it."""
        self._answer: ev.Event | None = None
        """The last event that came from the disk while the core waited for it."""
        self._stopped = False
        self._woken = False
        self._role: Role | None = None
        self._flushing = False
        self._flush_version = 0
        self._next_flush_version: int | None = None
        self._flush_began_ns = 0
        self._perform: Final[dict[type, Callable[[Any], None]]] = {
            act.PersistElection: self._persist_election,
            act.BeginEpoch: self._begin_epoch,
            act.AppendToLog: self._append_to_log,
            act.TruncateLog: self._truncate_log,
            act.WriteRepair: self._write_repair,
            act.FlushLog: self._flush_log,
            act.SendRequest: self._send_request,
            act.SendResponse: self._send_response,
            act.SendRecords: self._send_records,
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
            act.ShutdownComplete: self._shutdown_complete,
        }

    # --- what the outside calls --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the replica begin."""
        self._suspended = False
        try:
            self._actions = iter(self.core.start(self._clock()))
        except Exception as error:  # noqa: BLE001 - fail-stop, whatever it is
            self.fail(error)
        self._run()

    def submit(self, event: ev.Event) -> None:
        """Tell the core what happened, in the order of these calls."""
        if not self._stopped:
            self._events.append(event)
            self._run()

    def read_barrier(self, promise: Promise, timeout_ms: int) -> None:
        """Settle `promise` once everything is applied here that was committed before; fail it after `timeout_ms`."""
        self.submit(ev.ReadBarrierRequested(self.barriers.add(promise), timeout_ms))

    def wake(self) -> None:
        """Look for records on the next turn of the loop, so that the appends of all tasks of this turn go together."""
        if not self._woken:
            self._woken = True
            self._call_soon(self._look)

    def timer_fired(self) -> None:
        """The time given to `set_timer` has come."""
        if self._stopped:
            return
        try:
            if self._alarm.fired():
                self._events.append(ev.TimeoutReached())
        except Exception as error:  # noqa: BLE001 - fail-stop, whatever it is
            self.fail(error)
        self._run()

    def stop(self) -> None:
        """Stop. Pending work of the disk still ends, but its results are dropped."""
        if not self._stopped:
            self._halt()
            self.appends.close()

    def fail(self, error: BaseException) -> None:
        """Stop for good, because of the disk or a bug."""
        if self._stopped:
            return
        self._halt()
        failure = self.failure = self._failure(error)
        logger.critical("%s", failure, exc_info=error)
        self.appends.fail(lambda: self._failure(error))
        self._on_failure(failure)

    def _halt(self) -> None:
        self._stopped = self._suspended = True
        self._events.clear()

    def _failure(self, error: BaseException) -> ReplicaFailedError:
        failure = ReplicaFailedError(
            f"replica {self._node_id} stopped itself: {type(error).__name__}: {error}; what it had not acknowledged "
            f"has an unknown outcome"
        )
        failure.__cause__ = error
        return failure

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._woken = False
        self._run()

    def _run(self) -> None:
        """Perform, handle and drain until there is nothing left, or until the disk has to be waited for.

        Events that are submitted meanwhile (a response within one process comes at once) are queued and handled
        here, so the stack never grows.
        """
        if self._running or self._suspended or self._stopped:
            return
        self._running = True
        perform, events, appends, alarm = self._perform, self._events, self.appends, self._alarm
        handle, clock = self.core.handle, self._clock
        try:
            while True:
                for action in self._actions:
                    perform[type(action)](action)
                    if self._suspended:
                        return
                if self._damaged_at is not None and self._may_look_at_damage():
                    self._look_at_damage(self._damaged_at)
                    if self._suspended:
                        return
                elif events:
                    alarm.stale = True
                    self._actions = iter(handle(events.popleft(), clock()))
                elif not appends.pending or not self._drain():
                    break
            if self._alarm.settle(self._linger_ms() if self._lingers else None):
                self._note_role()
        except Exception as error:  # noqa: BLE001 - fail-stop, whatever it is
            self.fail(error)
        except BaseException as error:
            self.fail(error)  # an action may be half done
            raise
        finally:
            self._running = False

    def _drain(self) -> bool:
        """Pass appended batches to the core, if it can use them now; return whether there is more to do."""
        if not self.core.wants_records:
            return False
        now_ms = self._clock()
        if self._alarm.is_over(now_ms):
            # After a pause of the process: is this still the leader? That comes before any new promise.
            self._events.append(ev.TimeoutReached())
            return True
        batches = self.appends.drain(now_ms)
        if not batches:
            return False
        self._alarm.stale = True
        self._actions = iter(self.core.handle(ev.RecordsSubmitted(batches, self.appends.epoch), now_ms))
        return True

    def _linger_ms(self) -> int | None:
        return self.appends.next_deadline_ms() if self.core.wants_records else None

    def _note_role(self) -> None:
        role = self.core.role
        if role is not self._role:
            self._role = role
            self.leader = self.core.leader_and_epoch
            self._metrics.role_changed(role)

    # --- the disk ----------------------------------------------------------------------------------------------------

    def _suspend_for(self, function: Callable[[], Any], after: Callable[[Any], None] = _nothing) -> None:
        """Run `function` on the disk; nothing else happens until it is done. `after` takes its result."""
        self._suspended = True
        self._after_disk = after
        self._disk.run(function, self._resume)

    def _resume(self, result: Any, error: BaseException | None) -> None:
        if self._stopped:
            return
        if error is not None:
            self.fail(error)
            return
        self._suspended = False
        self._after_disk(result)
        self._run()

    def _put_first(self, event: ev.Event) -> None:
        """Tell the core before anything else that has happened meanwhile."""
        self._answer = event
        self._events.appendleft(event)

    def _persist_election(self, action: act.PersistElection) -> None:
        self._note_role()

        def write() -> None:
            self._elections.write(action.election, kraft_version=action.kraft_version, voters=self._voter_ids)

        self._suspend_for(write)

    def _truncate_log(self, action: act.TruncateLog) -> None:
        self._suspend_for(
            lambda: self._log.truncate(action.end_offset),
            lambda end_offset: self._put_first(ev.LogTruncated(end_offset)),
        )

    def look_at_space(self) -> None:
        """Note whether the disk is full, as the log has found out."""
        if self._roomy is None or self._roomy.is_full == self._disk_full or self._stopped:
            return
        full = self._disk_full = self._roomy.is_full
        what = "is full: no more records are taken until there is space" if full else "has space again"
        logger.log(logging.ERROR if full else logging.WARNING, "replica %d: the disk %s", self._node_id, what)
        self.appends.disk_full(full)
        self.submit(ev.DiskSpaceChanged(full))

    def damage_found(self, offset: Offset, error: CorruptBatchError) -> None:
        """The record at `offset` cannot be read: have the disk looked at, and tell the core what is missing.

        A log that cannot be repaired is not used any more.
        """
        if self._repair is None:
            self.fail(error)
        elif not self._stopped and not self._repair.is_known(offset):
            logger.error("replica %d: %s", self._node_id, error)
            self._damaged_at = offset
            self._run()

    def _may_look_at_damage(self) -> bool:
        """Whether the core knows all that the log does; the look makes the log know more, and the core hears it next.

        What was decided before is done by then, to a log that still takes it. What the disk answered last may say which
        holes there were: the core hears that first, else it would forget what the look finds.
        """
        return not self._events or self._events[0] is not self._answer

    def _look_at_damage(self, offset: Offset) -> None:
        repair = self._repair_needed()
        self._damaged_at = None
        self._suspend_for(lambda: repair.look(offset), self._put_first)

    def _repair_needed(self) -> LogRepair:
        if self._repair is None:
            raise InvariantError("a log that is repaired can be")
        return self._repair

    def _write_repair(self, action: act.WriteRepair) -> None:
        repair = self._repair_needed()
        self._suspend_for(lambda: repair.write(action.batches), self._repaired)

    def _repaired(self, event: ev.Repaired | ev.RepairWritten | ev.RepairRefused) -> None:
        self._put_first(event)
        if isinstance(event, ev.Repaired) and self.high_watermark is not None:
            self._listeners.advance(self.high_watermark)  # who stood before the hole goes on

    def _write_snapshot_chunk(self, action: act.WriteSnapshotChunk) -> None:
        self._suspend_for(lambda: self._snapshots.write(action), self._put_first)

    def _hash_download(self, action: act.HashDownload) -> None:
        self._snapshots.hash_download(action, self.submit)

    def _send_snapshot_hash(self, action: act.SendSnapshotHash) -> None:
        self._snapshots.hash(action, lambda response: self._network.respond(action.request_id, response))

    def _drop_snapshot_download(self, action: act.DropSnapshotDownload) -> None:
        self._suspend_for(self._snapshots.drop)

    def _install_snapshot(self, action: act.InstallSnapshot) -> None:
        self._suspend_for(lambda: self._snapshots.install(action.snapshot_id), self._put_first)

    def _adopt_snapshot(self, action: act.AdoptSnapshot) -> None:
        self._suspend_for(lambda: self._snapshots.adopt(action.snapshot_id), self._put_first)

    def _set_snapshot_aside(self, action: act.SetSnapshotAside) -> None:
        def lost(event: ev.SnapshotLost) -> None:
            self._put_first(event)
            self._on_snapshot_lost(event.snapshot_id)
            if self.high_watermark is not None:
                self._listeners.advance(self.high_watermark)  # who was to load it loads another one

        self._suspend_for(lambda: self._snapshots.set_aside(action), lost)

    def _flush_log(self, action: act.FlushLog) -> None:
        if self._flushing:
            self._next_flush_version = action.log_version
        else:
            self._begin_flush(action.log_version)

    def _begin_flush(self, log_version: int) -> None:
        self._flushing, self._flush_version = True, log_version
        self._flush_began_ns = time.perf_counter_ns()
        if self._noting is not None:
            self._noting.sync_note = self.core.is_indispensable
        self._disk.flush(self._log, self._flush_done)

    def _flush_done(self, end_offset: Any, error: BaseException | None) -> None:
        self._flushing = False
        if self._stopped:
            return
        if error is not None:
            self.fail(error)
            return
        self._metrics.flush_latency.record((time.perf_counter_ns() - self._flush_began_ns) / 1e6)
        flushed = ev.Flushed(end_offset, self._flush_version)
        next_version, self._next_flush_version = self._next_flush_version, None
        if next_version is not None:
            self._begin_flush(next_version)
        self.appends.flushed(end_offset)
        self.look_at_space()
        self.submit(flushed)

    # --- the log -----------------------------------------------------------------------------------------------------

    def _begin_epoch(self, action: act.BeginEpoch) -> None:
        self._log.begin_epoch(action.epoch, action.start_offset)

    def _append_to_log(self, action: act.AppendToLog) -> None:
        batches = action.batches
        self._log.append(batches)
        end_offset = batches[-1].last_offset + 1
        if self.appends.leads:
            self.appends.written(end_offset)
        else:
            self._metrics.fetched.record(end_offset - batches[0].base_offset)

    def _delete_before(self, action: act.DeleteBefore) -> None:
        if self._repair is not None and self._repair.is_needed:
            # What is damaged is stepped over, which copies segments and syncs them.
            self._suspend_for(lambda: self._log.delete_before(action.snapshot_id))
        else:
            self._log.delete_before(action.snapshot_id)

    def _advance_high_watermark(self, action: act.AdvanceHighWatermark) -> None:
        high_watermark = self.high_watermark = action.high_watermark
        self.appends.committed(high_watermark)
        self._listeners.advance(high_watermark)

    # --- the network -------------------------------------------------------------------------------------------------

    def _send_request(self, action: act.SendRequest[Any]) -> None:
        self._network.send(action.correlation_id, action.destination, action.endpoint, action.request)

    def _send_response(self, action: act.SendResponse) -> None:
        self._network.respond(action.request_id, action.response)

    def _send_records(self, action: act.SendRecords) -> None:
        try:
            batches = self._log.read(action.start_offset, action.max_bytes)
        except CorruptBatchError as error:
            # Whoever asked gets no wrong bytes, and no right ones either: it asks again, and finds another leader.
            self._network.respond(action.request_id, None)
            self.damage_found(action.start_offset, error)
            return
        self._network.respond_records(action.request_id, action.response, batches)

    def _send_snapshot_chunk(self, action: act.SendSnapshotChunk) -> None:
        self._snapshots.when_checked(
            action, lambda: self._network.respond(action.request_id, self._snapshots.chunk(action))
        )

    # --- leadership --------------------------------------------------------------------------------------------------

    def _accept_appends(self, action: act.AcceptAppends) -> None:
        self.appends.accept(action.epoch, action.base_offset)

    def _refuse_appends(self, action: act.RefuseAppends) -> None:
        self.appends.refuse(action.epoch, self.high_watermark or 0)
        self._listeners.leadership_over()
        self._note_role()

    def _pass_read_barrier(self, action: act.PassReadBarrier) -> None:
        self.barriers.passed(action.request, action.offset)

    def _refuse_read_barrier(self, action: act.RefuseReadBarrier) -> None:
        self.barriers.refused(action.request, action.error)

    def _submit_control(self, action: act.SubmitControl) -> None:
        self.appends.append_control(action.records)

    def _announce_leader(self, action: act.AnnounceLeader) -> None:
        self._listeners.announce(action.leader, epoch_start=action.epoch_start_offset)
        self._note_role()
        self.leader = action.leader
        self._on_leader(action.leader)

    def _shutdown_complete(self, action: act.ShutdownComplete) -> None:
        self._on_shutdown_complete()
