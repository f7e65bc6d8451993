"""The vocabulary of scenarios: a world, and methods for the events in it.

    leader = story.leader()
    story.cut(leader)
    story.append(3, to=leader, wait=False)
    ...
    story.happened("records that only the old leader has", 3)
    story.expect(story.leader() is not leader, "a leader that no voter hears goes on")

`happened` says that the trouble was there: a scenario without it shows nothing and fails. `expect` says what must hold:
if it does not, that is a violation under the id of the scenario.
"""

from __future__ import annotations

import random as chance
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs

from kraftlib.consensus.actions import Action
from kraftlib.consensus.events import Failure, ResignRequested, ShutdownRequested, TransferRequested
from kraftlib.consensus.roles import Role
from kraftlib.testing import final_checks, histories, liveness
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.network import FIRST_PORT, Link, Port
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Ending
from kraftlib.testing.workload import ClientAppend, Outcome
from kraftlib.testing.world import World
from kraftlib.types import Endpoint, Epoch, ReplicaId
from tools.rules import Referee
from tools.scenarios.meddling import Meddling
from tools.scenarios.scenario import NotProvokedError, Scenario, ScenarioReport
from tools.simulate.program import COMMAND
from tools.storage_proof import platter

TIMES: Final = {
    "election_timeout_ms": 100,
    "election_backoff_max_ms": 100,
    "fetch_timeout_ms": 200,
    "fetch_max_wait_ms": 50,
    "request_timeout_ms": 200,
    "retry_backoff_ms": 2,
    "leader_loss_stagger_ms": 3,
}
"""A tenth of the defaults: as much happens in a tenth of the time."""

PUPPET_ID: Final = 950


