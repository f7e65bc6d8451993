"""The parts of one replica, put together: a node and the simulator run the same.

    network - router - executor - core            messages, events and actions
                          |
              disk, log, election store           what blocks
                          |
         appends, waiters, applier                what the application gives and gets
                          |
       housekeeping, increments, checks           snapshots, retention, the scrub, in the background

Given are the stores, the network behind the router, and what time, disk and background are: threads and an asyncio loop
in a process, a timeline in the simulator. Parts that know each other both ways do so through the methods at the end of
`Assembly`, which connect them.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kraftlib.config import RaftConfig
from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.errors import CorruptBatchError, ReplicaFailedError
from kraftlib.frozen import immutable
from kraftlib.records.serde import RecordSerde
from kraftlib.runtime.applier import Applier
from kraftlib.runtime.background import Background
from kraftlib.runtime.committed import CommittedBatch
from kraftlib.runtime.disk import Disk
from kraftlib.runtime.executor import Executor
from kraftlib.runtime.housekeeping import Housekeeping
from kraftlib.runtime.listener import Listener, StateMachine, StateMachineListener
from kraftlib.runtime.loop import Loop, Timer
from kraftlib.runtime.metrics import RaftMetrics
from kraftlib.runtime.opening import Opened
from kraftlib.runtime.performer import StateAction
from kraftlib.runtime.ports import Core
from kraftlib.runtime.router import Router
from kraftlib.runtime.snapshots.checks import SnapshotChecks
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine, Increments
from kraftlib.runtime.snapshots.sending import SnapshotSender
from kraftlib.runtime.snapshots.transfer import LogSnapshots
from kraftlib.runtime.waiters import Post, Waiters, call_here
from kraftlib.types import Endpoint, LeaderAndEpoch, Offset, OffsetAndEpoch

if TYPE_CHECKING:
    from kraftlib.runtime.digests import Digester


def _nothing(*_: object) -> None:
    pass


@immutable(kw_only=True)
class Surroundings:
    """Time, threads, network and chance of a replica: everything below it but its stores."""

    loop: Loop
    disk: Disk
    """Where the executor waits for the disk."""
    background: Background
    router: Router
    random: chance.Random


@immutable(kw_only=True)
class Application:
    """The application on a replica. `post` has the promises of callers settled where they wait."""

    serde: RecordSerde[Any]
    state_machine: StateMachine | None
    listeners: Iterable[Listener] = ()
    post: Post = call_here


@immutable(kw_only=True)
class Owner:
    """Calls to the owner of a replica."""

    failed: Callable[[ReplicaFailedError], None]
    """The replica has stopped itself."""
    machine_failed: Callable[[ReplicaFailedError], None] = _nothing
    """The state machine was stopped; the replica continues for the others, and does not lead any more."""
    leader_known: Callable[[LeaderAndEpoch], None] = _nothing
    shutdown_complete: Callable[[], None] = _nothing
    """It leads no more, as it was asked to."""
    timer_fired: Callable[[], None] = _nothing
    """The core has had its time."""


class Assembly:
    """The parts of one replica. `watched` may put another core around the one that decides.

    `make_increments` is called as `Increments` is.
    """

    def __init__(
        self,
        config: RaftConfig,
        opened: Opened,
        surroundings: Surroundings,
        application: Application,
        owner: Owner,
        *,
        endpoints: Mapping[str, Endpoint],
        watched: Callable[[Replica], Core] = lambda core: core,
        make_increments: Callable[..., Increments] = Increments,
    ) -> None:
        loop, background, router = surroundings.loop, surroundings.background, surroundings.router
        log, machine = opened.log, application.state_machine
        self._loop = loop
        self._background = background
        self._owner = owner
        self._timer: Timer | None = None
        self.waiters = Waiters(application.post)
        self.metrics = RaftMetrics(loop.now_ns)
        self.checks = SnapshotChecks(
            log, background=background.disk, on_damage=self._snapshot_damaged, step=background.step
        )
        snapshots = LogSnapshots(
            log, downloads=opened.downloads, background=background.disk, step=background.step, checks=self.checks
        )
        self.core = Replica(
            config,
            key=opened.key,
            cluster_id=opened.cluster_id,
            log=opened.view,
            election=opened.election,
            random=surroundings.random,
            endpoints=endpoints,
            wall_offset_ms=loop.wall_ms() - loop.now_ms(),
            kept=snapshots.kept(),
        )
        self.increments = self._make_increments(config, opened, application, make_increments)
        self.digester = self._make_digester(config, surroundings, application)
        self.applier = Applier(
            node_id=config.node_id,
            log=log,
            serde=application.serde,
            waiters=self.waiters,
            call_soon=loop.call_soon,
            call_soon_threadsafe=loop.call_soon_threadsafe,
            on_failure=self.fail,
            on_machine_failed=self._machine_failed,
            on_damage=self._damage_found,
            post=application.post,
            clock_ns=loop.now_ns,
            on_applied=self._applied,
            increments=self.increments,
            checks=self.checks,
            skipped=[(skip.offset, skip.epoch) for skip in opened.skips],
            cut=len if self.digester is None else self.digester.cut,
            on_loaded=_nothing if self.digester is None else self.digester.loaded,
            on_healed=self._healed,
        )
        self.executor = Executor(
            watched(self.core),
            config=config,
            log=log,
            elections=opened.elections,
            disk=surroundings.disk,
            network=router,
            sender=SnapshotSender(log, background=background.disk, step=background.step, checks=self.checks),
            snapshots=snapshots,
            waiters=self.waiters,
            listeners=self.applier,
            metrics=self.metrics,
            clock=loop.now_ms,
            wall_clock=loop.wall_ms,
            call_soon=loop.call_soon,
            set_timer=self._set_timer,
            on_failure=self._failed,
            on_leader=owner.leader_known,
            on_shutdown_complete=owner.shutdown_complete,
            on_snapshot_lost=self._snapshot_lost,
            on_state=self._state_decided,
        )
        self.appends = self.executor.appends
        self.housekeeping = Housekeeping(
            config,
            opened,
            loop=loop,
            background=background,
            executor=self.executor,
            applier=self.applier,
            view=self.core.state.log,
            machine=machine,
            serde=application.serde,
            increments=self.increments,
            checks=self.checks,
        )
        if machine is not None:
            self.applier.register(self._feeding(machine), state_machine=True)
        for listener in application.listeners:
            self.applier.register(listener)
        router.connect_core(self.executor)

    def _make_increments(
        self, config: RaftConfig, opened: Opened, application: Application, make: Callable[..., Increments]
    ) -> Increments | None:
        """Return the increments of a state machine that knows its changes, where they can be stored."""
        if opened.increments is None:
            return None
        opened.increments.find()
        machine, step = application.state_machine, self._background.step
        if not isinstance(machine, IncrementalStateMachine) or not config.increments_max:
            return None
        return make(
            opened.log, opened.increments, machine, application.serde, chain_max=config.increments_max, step=step
        )

    def _make_digester(
        self, config: RaftConfig, surroundings: Surroundings, application: Application
    ) -> Digester | None:
        machine = application.state_machine
        if not config.digest_interval_ms or machine is None:
            return None
        from kraftlib.runtime.digests import Digester  # most replicas compare no states

        return Digester(
            config.digest_interval_ms,
            machine,
            serde=application.serde,
            loop=surroundings.loop,
            background=surroundings.background.disk,
            applied_offset=lambda: self.applier.settled_offset,
            submit=lambda event: self.executor.submit(event),
            step=surroundings.background.step,
        )

    def _feeding(self, machine: StateMachine) -> StateMachineListener:
        return StateMachineListener(
            machine,
            deliver=self._deliver,
            wants_results=lambda: self.waiters.wants_results,
            background=self._background.disk,
            step=self._background.step,
        )

    def now_ms(self) -> int:
        """Return the time in which the core thinks."""
        return self._loop.now_ms()

    # --- beginning and end -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the replica begin. Whether that has failed, `executor.failure` says."""
        self.executor.start()
        if self.executor.failure is None:
            self.housekeeping.start()
            if self.digester is not None:
                self.digester.start()

    def stop(self) -> None:
        """Stop. Pending work of the disk and the background still ends, but its results are dropped."""
        self._rest()
        self.executor.stop()

    def fail(self, error: BaseException) -> None:
        """Stop the replica for good, because of `error`."""
        self.executor.fail(error)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.housekeeping.stop()
        if self.digester is not None:
            self.digester.stop()
        self.applier.close()

    # --- the core's time ---------------------------------------------------------------------------------------------

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline_ms, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        # The wall clock may be set while we run; the clock that the core thinks in may not.
        self.core.wall_offset_ms = self._loop.wall_ms() - self._loop.now_ms()
        self.executor.timer_fired()
        self._owner.timer_fired()

    # --- who hears what ----------------------------------------------------------------------------------------------

    def _failed(self, failure: ReplicaFailedError) -> None:
        """The executor has stopped for good."""
        self._rest()
        self._owner.failed(failure)

    def _machine_failed(self, failure: ReplicaFailedError) -> None:
        """The applier has stopped the state machine: it continues for the others, and does not lead any more."""
        self.appends.renounce()
        self.executor.submit(ev.StateMachineFailed())
        self._owner.machine_failed(failure)

    def _deliver(self, end_offset: Offset, base_offset: Offset, results: Sequence[Any]) -> None:
        """The state machine has results for waiting callers."""
        self.waiters.applied(end_offset, base_offset=base_offset, results=results)

    def _applied(self, batches: Sequence[CommittedBatch]) -> None:
        """The state machine was given these: a digest or a snapshot may be due."""
        if self.digester is not None:
            self.digester.applied(batches)
        self.housekeeping.snapshotter.applied(batches)

    def _damage_found(self, offset: Offset, error: CorruptBatchError) -> None:
        """The applier cannot read a record."""
        self.executor.damage_found(offset, error)

    def _snapshot_damaged(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        """A stored snapshot was found damaged: the core decides what replaces it."""
        self.executor.submit(ev.SnapshotDamaged(snapshot_id, reason))

    def _snapshot_lost(self, snapshot_id: OffsetAndEpoch) -> None:
        """A damaged snapshot was set aside."""
        self.housekeeping.snapshot_lost(snapshot_id)

    # --- the state is compared with that of others -------------------------------------------------------------------

    def _state_decided(self, action: StateAction) -> None:
        """The core has decided on the state of the state machine."""
        match action:
            case act.TakeSnapshot():
                self._loop.call_soon(self.housekeeping.snapshotter.renew)
            case act.ReloadState(snapshot_id=snapshot_id):
                self.applier.reload(snapshot_id)
            case act.QuarantineState(offset=offset):
                failure = ReplicaFailedError(
                    f"the state of this replica differs from that of the majority at offset {offset}: it is in "
                    f"quarantine until a snapshot of the leader has healed it; ask another replica, or try again later"
                )
                self.appends.renounce()
                self.housekeeping.snapshotter.suspend(failure)
                self.applier.quarantine(failure, "the state of this replica was found to be wrong")

    def _healed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The state machine has loaded a good snapshot."""
        self.appends.resume()
        self.housekeeping.snapshotter.suspended = None
        self.executor.submit(ev.StateHealed(snapshot_id))
