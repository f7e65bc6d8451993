"""A whole quorum in one process, on simulated time: every choice follows from one seed.

    world = World(seed=7, voters=3)
    world.start()
    leader = world.run_until_leader()
    world.nodes[leader].end(Ending.POWER_LOST)
    world.run_until_leader()

The replicas run the real core, executor, applier and opening of a log; time, network and disks are simulated. Their
promises are checked at everything that happens (`kraftlib.testing.invariants`): the first broken promise is raised as
`InvariantViolation`, with the command that shows it again.
"""

from __future__ import annotations

import random as chance
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ensure
from kraftlib.runtime.listener import Listener
from kraftlib.testing.admin import Admin, format_dynamic
from kraftlib.testing.checker import Checker
from kraftlib.testing.clock import MILLION, MILLISECOND, NodeClock, Timeline
from kraftlib.testing.judge import SIMULATE, Judge, Recovery
from kraftlib.testing.listener_watch import ListenerWatch
from kraftlib.testing.monitor import Monitor
from kraftlib.testing.network import Link, SimulatedNetwork, endpoint_of
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Process
from kraftlib.testing.recode import Recoder
from kraftlib.testing.subject import DEFAULT, Subject, is_incremental
from kraftlib.testing.trace import Entry, Trace
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.workload import Workload
from kraftlib.types import Offset, ReplicaId, ReplicaKey

WALL_CLOCK_MS: Final = 1_700_000_000_000
"""When simulated worlds begin."""

RECODE_ONE_IN: Final = 50

REAL_FILES: Final = 0.03
"""Share of the power losses that leave real files for the real recovery. They take milliseconds of real time."""

SNAPSHOT_INTERVAL_RECORDS: Final = 60

ListenerFactory = Callable[[Process], Listener]