@attrs.define(eq=False)
class Question:
    """A request of a puppet, and its response."""

    answer: Any = None
    failed: bool = False
    """Whether the connection was closed instead."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.failed or self.answer is not None


class Puppet:
    """A client whose every message is made by hand. A `Receiver`; it has a connection of its own for each request."""

    node_id = PUPPET_ID

    def __init__(self, world: World) -> None:
        self._world = world
        self._questions: list[Question] = []

    def ask(self, node: SimulatedNode, request: Any) -> Question:
        """Ask a node something."""
        question = Question()
        self._questions.append(question)
        endpoint = Endpoint(node.endpoint.host, FIRST_PORT + node.key.id)
        Port(self._world.network, self).send(len(self._questions) - 1, node.key.id, endpoint, request)
        return question

    def request_received(self, *_: Any) -> None:
        """Never called: no replica sends requests to a puppet."""

    def response_received(self, correlation_id: int, message: Any) -> None:
        """An answer is here."""
        self._questions[correlation_id].answer = message

    def request_failed(self, correlation_id: int, failure: Failure) -> None:
        """The connection was closed."""
        self._questions[correlation_id].failed = True

    def connection_lost(self, *_: Any) -> None:
        """Known already."""


def is_settled(calls: Iterable[ClientAppend]) -> bool:
    """Whether all callers know what became of their appends."""
    return all(call.outcome is not Outcome.PENDING for call in calls)


class Story:
    """One scenario with one seed."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.seed = seed
        self.random = chance.Random(f"{scenario.id}/{seed}")
        fields = dict(scenario.world(self.random))
        config = {**TIMES, **fields.pop("config", {})}
        replay = f"{COMMAND} --scenario {scenario.id} --seed {seed}"
        self.world = World(
            self.random.getrandbits(64), config=config, replay=replay, judge=Referee, recovery=platter.crash, **fields
        )
        self.world.seed = seed
        self.provoked: Counter[str] = Counter()
        self.meddling = Meddling(self.world.network)
        self.puppet = Puppet(self.world)
        self.config = next(iter(self.world.nodes.values())).config

    def run(self) -> ScenarioReport:
        """Tell it to its end. Raises: InvariantViolation; NotProvokedError."""
        self.world.start()
        self.scenario.tell(self)
        if not self.provoked:
            raise NotProvokedError(f"{self.scenario.id}, seed {self.seed}: nothing went wrong")
        self.end_well()
        world = self.world
        return ScenarioReport(
            id=self.scenario.id,
            seed=self.seed,
            provoked=dict(self.provoked),
            simulated_ms=world.now_ms,
            events=world.timeline.events,
            elections=world.checker.elections,
            committed=world.committed_end,
            acknowledged=world.workload.acknowledged,
            trace_hash=world.trace.hash,
        )

    # --- what is shown -----------------------------------------------------------------------------------------------

    def happened(self, what: str, count: int | bool = True) -> None:
        """Say that the trouble was there. Raises: NotProvokedError, if it was not."""
        if not count:
            raise NotProvokedError(f"{self.scenario.id}, seed {self.seed}: did not happen: {what}")
        self.provoked[what] += int(count)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Say what must hold. Raises: InvariantViolation, if it does not."""
        if not holds:
            self.world.violated(self.scenario.id, otherwise)
        if self.world.violation is not None:
            raise self.world.violation

    def end_well(self) -> None:
        """Mend everything; see that the quorum gets well, and that the log holds exactly what callers were told."""
        world = self.world
        self.meddling.stop()
        world.keeps_up = True
        self.heal()
        for node in world.nodes.values():
            node.disk.failing = node.disk.full = False
            node.disk.unhang()
            if node.process is not None:
                node.process.look_at_space()
                node.process.doom = None
                node.process.resume()
        world.start()
        liveness.v1_leader_soon(world, "after the story")
        liveness.v3_everybody_catches_up(world)
        liveness.v7_service_resumes(world)
        liveness.settle(world)
        histories.i10_log_holds_what_callers_were_told(world)
        histories.i21_history_is_linearizable(world)
        final_checks.i18_logs_are_equal(world)
        final_checks.u3_states_are_equal(world)
        final_checks.i19_nothing_is_left_over(world)
        final_checks.i20_idle_quorum_is_quiet(world)

    # --- time --------------------------------------------------------------------------------------------------------

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass."""
        self.world.run_for(duration_ms)

    def until(self, reached: Callable[[], bool], limit_ms: int, otherwise: str) -> None:
        """Let time pass until something holds, as it must within the limit."""
        self.expect(self.world.run_until(reached, limit_ms), f"{otherwise} within {limit_ms} ms")

    def later(self, delay_ms: float, do: Callable[..., Any], *arguments: Any) -> None:
        """Have something done after a while."""
        self.world.timeline.after(int(delay_ms * MILLISECOND), do, *arguments)

    @property
    def patience_ms(self) -> int:
        """In what time a healthy quorum surely finds a leader."""
        return liveness.patience_ms(self.world)

    # --- who is there ------------------------------------------------------------------------------------------------

    def node(self, number: ReplicaId) -> SimulatedNode:
        """Return the node of this number."""
        return self.world.nodes[number]

    @property
    def nodes(self) -> list[SimulatedNode]:
        """All of them, observers too."""
        return list(self.world.nodes.values())

    def leader(self) -> SimulatedNode:
        """Wait for a leader that has committed something, as there must be soon."""
        liveness.v1_leader_soon(self.world, "in the story")
        leader = self.world.leader()
        self.expect(leader is not None, "the leader is gone at once")
        return leader  # type: ignore[return-value]

    def followers(self, leader: SimulatedNode | None = None) -> list[SimulatedNode]:
        """Return the voters but for the leader, in an order that is drawn."""
        leader = leader or self.leader()
        others = [node for node in self.nodes if node is not leader and self.world.is_voter(node)]
        self.random.shuffle(others)
        return others

    def elect(self, node: SimulatedNode) -> SimulatedNode:
        """Have leadership handed over until this voter has it."""

        def ask() -> None:
            leader = self.world.leader()
            if leader is not None and leader is not node and leader.process is not None:
                target = TransferRequested(leader.leads or 0, node.key.id, self.config.election_timeout_ms)
                leader.process.executor.submit(target)

        for _ in range(50):
            if self.leader() is node:
                return node
            ask()
            self.world.run_until(lambda: self.world.leader() is node, 2 * self.config.election_timeout_ms)
        self.expect(False, f"{node} never came to lead")
        return node

    def replaced(self, old: SimulatedNode) -> SimulatedNode:
        """Wait for a leader that has committed something and is not `old`, whatever that one believes."""
        self.until(lambda: self.world.leader() not in (None, old), self.patience_ms, f"no replica but {old} leads")
        return self.leader()

    def just_elected(self) -> SimulatedNode:
        """Wait for the next node that leads a newer epoch; it has committed nothing yet."""
        before = self.epoch
        found: list[SimulatedNode] = []

        def elected() -> bool:
            found[:] = [node for node in self.world.running_nodes() if (node.leads or 0) > before]
            return bool(found)

        self.until(elected, self.patience_ms, "no election")
        return found[0]

    @property
    def epoch(self) -> Epoch:
        """The newest epoch that ever had a leader."""
        return self.world.checker.facts.latest_epoch

    @property
    def elections(self) -> int:
        """The number of times that a replica became leader."""
        return self.world.checker.elections

    @property
    def committed(self) -> int:
        """One past the last committed record."""
        return self.world.committed_end

    def role(self, node: SimulatedNode) -> Role | None:
        """Return the role of a node; None if it is down."""
        return None if node.process is None else node.process.replica.role

    def state(self, node: SimulatedNode) -> Any:
        """The memory of the core of a node that is up."""
        self.expect(node.process is not None, f"{node} is down")
        return node.process.replica.state  # type: ignore[union-attr]

    def refused(self, node: SimulatedNode, reason: str) -> int:
        """Return how often a node has refused a message of a peer for this reason."""
        return int(self.state(node).refused.get(reason, 0))

    # --- load --------------------------------------------------------------------------------------------------------

    def append(
        self, count: int = 1, *, to: SimulatedNode | None = None, values: int = 1, wait: bool = True
    ) -> Sequence[ClientAppend]:
        """Append `count` times `values` records on the leader; wait until all is acknowledged unless told otherwise."""
        calls = []
        for _ in range(count):
            call = self.world.workload.append_to(to or self.leader(), count=values)
            if call is not None:
                calls.append(call)
        if wait:
            self.until(
                lambda: all(call.outcome is not Outcome.PENDING for call in calls),
                self.patience_ms,
                "no end of appends",
            )
            self.expect(
                len(calls) == count and all(call.outcome is Outcome.ACKNOWLEDGED for call in calls),
                f"of {count} appends to a healthy leader, these came of it: {[call.outcome.name for call in calls]}",
            )
        return calls

    def everybody_has_everything(self, nodes: Iterable[SimulatedNode] | None = None) -> None:
        """Wait until all logs end alike, durably, and all know what is committed."""
        chosen = list(nodes or self.nodes)

        def reached() -> bool:
            end = self.committed
            return all(
                node.chain.end_offset == node.flushed_offset == end
                and node.process is not None
                and node.process.replica.high_watermark == end
                for node in chosen
            )

        self.until(reached, self.patience_ms, "not everybody has everything")

    # --- trouble: the network ----------------------------------------------------------------------------------------

    def links(self, a: SimulatedNode, b: SimulatedNode | None = None, *, ways: str = "both") -> list[Link]:
        """Return the links of `a`, with `b` or with everybody: `both`, what it `sends`, or what it `hears`."""
        others = [b] if b is not None else [node for node in self.nodes if node is not a]
        link = self.world.network.link
        sends = [link(a.key.id, other.key.id) for other in others]
        hears = [link(other.key.id, a.key.id) for other in others]
        return {"both": sends + hears, "sends": sends, "hears": hears}[ways]

    def cut(self, a: SimulatedNode, b: SimulatedNode | None = None, *, ways: str = "both", holds: bool = False) -> None:
        """Cut a node off from another one, or from all others."""
        for link in self.links(a, b, ways=ways):
            link.cut, link.holds = True, holds

    def heal(self, a: SimulatedNode | None = None, b: SimulatedNode | None = None) -> None:
        """Let the links of a node, or all of them, work as at the beginning."""
        links = list(self.world.network.links.values()) if a is None else self.links(a, b)
        for link in links:
            self.world.make_ordinary(link)
        self.world.network.heal(links)

    def ask(self, node: SimulatedNode, request: Any, *, wait_ms: int = 20) -> Question:
        """Ask a node something by hand, and wait for what comes of it."""
        return self.wait_for(self.puppet.ask(node, request), wait_ms)

    def wait_for(self, question: Question, wait_ms: int = 2_000) -> Question:
        """Wait for what comes of a question, if anything does."""
        self.world.run_until(lambda: question.is_over, wait_ms)
        return question

    # --- trouble: processes and machines -----------------------------------------------------------------------------

    def crash(self, *nodes: SimulatedNode, silently: bool = True) -> None:
        """Cut the power of machines: unflushed data may be lost, and no peer is told."""
        for node in nodes:
            node.end(Ending.POWER_LOST, silently=silently)

    def kill(self, *nodes: SimulatedNode) -> None:
        """Kill processes: the kernel keeps what they wrote, and closes their connections."""
        for node in nodes:
            node.end(Ending.KILLED)

    def start(self, *nodes: SimulatedNode) -> None:
        """Start nodes that are down."""
        for node in nodes:
            node.start()

    def fill(self, *nodes: SimulatedNode, full: bool = True) -> None:
        """Let disks have no more space than what is on its way needs, or space again; let a moment pass."""
        for node in nodes:
            node.disk.full = full
            if node.process is not None:
                node.process.look_at_space()
        self.pass_ms(1)

    def crash_before(
        self, node: SimulatedNode, when: Callable[[Action], bool], ending: Ending = Ending.POWER_LOST
    ) -> None:
        """Let a node go down right before the next action of its core that fits."""
        if node.process is not None:
            node.process.doom = lambda action: ending if when(action) else None

    def crash_during(self, node: SimulatedNode, when: Callable[[Action], bool]) -> None:
        """Let a node lose power while the disk does what the next fitting action of its core asked for."""

        def doom(action: Action) -> Ending | None:
            if when(action) and node.process is not None:
                node.process.doom = None
                # Sooner than the disk can have done it.
                self.world.timeline.after(node.disk.shortest_us // 2, node.end, Ending.POWER_LOST)
            return None

        if node.process is not None:
            node.process.doom = doom

    def shut_down(self, node: SimulatedNode) -> None:
        """Ask a replica to end gracefully."""
        if node.process is not None:
            node.process.executor.submit(ShutdownRequested(2 * self.config.election_timeout_ms))

    def resign(self, leader: SimulatedNode) -> None:
        """Let the application ask its leader to give up."""
        if leader.process is not None and leader.leads is not None:
            leader.process.executor.submit(ResignRequested(leader.leads))

    def snapshot(self, node: SimulatedNode) -> bool:
        """Have a node write a snapshot now; return whether there was one to write."""
        taken = node.process is not None and node.process.take_snapshot(0)
        self.pass_ms(1)
        return taken
