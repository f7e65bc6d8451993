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
election store or the core stops the replica for good (fail-stop): a disk that failed once may report success the next
time although it failed, and a core with a bug must not vote.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

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
from kraftlib.runtime.log_repair import repair_of
from kraftlib.runtime.metrics import RaftMetrics
from kraftlib.runtime.performer import Performer, StateAction, nothing
from kraftlib.runtime.ports import Answers, Core, Listeners, SnapshotSending, SnapshotTransfer
from kraftlib.runtime.waiters import Promise, Waiters
from kraftlib.storage.interface import QuorumStateStore, ReplicatedLog
from kraftlib.types import LeaderAndEpoch, Offset, OffsetAndEpoch

logger = logging.getLogger("kraftlib.runtime.executor")


class Executor:
    """One replica at work. `submit` takes events; records go to `appends`.

    `clock` gives the ms in which the core thinks, `wall_clock` ms since 1970; `call_soon` has a function called from
    the loop, never at once; `set_timer` asks for `timer_fired` at a time of `clock`, in place of the time asked for
    before.
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
        sender: SnapshotSending,
        snapshots: SnapshotTransfer,
        waiters: Waiters,
        listeners: Listeners,
        metrics: RaftMetrics,
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        set_timer: Callable[[int], None],
        on_failure: Callable[[ReplicaFailedError], None],
        on_leader: Callable[[LeaderAndEpoch], None] = nothing,
        on_shutdown_complete: Callable[[], None] = nothing,
        on_snapshot_lost: Callable[[OffsetAndEpoch], None] = nothing,
        on_state: Callable[[StateAction], None] = nothing,
    ) -> None:
        self.core = core
        self.appends = Appends(
            core, config=config, waiters=waiters, metrics=metrics, clock=clock, wall_clock=wall_clock, wake=self.wake
        )
        self.barriers = Barriers(config.node_id, waiters, listeners)
        self.failure: ReplicaFailedError | None = None
        self.leader = LeaderAndEpoch(None, 0)
        """Leader and epoch of one moment, fit to be read by other threads."""
        self._node_id = config.node_id
        self._lingers = config.append_linger_ms > 0
        self._disk = disk
        self._metrics = metrics
        self._clock = clock
        self._call_soon = call_soon
        self._alarm = Alarm(core.deadline_ms, clock=clock, set_timer=set_timer)
        self._on_failure = on_failure
        self._on_leader = on_leader

        self._events: deque[ev.Event] = deque()
        self._actions: Iterator[act.Action] = iter(())
        self._running = False
        self._suspended = True  # until it is started
        self._after_disk: Callable[[Any], None] = nothing
        self._roomy = capabilities_of(log).space
        self._repair = repair_of(log)
        self._disk_full = False
        self._damaged_at: Offset | None = None
        """A record that could not be read; None once the disk was asked to look at it."""
        self._answers: deque[ev.Event] = deque()
        """Events from the disk, for which the core waits: it hears them in this order, before all others."""
        self.is_stopped = False
        """Whether it has stopped or failed. Results of the disk are then dropped."""
        self._woken = False
        self._role: Role | None = None
        self._performer = Performer(
            self,
            core,
            config=config,
            log=log,
            elections=elections,
            disk=disk,
            network=network,
            sender=sender,
            snapshots=snapshots,
            listeners=listeners,
            metrics=metrics,
            appends=self.appends,
            barriers=self.barriers,
            repair=self._repair,
            on_shutdown_complete=on_shutdown_complete,
            on_snapshot_lost=on_snapshot_lost,
            on_state=on_state,
        )

    @property
    def high_watermark(self) -> Offset | None:
        """One past the last record known to be committed; None, while nothing is known."""
        return self._performer.high_watermark

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
        """Pass an event to the core, in the order of these calls."""
        if not self.is_stopped:
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
        if self.is_stopped:
            return
        try:
            if self._alarm.fired():
                self._events.append(ev.TimeoutReached())
        except Exception as error:  # noqa: BLE001 - fail-stop, whatever it is
            self.fail(error)
        self._run()

    def stop(self) -> None:
        """Stop. Pending work of the disk still ends, but its results are dropped."""
        if not self.is_stopped:
            self._halt()
            self.appends.close()

    def fail(self, error: BaseException) -> None:
        """Stop for good, because of the disk or a bug."""
        if self.is_stopped:
            return
        self._halt()
        failure = self.failure = self._failure(error)
        logger.critical("%s", failure, exc_info=error)
        self.appends.fail(lambda: self._failure(error))
        self._on_failure(failure)

    def _halt(self) -> None:
        self.is_stopped = self._suspended = True
        self._events.clear()
        self._answers.clear()

    def _failure(self, error: BaseException) -> ReplicaFailedError:
        failure = ReplicaFailedError(
            f"replica {self._node_id} stopped itself: {type(error).__name__}: {error}; records that it had not "
            f"acknowledged have an unknown outcome"
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
        if self._running or self._suspended or self.is_stopped:
            return
        self._running = True
        perform, events, appends, alarm = self._performer.actions, self._events, self.appends, self._alarm
        answers = self._answers
        handle, clock = self.core.handle, self._clock
        try:
            while True:
                for action in self._actions:
                    perform[type(action)](action)
                    if self._suspended:
                        return
                # An answer of the disk may name holes. If the core handled it after the look, it would replace the
                # holes that the look finds.
                if self._damaged_at is not None and not answers:
                    self._look_at_damage(self._damaged_at)
                    if self._suspended:
                        return
                elif answers or events:
                    alarm.stale = True
                    self._actions = iter(handle((answers or events).popleft(), clock()))
                elif not appends.pending or not self._drain():
                    break
            if self._lingers:
                if alarm.settle(self._linger_ms()):
                    self.note_role()
            elif not alarm.rests and alarm.settle():
                self.note_role()
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
            # After a pause of the process the core first finds out whether this is still the leader.
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

    def note_role(self) -> None:
        """Note the role that the core has now."""
        role = self.core.role
        if role is not self._role:
            self._role = role
            self.leader = self.core.leader_and_epoch
            self._metrics.role_changed(role)

    def leadership_over(self) -> None:
        """Note that this replica leads no more: it may have been announced when the core had resigned already."""
        self.note_role()
        self.leader = self.core.leader_and_epoch

    def leader_announced(self, leader: LeaderAndEpoch) -> None:
        """Note the leader, and tell the owner."""
        self.note_role()
        self.leader = leader
        self._on_leader(leader)

    # --- the disk ----------------------------------------------------------------------------------------------------

    def suspend_for(self, function: Callable[[], Any], after: Callable[[Any], None] = nothing) -> None:
        """Run `function` on the disk; nothing else happens until it is done. `after` takes its result."""
        self._suspended = True
        self._after_disk = after
        self._disk.run(function, self._resume)

    def _resume(self, result: Any, error: BaseException | None) -> None:
        if self.is_stopped:
            return
        if error is not None:
            self.fail(error)
            return
        self._suspended = False
        self._after_disk(result)
        self._run()

    def put_first(self, event: ev.Event) -> None:
        """Tell the core before anything else that has happened meanwhile, behind earlier answers of the disk."""
        self._answers.append(event)

    def look_at_space(self) -> None:
        """Note whether the disk is full, as the log has found out."""
        if self._roomy is None or self._roomy.is_full == self._disk_full or self.is_stopped:
            return
        full = self._disk_full = self._roomy.is_full
        what = "is full: no more records are taken until there is space" if full else "has space again"
        logger.log(logging.ERROR if full else logging.WARNING, "replica %d: the disk %s", self._node_id, what)
        self.appends.disk_full(full)
        self.submit(ev.DiskSpaceChanged(full))
        if full and not self.appends.fit_reserve:
            self.submit(ev.ResignRequested(self.appends.epoch))  # appends that were not drained are refused

    def damage_found(self, offset: Offset, error: CorruptBatchError) -> None:
        """The record at `offset` cannot be read: have the disk looked at, and tell the core what is missing.

        A log that cannot be repaired is not used any more.
        """
        if self._repair is None:
            self.fail(error)
        elif not self.is_stopped and not self._repair.is_known(offset):
            logger.error("replica %d: %s", self._node_id, error)
            self._damaged_at = offset
            self._run()

    def _look_at_damage(self, offset: Offset) -> None:
        repair = self._repair
        if repair is None:
            raise InvariantError("a log that is repaired can be")
        self._damaged_at = None
        self.suspend_for(lambda: repair.look(offset), self.put_first)