class World:
    """A simulated quorum: nodes 1 to `voters`, and observers behind them.

    With `kraft_version` 1 the voters stand in the log, and `admin` can change them; with 0 once it has upgraded them.

    `config` holds fields of `RaftConfig` that differ from their defaults, and `priorities` the election priority of
    nodes that are wanted as leaders. `subject` is the state machine on top, of which each replica writes a snapshot
    after `snapshot_interval_records`, and `listener` makes one more listener for each life of each replica. `judge`
    looks on at each step of each core, and `recovery` stands in for some power losses. `replay` is the command that a
    violation shows; `on_entry` is told every step.
    """

    def __init__(
        self,
        seed: int,
        *,
        voters: int = 3,
        observers: int = 0,
        kraft_version: int = 0,
        config: Mapping[str, Any] | None = None,
        priorities: Mapping[ReplicaId, int] | None = None,
        listener: ListenerFactory | None = None,
        subject: Subject = DEFAULT,
        snapshot_interval_records: int | None = None,
        recode_one_in: int = RECODE_ONE_IN,
        judge: Judge | None = None,
        recovery: Recovery | None = None,
        real_files: float = REAL_FILES,
        replay: str = "",
        on_entry: Callable[[Entry], None] | None = None,
    ) -> None:
        ensure(voters > 0, "a quorum has at least one voter")
        self.seed = seed
        self.random = chance.Random(seed)
        self.timeline = Timeline()
        self.trace = Trace(listener=on_entry)
        self.violation: InvariantViolation | None = None
        self.replay = replay or f"{SIMULATE.command} --seed {seed}"
        self.cluster_id = "simulated-cluster-id-0"
        self.nodes: dict[ReplicaId, SimulatedNode] = {}
        self.link_us = (300, 400)
        """Delay of an ordinary link, and what may come on top of it."""
        self.turn_lag_us = 0
        """Time by which a turn of the listeners may be late, since the loop is busy with something else."""
        self.keeps_up = False
        """Whether a replica that has stopped, on demand or because of its disk, is started again at once."""
        self.disk_spread_us = 400
        """Time that an ordinary disk may take beyond its shortest time."""
        self.recovery = recovery
        """Reads real files again, in this share of the power losses; the others are left to a model."""
        self.real_files = real_files if recovery is not None else 0.0
        self.judge = judge
        """Looks on at each step of each core, beside the invariants."""
        self.subject = subject
        self.results: dict[Offset, Any] = {}
        """The result of each record, from the replica that applied it first."""
        self.snapshots: list[tuple[ReplicaId, Offset, int]] = []
        """Every snapshot that was written: its writer, its end, and a checksum of the state in it."""
        if snapshot_interval_records is None:
            snapshot_interval_records = SNAPSHOT_INTERVAL_RECORDS if is_incremental(subject) else 0
        self.snapshot_interval_records = snapshot_interval_records
        """After how many records a life writes a snapshot by itself; 0: only when it is told to."""
        self.deeds: Counter[str] = Counter()
        """The number of times that trouble had the effect that it was meant to have, by its kind."""
        self.increments_loaded = 0
        """The number of states that were restored from a checkpoint and its increments."""
        self.states: dict[Offset, int] = {}
        self.watches: dict[ReplicaId, ListenerWatch] = {}
        """A checksum of the state up to an offset, as it was read first."""
        self._listener = listener
        keys = [
            ReplicaKey(number, uuid.UUID(int=self.random.getrandbits(128)))
            for number in range(1, voters + observers + 1)
        ]
        self.voter_keys = keys[:voters]
        self.kraft_version = kraft_version
        known = [ReplicaKey(key.id) for key in self.voter_keys] if kraft_version == 0 else self.voter_keys
        self.checker = Checker(self.timeline, self.trace, self.nodes, known, self.violated)
        recoder = Recoder(
            chance.Random(self.random.getrandbits(64)),
            one_in=recode_one_in,
            complain=lambda text: self.violated("I22", text),
        )
        self.network = SimulatedNetwork(
            self.timeline, chance.Random(self.random.getrandbits(64)), self.trace, self.checker, recoder
        )
        for key in keys:
            fields = {**(config or {}), "election_priority": (priorities or {}).get(key.id, 0)}
            self.nodes[key.id] = self._make_node(key, keys, fields)
        self.admin = Admin(self)
        self.monitor = Monitor(self)
        self.workload = Workload(self, chance.Random(self.random.getrandbits(64)))

    def _make_node(self, key: ReplicaKey, keys: Sequence[ReplicaKey], fields: dict[str, Any]) -> SimulatedNode:
        clock = NodeClock(self.timeline, offset_ms=self.random.randrange(10_000_000), rate_ppm=MILLION)
        clock.wall_offset_ms = WALL_CLOCK_MS - clock.now_ms()
        static = tuple(StaticVoter(voter.id, endpoint_of(voter.id)) for voter in self.voter_keys)
        if self.kraft_version:
            places: dict[str, Any] = {"bootstrap_servers": tuple(endpoint_of(other.id) for other in keys)}
        elif key in self.voter_keys:
            places = {"voters": static}
        else:
            places = {"voters": static, "bootstrap_servers": tuple(voter.endpoint for voter in static)}
        raft_config = RaftConfig(
            **{
                "node_id": key.id,
                "cluster_id": self.cluster_id,
                "listen": endpoint_of(key.id),
                **places,
                **fields,
            }
        )
        node = SimulatedNode(self, key, raft_config, clock)
        if self.kraft_version and key in self.voter_keys:
            format_dynamic(node.log, [(voter, endpoint_of(voter.id)) for voter in self.voter_keys])
        return node

    # --- going on ----------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Simulated time since the beginning."""
        return self.timeline.now_ms

    def start(self) -> None:
        """Start every node that is down, within a few milliseconds."""
        if not self.monitor.looking:
            self.monitor.start()
        for node in self.nodes.values():
            if not node.is_up:
                self.timeline.after(self.random.randrange(5 * MILLISECOND), node.start)

    def run_for(self, duration_ms: int) -> None:
        """Let time pass. Raises: InvariantViolation."""
        self._run(duration_ms, None)

    def run_until(self, reached: Callable[[], bool], limit_ms: int) -> bool:
        """Let time pass until `reached()` holds after an event, at most for `limit_ms`; return whether it came to that.

        Raises: InvariantViolation.
        """
        if not reached():
            self._run(limit_ms, reached)
        return reached()

    def _run(self, duration_ms: int, stop: Callable[[], bool] | None) -> None:
        if self.violation is None:
            self.timeline.run(self.timeline.now_us + duration_ms * MILLISECOND, stop)
        self.raise_violation()

    def run_until_leader(self, limit_ms: int = 60_000) -> ReplicaId:
        """Let time pass until a leader knows its high watermark; return its id."""
        ensure(self.run_until(lambda: self.leader() is not None, limit_ms), f"no leader within {limit_ms} ms")
        leader = self.leader()
        return leader.key.id if leader is not None else -1

    def make_ordinary(self, link: Link) -> None:
        """Let a link be as it was at the beginning."""
        link.delay_us, link.jitter_us = self.link_us
        link.loss = link.duplication = link.reordering = 0.0
        link.retransmission_us = link.uneven_us = 0

    def violated(self, invariant: str, what: str) -> None:
        """Take note of a broken promise. The first one counts: it is raised when the event that broke it is over."""
        if self.violation is None:
            self.timeline.halted = True
            self.violation = InvariantViolation(
                invariant,
                what,
                seed=self.seed,
                time_ms=self.now_ms,
                replay=self.replay,
                trace_hash=self.trace.hash,
            )

    def raise_violation(self) -> None:
        """Raise the broken promise that was noted, if one was. Raises: InvariantViolation."""
        if self.violation is not None:
            raise self.violation

    # --- who is there ------------------------------------------------------------------------------------------------

    def listeners(self, process: Process) -> Iterable[Listener]:
        """Return the listeners of a new life."""
        own = [] if self._listener is None else [self._listener(process)]
        watch = self.watches[process.node_id] = ListenerWatch(self.checker, process)
        return [watch, *own]

    def running_nodes(self) -> list[SimulatedNode]:
        """Return the nodes whose process is alive and not paused."""
        return [node for node in self.nodes.values() if node.process is not None and not node.process.paused]

    def leader(self) -> SimulatedNode | None:
        """Return the node that leads the newest epoch and has committed something in it."""
        leaders = [node for node in self.running_nodes() if node.leads is not None]
        newest = max(leaders, key=lambda node: node.leads or 0, default=None)
        if newest is None or newest.process is None or newest.process.replica.high_watermark is None:
            return None
        return newest if newest.leads == self.checker.facts.latest_epoch else None

    def current_voters(self) -> Sequence[ReplicaKey]:
        """Return the voters that the committed log names."""
        tail = self.checker.facts.committed.tail
        return self.checker.first_voters if tail is None or tail.voters is None else tail.voters

    @property
    def is_dynamic(self) -> bool:
        """Whether the voters stand in the committed log and may change (kraft.version 1)."""
        return all(voter.directory_id is not None for voter in self.current_voters())

    def is_voter(self, node: SimulatedNode) -> bool:
        """Whether the committed log names this very node as a voter."""
        return any(voter.matches(node.key) for voter in self.current_voters())

    def kept_voters(self) -> Sequence[SimulatedNode]:
        """Return the voters whose disk is the one that they vote with, running or not."""
        return [self.nodes[key.id] for key in self.current_voters() if key.matches(self.nodes[key.id].key)]

    def living_voters(self) -> Sequence[SimulatedNode]:
        """Return those of them that run."""
        return [node for node in self.kept_voters() if node.process is not None]

    def whole_voters(self) -> Sequence[SimulatedNode]:
        """Return those of them that lack nothing: the others neither vote nor keep a leader in office for now."""
        return [node for node in self.living_voters() if not node.is_impaired]

    @property
    def committed_end(self) -> int:
        """One past the last committed record."""
        return self.checker.facts.committed_end
