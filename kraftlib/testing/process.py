"""One life of a replica on a simulated machine.

The real parts run: the assembly that a node runs, with its core, executor, applier and housekeeping. Only the platform
below them is simulated.
"""

from __future__ import annotations

import enum
import random as chance
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import ConfigError, CorruptBatchError, ReplicaFailedError
from kraftlib.records.batch import Batch
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.assembly import Application, Assembly, Owner, Surroundings
from kraftlib.runtime.disk import Done
from kraftlib.runtime.net import api_versions
from kraftlib.runtime.net.transport import Peer
from kraftlib.runtime.opening import Opened, check_static_voters, view_of
from kraftlib.runtime.router import Router
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.disk import InjectedStorageError, SimulatedElections, SimulatedLog
from kraftlib.testing.incremental import WatchedIncrements
from kraftlib.testing.network import Port
from kraftlib.testing.reads import checksum
from kraftlib.testing.subject import is_incremental, watched
from kraftlib.testing.surroundings import SimulatedBackground, SimulatedHolds, SimulatedLoop
from kraftlib.testing.trace import Step
from kraftlib.testing.watched_core import WatchedCore
from kraftlib.types import ElectionState, Epoch, Offset, OffsetAndEpoch
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest

if TYPE_CHECKING:
    from kraftlib.testing.node import SimulatedNode
    from kraftlib.testing.world import World


class Ending(enum.IntEnum):
    """The way in which a life ended."""

    KILLED = 1
    """The process was killed: its writes are in the kernel's hands, and stay."""
    POWER_LOST = 2
    """The machine lost power: unflushed data may be lost; peers lose the connection once the machine is back."""
    FAILED = 3
    """It stopped itself because its disk failed."""
    SHUT_DOWN = 4
    """It ended as it was asked to."""


Doom = Callable[[act.Action], Ending | None]


def doom_after(count: int, random: chance.Random) -> Doom:
    """Return a doom that comes after so many actions."""
    left = iter(range(count))

    def doom(action: act.Action) -> Ending | None:
        if next(left, None) is not None:
            return None
        return Ending.POWER_LOST if random.random() < 0.5 else Ending.KILLED

    return doom


