"""One simulated machine: a clock, a disk, a log and an election file on it, and the lives that a replica has there."""

from __future__ import annotations

import random as chance
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.consensus.roles import Role
from kraftlib.errors import ConfigError
from kraftlib.runtime.waiters import Promise
from kraftlib.storage.log.holds_file import StoredHold
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.testing.clock import NodeClock
from kraftlib.testing.damage import DamagedLog, damaged
from kraftlib.testing.disk import SimulatedDisk
from kraftlib.testing.facts import Chain, LogEntry
from kraftlib.testing.images import LostDisk
from kraftlib.testing.incremental import IncrementDirectory
from kraftlib.testing.network import endpoint_of
from kraftlib.testing.process import Ending, Process
from kraftlib.testing.trace import Step
from kraftlib.types import ElectionState, Endpoint, Epoch, Offset, ReplicaId, ReplicaKey

if TYPE_CHECKING:
    from kraftlib.testing.world import World


class SimulatedNode:
    """A machine. `config` may be replaced between lives, as an operator edits a file."""

    def __init__(self, world: World, key: ReplicaKey, config: RaftConfig, clock: NodeClock) -> None:
        self.key = key
        self.config = config
        self.clock = clock
        self.endpoint: Endpoint = config.listen
        self.chain = Chain()
        self.process: Process | None = None
        self.lives = 0
        self.disks = 1
        """The number of its disks so far."""
        self.votes_lost = 0
        """The number of times that its election file was lost."""
        self.lost_disks: list[LostDisk] = []
        self._listed = config.voters
        self.edited_voters: Sequence[ReplicaKey] = ()
        """The static voters of its configuration, while these are others than those of the quorum."""
        self.began_with: Sequence[ReplicaId] = ()
        """The static voters that it counted when its disk was new."""
        self.refusals = 0
        """The number of its starts that were refused."""
        self._went_back_from: Offset = 0
        self.ended: Ending | None = None
        self._world = world
        self.random = chance.Random(world.random.getrandbits(64))
        self.disk = SimulatedDisk(world.timeline, self.random)
        self.log = MemoryReplicatedLog()
        self.elections = MemoryQuorumStateStore()
        self.increments = IncrementDirectory()
        self.holds: Sequence[StoredHold] = ()
        """The holds of readers of its log."""

    def __str__(self) -> str:
        return f"node {self.key.id}"

    @property
    def flushed_offset(self) -> Offset:
        """One past the last record that survives a crash."""
        return self.log.flushed_offset

    @property
    def is_up(self) -> bool:
        """Whether a process lives, paused or not."""
        return self.process is not None

    @property
    def is_amnesiac(self) -> bool:
        """Whether it has forgotten its votes, and does not vote until it is safe."""
        election = self.elections.read()
        return election is not None and election.amnesiac

    @property
    def is_impaired(self) -> bool:
        """Whether it has lost something that the others have to make up for."""
        return self.is_amnesiac or self.is_damaged or self.flushed_offset < self._went_back_from

    @property
    def leads(self) -> Epoch | None:
        """The epoch that this node believes to lead, if it does."""
        process = self.process
        return process.replica.epoch if process is not None and process.replica.role is Role.LEADER else None

    @property
    def stands(self) -> bool:
        """Whether it asks for pre-votes."""
        return self.process is not None and self.process.replica.role is Role.PROSPECTIVE

    def start(self) -> None:
        """Begin a new life from the disk."""
        if self.process is not None:
            return
        self.lives += 1
        self.ended = None
        self._world.network.unreachable.discard(self.key.id)
        self._world.trace.add(self._world.timeline.now_us, Step.STARTED, self.key.id, self.lives)
        try:
            process = Process(self._world, self)
        except ConfigError as refusal:
            self.refusals += 1
            self._world.checker.start_refused(self, refusal)
            return
        self._world.checker.start_allowed(self)
        self.process = process
        process.begin()

    def end(self, ending: Ending, *, silently: bool = False) -> None:
        """End the life that runs; its `ending` decides what survives."""
        process = self.process
        if process is None:
            return
        world = self._world
        self.process, self.ended = None, ending
        process.die(silently=silently)
        if silently:
            world.network.unreachable.add(self.key.id)
        trusted = ending in (Ending.KILLED, Ending.SHUT_DOWN) and not (self.disk.hung or self.disk.failing)
        self.disk.lose_power()
        if trusted:
            self.log.close()
            self.log = self.log.reopen()
        elif not self.is_damaged and self.random.random() < world.real_files and world.recovery is not None:
            self.log = world.recovery(self.log, self.random)
        else:
            self.log = self.log.crash(self.random, torn_tail=True)
        self.elections = self.elections.crash(self.random)
        self.chain.truncate(self.log.end_offset)
        world.trace.add(world.timeline.now_us, Step.STOPPED, self.key.id, int(ending), self.log.end_offset)
        world.checker.crashed(self)

    def lose_vote(self) -> None:
        """Take the election file of a node that is down away: its next life knows that it has forgotten something."""
        self.votes_lost += 1
        starts = self.log.epoch_starts()
        self.elections = MemoryQuorumStateStore(ElectionState(epoch=starts[-1].epoch if starts else 0, amnesiac=True))

    def damage_log(self, *, latent: bool, places: int = 1) -> bool:
        """Lose some committed records of a node that is down; return whether there were any to lose.

        A `latent` loss is unknown until a read meets it. They are lost in so many `places` at most.
        """
        # Nothing up to which the log may be cut back any time: all of the loss would be cut off with it.
        safe = [entry for entry in self._world.checker.facts.committed.entries if self.has(entry)]
        end_offset = safe[-1].base_offset if safe else 0
        log = damaged(self.log, self.random, end_offset=end_offset, latent=latent, places=places)
        self.log = log or self.log
        return log is not None

    def has(self, entry: LogEntry) -> bool:
        """Whether this very entry stands in its log."""
        return self.chain.covering(entry.base_offset) is entry

    @property
    def is_damaged(self) -> bool:
        """Whether records that it had flushed are missing in its log."""
        return isinstance(self.log, DamagedLog) and self.log.is_damaged

    def wipe(self) -> None:
        """Take the disk away and put an empty one in its place: the next start is that of another replica."""
        self.disks += 1
        self.lost_disks.append(LostDisk(self.key, self.chain, self.flushed_offset))
        self.key = ReplicaKey(self.key.id, uuid.UUID(int=self.random.getrandbits(128)))
        self.log, self.elections, self.chain = MemoryReplicatedLog(), MemoryQuorumStateStore(), Chain()
        self.increments = IncrementDirectory()
        self.holds = ()
        self._went_back_from = 0
        if self.edited_voters:
            self.use_voters(())

    def go_back(
        self,
        log: MemoryReplicatedLog,
        election: ElectionState | None,
        entries: Sequence[LogEntry],
        holds: Sequence[StoredHold],
        *,
        goal: Offset,
    ) -> None:
        """Put an older copy in the place of a directory that is not in use. It is whole once its log reaches `goal`."""
        self.log, self.elections, self.chain = log, MemoryQuorumStateStore(election), Chain()
        for entry in entries:
            self.chain.append(entry)
        self.increments, self.holds = IncrementDirectory(), holds
        self._went_back_from = goal

    def use_voters(self, ids: Sequence[ReplicaId]) -> None:
        """Edit the list of static voters of a node that is down; without ids, take the edit back."""
        voters = tuple(StaticVoter(number, endpoint_of(number)) for number in ids) or self._listed
        upstreams = () if self.key.id in ids else self.config.upstreams  # a voter has none
        self.config = attrs.evolve(self.config, voters=voters, upstreams=upstreams)
        is_other = {voter.id for voter in voters} != {voter.id for voter in self._listed}
        self.edited_voters = tuple(ReplicaKey(voter.id) for voter in voters) if is_other else ()

    def save_holds(self, holds: Sequence[StoredHold]) -> None:
        """Keep the holds for the next life."""
        self.holds = holds

    def append(self, values: Sequence[bytes], *, level: int, promise: Promise, epoch: Epoch | None = None) -> None:
        """Append as an application on this node does. Raises as `Appends.append`; ConnectionError if it is down."""
        process = self.process
        if process is None or process.paused:
            raise ConnectionError(f"{self} is down")
        appends = process.executor.appends
        if len(values) == 1:  # the way of most appends
            appends.append_one(values[0], epoch, level, promise)
        else:
            appends.append(values, epoch, level, promise)