class Process:
    """One life of a replica. It is the receiver of its port, the observer of its log, and the watch over its core."""

    def __init__(self, world: World, node: SimulatedNode) -> None:
        """Open what the disk holds. Raises: ConfigError, if the configuration does not fit it."""
        self.node = node
        self.node_id = node.key.id
        self.running = False
        self.paused = False
        self.turns = 0
        """The number of calls of the core."""
        self.heard_us: dict[int, int] = {}
        """When each node last fetched from here, records or some of a snapshot."""
        self.moved_us: dict[int, int] = {}
        """When each node last fetched from somewhere else than before, or everything, or some of a snapshot."""
        self._fetched_from: dict[int, OffsetAndEpoch] = {}
        self.leads_since_us = 0
        self.began_us = world.timeline.now_us
        self.resumed_us = 0
        """When it went on after its last pause."""
        self.knows_full = False
        """Whether it has been told that its disk is full."""
        self.taken_bytes = 0
        """Bytes of records that it has written as leader since its disk is full."""
        self.doom: Doom | None = None
        """If set: asked before each action of the core whether this process ends there, and how."""
        self.last_event: ev.Event | None = None
        self.untold: set[OffsetAndEpoch] = set()
        """Snapshots that are stored, of which the core has not been told yet: the event waits for the disk."""
        self.world = world
        self._backlog: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

        config = node.config
        self._disk = node.disk
        self.log: SimulatedLog = SimulatedLog(node.log, node.disk, self, node.random)
        log = self.log
        elections = SimulatedElections(node.elections, node.disk, self)
        view, election = view_of(log, config), elections.read()
        check_static_voters(config, election, view, log)
        self.loop = SimulatedLoop(self, world.timeline, world.checker)
        self.background = SimulatedBackground(self, world.timeline)
        self.machine = watched(world, self)
        self.port = Port(world.network, self)
        self.router = Router()
        self.router.connect_network(self.port)
        parts = self._assembly = Assembly(
            attrs.evolve(config, snapshot_interval_records=world.snapshot_interval_records),
            Opened(
                key=node.key,
                cluster_id=world.cluster_id,
                log=log,
                elections=elections,
                election=election,
                view=view,
                holds=SimulatedHolds(node),
                downloads=None,
                increments=node.increments.files() if is_incremental(world.subject) else None,
            ),
            Surroundings(
                loop=self.loop,
                disk=self,
                background=self.background,
                router=self.router,
                random=chance.Random(node.random.getrandbits(64)),
            ),
            Application(serde=world.subject.serde, state_machine=self.machine, listeners=world.listeners(self)),
            Owner(failed=self._failed, shutdown_complete=self._handed_over),
            endpoints={config.listener_name: node.endpoint},
            watched=partial(WatchedCore, world, self),
            make_increments=partial(WatchedIncrements, world, self),
        )
        self.replica, self.executor, self.applier = parts.core, parts.executor, parts.applier
        self.waiters, self.metrics, self.housekeeping = parts.waiters, parts.metrics, parts.housekeeping
        self.retention = parts.housekeeping.retention
        # The checker's view of it.
        self.seen_role_state: Any = None
        self.seen_epoch: Epoch = self.replica.epoch
        self.seen_high_watermark: Offset | None = None
        self.highest_high_watermark: Offset = log.start_offset
        self.appended_end = log.end_offset
        self._election = election

    # --- life and death ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Listen and let the replica begin."""
        self.running = True
        self.world.network.join(self.port)
        self._assembly.start()
        self.look_at_space()

    def die(self, *, silently: bool) -> None:
        """Stop at once. Callers that waited here get no result."""
        self.running = self.paused = False
        self._backlog.clear()
        self.world.network.leave(self.port, silently=silently)
        self._assembly.stop()

    def pause(self) -> None:
        """Do nothing until `resume`, and do not notice."""
        if self.running:
            self.running, self.paused = False, True
            self.world.trace.add(self.world.timeline.now_us, Step.PAUSED, self.node_id)

    def resume(self) -> None:
        """Go on with everything that has come meanwhile; timers among it, somewhere."""
        if not self.paused:
            return
        self.running, self.paused = True, False
        self.resumed_us = self.world.timeline.now_us
        self.world.trace.add(self.world.timeline.now_us, Step.RESUMED, self.node_id)
        backlog, self._backlog = self._backlog, []
        timers = [call for call in backlog if call[0] == self.loop.fire]
        others = [call for call in backlog if call[0] != self.loop.fire]
        place = self.node.random.randint(0, len(others))
        for function, arguments in [*others[:place], *timers, *others[place:]]:
            self.world.timeline.after(0, self.deliver, function, *arguments)

    def deliver(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call `function` now, or when this process goes on, or never."""
        if self.running:
            function(*arguments)
        elif self.paused:
            self._backlog.append((function, arguments))

    def look_at_space(self) -> None:
        """Do what a replica does every second: look whether its disk is full, or has space again."""
        self.loop.call_soon(self._look_at_space)

    def _look_at_space(self) -> None:
        self.executor.look_at_space()
        self.knows_full = self.node.disk.full

    def take_snapshot(self, delay_us: int) -> bool:
        """Write a snapshot of the state machine as it stands, in so much time; return whether there is one to write."""
        offset = self.applier.applied_offset
        if any(stored.offset == offset for stored in self.log.snapshots()):
            return True  # it is there: an operator does not ask for it again
        try:
            with self.background.alone(delay_us):
                self.housekeeping.create(_ignored, None, None)
        except ConfigError:
            return False  # nothing new, or in the midst of a batch
        except CorruptBatchError as error:
            self.executor.damage_found(offset - 1, error)
            return False
        return True

    def snapshot_created(self, snapshot_id: OffsetAndEpoch) -> None:
        """The core is about to be told of a snapshot."""
        self.untold.discard(snapshot_id)
        if snapshot_id not in self.log.snapshots():
            return  # a newer one has replaced it meanwhile
        with SnapshotReader(self.log.open_snapshot(snapshot_id), epoch=snapshot_id.epoch) as reader:
            values: Sequence[Any] = [value for batch in reader.batches() for value in batch.values()]
            named = None if reader.voters is None else tuple(voter.key for voter in VoterSet.from_record(reader.voters))
        self.world.snapshots.append((self.node_id, snapshot_id.offset, checksum(values)))
        self.world.checker.snapshot_created(self, snapshot_id, named)

    def _failed(self, failure: ReplicaFailedError) -> None:
        if not isinstance(failure.__cause__, InjectedStorageError):
            self.world.checker.failed(self.node, failure)
        self.world.timeline.after(0, self._end, Ending.FAILED)

    def _handed_over(self) -> None:
        self.world.timeline.after(0, self._end, Ending.SHUT_DOWN)

    def _end(self, ending: Ending) -> None:
        if self.node.process is self:
            self.node.end(ending)
            if self.world.keeps_up:
                self.world.timeline.after(MILLISECOND, self.node.start)

    def until_doom(self, actions: Sequence[act.Action]) -> Iterator[act.Action]:
        """Yield actions until the moment has come."""
        for action in actions:
            ending = None if self.doom is None else self.doom(action)
            if ending is not None:
                self.doom = None
                self.node.end(ending)
                return
            yield action

    # --- Disk -------------------------------------------------------------------------------------------------------

    def run(self, function: Callable[[], Any], done: Done) -> None:
        """Have the disk do it. The machine goes on with that while the process is paused."""
        self._disk.run(function, partial(self.deliver, done))

    def flush(self, log: ReplicatedLog, done: Done) -> None:
        """Have the disk flush the log."""
        self._disk.flush(log, partial(self.deliver, done))

    def close(self) -> None:
        """Nothing to release."""

    # --- Receiver: the deliveries of the network
    # ------------------------------------------------------------------------

    def request_received(self, request_id: int, message: Any, version: int, peer: Peer) -> None:
        """A request is here."""
        if isinstance(message, FetchRequest):
            self._note_fetch(message)
        elif isinstance(message, FetchSnapshotRequest):
            now_us = self.world.timeline.now_us
            self.heard_us[message.replica_id] = self.moved_us[message.replica_id] = now_us
        elif isinstance(message, UpdateRaftVoterRequest):
            self.heard_us[message.voter_id] = self.world.timeline.now_us
        if isinstance(message, ApiVersionsRequest):
            self.deliver(self._tell_versions, request_id, message, version)
            return
        self.deliver(self.router.request_received, request_id, message, version, peer)

    def _note_fetch(self, request: FetchRequest) -> None:
        replica_id, now_us = request.replica_state.replica_id, self.world.timeline.now_us
        self.heard_us[replica_id] = now_us
        for partition in (partition for topic in request.topics for partition in topic.partitions):
            # The position is news to a new leader, and one that has everything need not move.
            place = OffsetAndEpoch(epoch=partition.current_leader_epoch, offset=partition.fetch_offset)
            if self._fetched_from.get(replica_id) != place or place.offset >= self.node.chain.end_offset:
                self._fetched_from[replica_id], self.moved_us[replica_id] = place, now_us

    def _tell_versions(self, request_id: int, message: ApiVersionsRequest, version: int) -> None:
        finalized = {"kraft.version": self.replica.kraft_version}
        self.port.respond(request_id, api_versions.answer(message, version, finalized=finalized))

    def response_received(self, correlation_id: int, message: Any) -> None:
        """An answer is here."""
        self.deliver(self.router.response_received, correlation_id, message)

    def request_failed(self, correlation_id: int, failure: ev.Failure) -> None:
        """No answer will come."""
        self.deliver(self.router.request_failed, correlation_id, failure)

    def connection_lost(self, destination: int, refused: bool) -> None:
        """A connection is gone, or could not be made."""
        self.deliver(self.router.connection_lost, destination, refused)

    # --- LogObserver: changes of the log
    # -----------------------------------------------------------------------------------

    def appended(self, batches: Sequence[Batch]) -> None:
        """These batches stand in the log."""
        self.world.checker.appended(self, batches)

    def flushed(self, end_offset: Offset) -> None:
        """Everything below is durable."""
        self.world.trace.add(self.world.timeline.now_us, Step.FLUSHED, self.node_id, end_offset)

    def truncated(self, end_offset: Offset) -> None:
        """The log ends here now."""
        self.world.checker.truncated(self, end_offset)

    def deleted(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log begins at the end of this snapshot now."""
        self.world.checker.deleted(self, snapshot_id)

    def installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log begins anew behind this snapshot."""
        self.world.checker.installed(self, snapshot_id)

    def stored(self, snapshot_id: OffsetAndEpoch) -> None:
        """There is a snapshot of this id."""
        self.untold.add(snapshot_id)

    def persisted(self, election: ElectionState) -> None:
        """The election state is durable."""
        before, self._election = self._election, election
        self.world.checker.persisted(self, before, election)


def _ignored(*_: object) -> None:
    pass
