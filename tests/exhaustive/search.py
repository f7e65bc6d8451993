"""Tries everything that can happen in a small world of real cores, breadth first, and judges every state.

A world is a handful of numbers: which node each replica is (`nodes`), what is on its way, who waits for an answer, what
may still go wrong, and what has been promised so far. Worlds that differ only in who is who are tried once.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from kraftlib.consensus.roles import Leader
from kraftlib.errors import InvariantError
from kraftlib.records.batch import Batch
from kraftlib.types import ElectionState
from tests.exhaustive.cores import IDS, frozen, static_voters
from tests.exhaustive.nodes import UNHEARD, Event, Node, Nodes, Outcome

REQUEST, ANSWER, FAILURE = 0, 1, 2

Message = tuple[int, int, int, int, int, bool]
"""From, to (positions in `IDS`), the destination that the request names, what it is, which, and whether its sender
still waits for the answer. Those of one connection, which the first three name, come one after the other."""

FREE_TIMERS = ("pause", "parked")
"""Pauses after failures, and Fetches that wait for records: these run out as often as they like."""

LATE = 0
"""In place of the destination: a request that is late, on no connection."""

QUEUE_MAX = 2
"""So many requests wait on one connection at most, and one at a leader for whose answer nobody waits. A replica that
asks ever anew without being heard is not followed further."""


@attrs.frozen
class Budget:
    """What may still happen."""

    appends: int = 0
    power_losses: int = 0
    faults: int = 0
    """Messages that are lost or late."""
    lost_votes: int = 0
    """Election states that are lost, with the power."""
    removals: int = 0
    """Voters that a leader is asked to remove."""
    timers: int = 0
    """Timers of roles that run out: elections, fetch timeouts, check quorum, BeginQuorumEpoch."""


@attrs.frozen
class Promises:
    """What has been said so far, which no replica may contradict."""

    leaders: tuple[tuple[int, int], ...] = ()
    """Epoch and replica."""
    votes: tuple[tuple[int, int, int], ...] = ()
    """Epoch, voter, and for whom."""
    committed: int = 0
    """The number of the longest committed log."""
    committed_in: tuple[tuple[int, int], ...] = ()
    """How much of it was committed by the leader of each epoch."""


@attrs.frozen
class World:
    """One state of everything."""

    nodes: tuple[int, ...]
    messages: tuple[Message, ...]
    asked: tuple[tuple[int, int, int, int], ...]
    """Which requests wait for an answer at a replica: its position, request id, from whom, naming which destination."""
    budget: Budget
    promises: Promises


@attrs.frozen(kw_only=True)
class Scene:
    """How a world begins, and how large it may become."""

    name: str
    about: str
    logs: tuple[tuple[Batch, ...], ...]
    elections: tuple[ElectionState, ...]
    budget: Budget
    epoch_max: int
    committed: int = 0
    """How many batches of the first log are committed at the start."""
    is_dynamic: bool = False
    """Whether the log says who the voters are. Then it is judged whether somebody can be elected."""
    path: tuple[str, ...] = ()
    """What has happened before: how each event begins in words. Everything is tried from there on."""
    seeks: bool = False
    """Whether replicas ask each other for the leader: it makes a world ten times as large."""


class Broken(Exception):
    """Something that must hold does not."""


@attrs.define
class Result:
    """What a search has found."""

    scene: str
    states: int = 0
    steps: int = 0
    handled: int = 0
    """How often a real core has handled an event."""
    depth: int = 0
    seconds: float = 0.0
    whole: bool = False
    """Whether everything was tried."""
    violation: str | None = None
    trace: list[str] = attrs.field(factory=list)


class Search:
    """One search through one scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.count = len(scene.logs)
        voters = None if scene.is_dynamic else static_voters(IDS[: self.count])
        self.nodes = Nodes(voters, seeks=scene.seeks)
        turns = itertools.permutations(range(self.count))
        self.turns = [(turn, {IDS[i]: IDS[to] for i, to in enumerate(turn)}) for turn in turns]
        self._fine: set[tuple[Any, ...]] = set()
        self._epochs: dict[int, int] = {}

    def run(self, *, states_max: int | None = None, tell: Callable[[str], None] | None = None) -> Result:
        """Try everything, or so many states."""
        began = last_told = time.monotonic()
        result = Result(self.scene.name)
        parents: dict[int, tuple[int, str]] = {}
        path: int | None = None
        step = "start"
        try:
            world = self._behind(self._first())
            path = hash(self._form(world))
            parents[path] = (0, step)
            queue = deque([(world, path, 0)])
            while queue:
                world, path, depth = queue.popleft()
                result.depth = depth
                for label, happens in self._events(world):
                    step = label
                    for after in happens():
                        result.steps += 1
                        place = hash(self._form(after))
                        if place in parents:
                            continue
                        is_cut = after.budget.power_losses < world.budget.power_losses and "power" not in label
                        step = f"{label}, and the power goes amid it" if is_cut else label
                        parents[place] = (path, step)
                        self._judge(after)
                        queue.append((after, place, depth + 1))
                if tell is not None and time.monotonic() - last_told > 5:
                    last_told = time.monotonic()
                    tell(f"{self.scene.name}: {len(parents):,} states, depth {depth}, {len(queue):,} to go")
                if states_max is not None and len(parents) >= states_max:
                    break
            else:
                result.whole = True
        except (Broken, InvariantError) as broken:
            result.violation = str(broken)
            result.trace = [step]
            while path:
                path, step = parents[path]
                result.trace.append(step)
            result.trace.reverse()
        result.states, result.handled = len(parents), self.nodes.handled
        result.seconds = time.monotonic() - began
        return result

    # --- how it begins -----------------------------------------------------------------------------------------------

    def _first(self) -> World:
        scene = self.scene
        committed = self.nodes.logs.number(scene.logs[0][: scene.committed])
        end = self._end_of(committed)
        promises = Promises(committed=committed, committed_in=((0, end),))
        world = World((), (), (), Budget(appends=9, faults=9, removals=9, timers=9), promises)
        nodes = []
        outcomes = []
        for position, log in enumerate(scene.logs):
            end_offset = log[-1].end_offset if log else 0
            outcome = self.nodes.start(IDS[position], log, end_offset, scene.elections[position])
            nodes.append(outcome.node)
            outcomes.append(outcome)
        world = attrs.evolve(world, nodes=tuple(nodes))
        for position, outcome in enumerate(outcomes):
            after = self._after(world, position, outcome)
            if after is None:
                raise ValueError(f"{scene.name} begins beyond its own bounds")
            world = after
        return world

    def _behind(self, world: World) -> World:
        """Go along the path of the scene."""
        for words in self.scene.path:
            found = next((happens for label, happens in self._events(world) if label.startswith(words)), None)
            if found is None:
                possible = [label for label, _ in self._events(world)]
                raise ValueError(f"{self.scene.name}: nothing begins with {words!r}; what can happen is {possible}")
            after = next(found(), None)
            if after is None:
                raise ValueError(f"{self.scene.name}: {words!r} leads beyond its bounds")
            world = after
        return attrs.evolve(world, budget=self.scene.budget)

    # --- what can happen ---------------------------------------------------------------------------------------------

    def _events(self, world: World) -> Iterator[tuple[str, Callable[[], Iterator[World]]]]:
        """Every event that may come next, with what can come of it."""
        for position, number in enumerate(world.nodes):
            timers = self.nodes.timers(number)
            events: list[Event] = [
                ("timer", *timer) for timer in timers if world.budget.timers or timer[0] in FREE_TIMERS
            ]
            node = self.nodes.nodes.values[number]
            if node.flushes:
                events.append(("flush",))
            if world.budget.appends and isinstance(node.core.state.role_state, Leader) and node.core.wants_records:
                events.append(("append",))
            if world.budget.removals and isinstance(node.core.state.role_state, Leader):
                events += [("remove", voter_id) for voter_id in IDS[: self.count]]
            for event in events:
                yield self._label(position, event), lambda p=position, e=event: self._happens(world, p, e, world)
            if world.budget.power_losses:
                event = ("power",)
                yield self._label(position, event), lambda p=position, e=event: self._happens(world, p, e, world)
            if world.budget.lost_votes and not node.core.state.election.amnesiac:
                yield self._label(position, ("forget",)), lambda p=position: self._forgets(world, p)
        connections = set()
        for place, message in enumerate(world.messages):
            if message[2] != LATE:
                if message[:3] in connections:
                    continue
                connections.add(message[:3])
            elif place and world.messages[place - 1] == message:
                continue
            left = World(
                world.nodes,
                world.messages[:place] + world.messages[place + 1 :],
                world.asked,
                world.budget,
                world.promises,
            )
            yield self._label_message(message), lambda m=message, w=left: self._arrives(w, m)
            if world.budget.faults and message[5] and message[3] != FAILURE:
                yield "late: " + self._label_message(message), lambda m=message, w=left: self._is_late(w, m)

    def _arrives(self, world: World, message: Message) -> Iterator[World]:
        source, target, destination, kind, body, is_heard = message
        if kind == REQUEST:
            taken = {request_id for place, request_id, *_ in world.asked if place == target}
            request_id = next(number for number in itertools.count(1) if number not in taken)
            asked = tuple(sorted((*world.asked, (target, request_id, source, destination if is_heard else UNHEARD))))
            after = World(world.nodes, world.messages, asked, world.budget, world.promises)
            return self._happens(after, target, ("request", request_id, body), world)
        if kind == ANSWER:
            return self._happens(world, target, ("answer", destination, body), world)
        return self._happens(world, target, ("failure", destination), world)

    def _is_late(self, world: World, message: Message) -> Iterator[World]:
        """A request comes after its sender has given it up; an answer never does."""
        source, target, destination, kind, body, _ = message
        budget = attrs.evolve(world.budget, faults=world.budget.faults - 1)
        if kind == REQUEST:
            late = ((source, target, LATE, REQUEST, body, False), (target, source, destination, FAILURE, 0, True))
        else:
            late = ((source, target, destination, FAILURE, 0, True),)
        yield attrs.evolve(world, budget=budget, messages=in_order([*world.messages, *late]))

    def _forgets(self, world: World, position: int) -> Iterator[World]:
        """A replica loses its election state, and is started again."""
        less = attrs.evolve(world.budget, lost_votes=world.budget.lost_votes - 1)
        for outcome in self.nodes.losses(world.nodes[position], ("forget",)):
            after = self._after(attrs.evolve(world, budget=less), position, outcome)
            if after is not None:
                yield after

    def _happens(self, world: World, position: int, event: Event, before: World) -> Iterator[World]:
        number = before.nodes[position]
        if event[0] == "append":
            world = attrs.evolve(world, budget=attrs.evolve(world.budget, appends=world.budget.appends - 1))
        if event[0] == "remove":
            world = attrs.evolve(world, budget=attrs.evolve(world.budget, removals=world.budget.removals - 1))
        if event[0] == "timer" and event[1] not in FREE_TIMERS:
            world = attrs.evolve(world, budget=attrs.evolve(world.budget, timers=world.budget.timers - 1))
        for outcome in self.nodes.outcomes(number, event):
            after = self._after(world, position, outcome)
            if after is not None:
                yield after
        if world.budget.power_losses:
            less = attrs.evolve(world.budget, power_losses=world.budget.power_losses - 1)
            world = attrs.evolve(world, budget=less)
            for outcome in self.nodes.losses(number, event):
                after = self._after(world, position, outcome)
                if after is not None:
                    yield after

    def _after(self, world: World, position: int, outcome: Outcome) -> World | None:
        """Put together what is on its way after an event; None where that is beyond the bounds."""
        if self.nodes.epoch_of(outcome.node) > self.scene.epoch_max:
            return None
        messages = []
        heard = outcome.heard
        for message in world.messages:
            source, target, destination, kind, body, is_heard = message
            if kind == REQUEST:
                if source == position and is_heard and destination not in heard:
                    message = (source, target, destination, REQUEST, body, False)
                    is_heard = False
                if target == position and outcome.loses_power and is_heard:
                    messages.append((position, source, destination, FAILURE, 0, True))
                    continue
            elif target == position and destination not in heard:
                continue
            messages.append(message)
        asked = []
        parked = set()
        answers = dict(outcome.answered)
        for place, request_id, source, destination in world.asked:
            if source == position and destination not in heard:
                destination = UNHEARD
            if place != position or (request_id not in answers and not outcome.loses_power):
                if destination == UNHEARD and (place, source) in parked:
                    return None
                if destination == UNHEARD:
                    parked.add((place, source))
                asked.append((place, request_id, source, destination))
                continue
            answer = answers.get(request_id)
            if destination != UNHEARD:
                kind = FAILURE if answer is None else ANSWER
                messages.append((position, source, destination, kind, answer or 0, True))
        for port, destination, body, is_heard in outcome.sent:
            messages.append((position, IDS.index(port), destination, REQUEST, body, is_heard))
        nodes = (*world.nodes[:position], outcome.node, *world.nodes[position + 1 :])
        left = self._without_old(nodes, messages)
        if left is None:
            return None
        promises = self._promised(world.promises, position, outcome) if outcome.facts else world.promises
        return World(nodes, in_order(left), tuple(sorted(asked)), world.budget, promises)

    def _without_old(self, nodes: tuple[int, ...], messages: list[Message]) -> list[Message] | None:
        """Drop what nobody hears and everybody refuses: a request of an epoch that is over where it goes.

        A replica that loses its election state later goes back to an older epoch, and what was dropped is not tried.

        None: too much waits on one connection.
        """
        left = []
        waiting: dict[tuple[int, ...], int] = {}
        for message in messages:
            if message[3] == REQUEST:
                if not message[5] and self._epoch_of(message[4]) < self.nodes.epoch_of(nodes[message[1]]):
                    continue
                place = message[:3]
                waiting[place] = waiting.get(place, 0) + 1
                if waiting[place] > QUEUE_MAX:
                    return None
            left.append(message)
        return left

    def _epoch_of(self, body: int) -> int:
        if body not in self._epochs:
            self._epochs[body] = epoch_of(self.nodes.messages.values[body])
        return self._epochs[body]

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _promised(self, promises: Promises, position: int, outcome: Outcome) -> Promises:
        for fact in outcome.facts:
            match fact:
                case ("vote", epoch, voted):
                    given = {(e, by): whom for e, by, whom in promises.votes}
                    if given.setdefault((epoch, position), IDS.index(voted)) != IDS.index(voted):
                        raise Broken(f"replica {IDS[position]} votes twice in epoch {epoch}")
                    votes = tuple(sorted((e, by, whom) for (e, by), whom in given.items()))
                    promises = attrs.evolve(promises, votes=votes)
                case ("lead", epoch, log):
                    leaders = dict(promises.leaders)
                    if leaders.setdefault(epoch, position) != position:
                        raise Broken(f"replicas {IDS[leaders[epoch]]} and {IDS[position]} both lead epoch {epoch}")
                    promises = attrs.evolve(promises, leaders=tuple(sorted(leaders.items())))
                    end = max(to for e, to in promises.committed_in if e < epoch)
                    if not self._agree(log, promises.committed, end):
                        raise Broken(f"the leader of epoch {epoch}, {IDS[position]}, lacks what is committed")
                case ("commit", epoch, leads, log):
                    promises = self._committed(promises, position, epoch, leads, log)
        return promises

    def _committed(self, promises: Promises, position: int, epoch: int, leads: bool, log: int) -> Promises:
        shared = min(self._end_of(log), self._end_of(promises.committed))
        if not self._agree(log, promises.committed, shared):
            raise Broken(f"replica {IDS[position]} commits what is not what was committed before")
        if not leads:
            if self._end_of(log) > shared:
                raise Broken(f"replica {IDS[position]} believes committed what no leader has committed")
            return promises
        batches = self.nodes.logs.values[log]
        if batches and batches[-1].epoch != epoch:
            raise Broken(
                f"replica {IDS[position]} commits a record of epoch {batches[-1].epoch} by counting in epoch {epoch}"
            )
        ends = dict(promises.committed_in)
        if ends.get(epoch, -1) >= self._end_of(log):
            raise Broken(f"the high watermark of epoch {epoch} does not grow")
        ends[epoch] = self._end_of(log)
        longest = log if self._end_of(log) > shared else promises.committed
        return attrs.evolve(promises, committed=longest, committed_in=tuple(sorted(ends.items())))

    def _judge(self, world: World) -> None:
        """Judge the logs: equal records stand behind equal logs, and a majority has what is committed on its disk."""
        nodes = [self.nodes.nodes.values[number] for number in world.nodes]
        if self.scene.is_dynamic:
            self._judge_electable(world, nodes)
        place = (world.nodes, world.promises.committed)
        if place in self._fine:
            return
        for one, other in itertools.combinations(nodes, 2):
            ours, theirs = one.batches, other.batches
            matches = [here.data == there.data for here, there in zip(ours, theirs, strict=False)]
            epochs = [here.epoch == there.epoch for here, there in zip(ours, theirs, strict=False)]
            if any(epochs[place] and not all(matches[: place + 1]) for place in range(len(epochs))):
                raise Broken(f"replicas {one.replica_id} and {other.replica_id} have other records behind one epoch")
        committed = self.nodes.logs.values[world.promises.committed]
        holding = 0
        for node in nodes:
            durable = [batch.data for batch in node.batches if batch.end_offset <= node.flushed]
            holding += [batch.data for batch in committed] == durable[: len(committed)]
        if 2 * holding <= self.count and not self.scene.is_dynamic:
            raise Broken(f"only {holding} of {self.count} replicas have on their disks what is committed")
        self._fine.add(place)

    def _judge_electable(self, world: World, nodes: list[Node]) -> None:
        """Where nobody leads, and nobody hears from an old leader any more, somebody can be elected."""
        if any(message[3] == ANSWER for message in world.messages):
            return
        if any(isinstance(node.core.state.role_state, Leader) for node in nodes):
            return
        for node in nodes:
            state = node.core.state
            granting = [
                other
                for other in nodes
                if other.core.key in state.voters
                and other.core.state.amnesia is None
                and (other is node or state.log.end >= other.core.state.log.end)
            ]
            if state.may_stand and len(granting) >= state.voters.majority:
                return
        raise Broken("nobody leads, and nobody can ever be elected")

    def _end_of(self, log: int) -> int:
        batches = self.nodes.logs.values[log]
        return batches[-1].end_offset if batches else 0

    def _agree(self, one: int, other: int, end_offset: int) -> bool:
        """Whether two logs are the same up to an offset, which both reach."""
        ours = [batch.data for batch in self.nodes.logs.values[one] if batch.end_offset <= end_offset]
        theirs = [batch.data for batch in self.nodes.logs.values[other] if batch.end_offset <= end_offset]
        return ours == theirs

    # --- one form for worlds that differ only in who is who ---------------------------------------------------------

    def _form(self, world: World) -> tuple[Any, ...]:
        numbers = self.nodes.nodes
        best: tuple[int, ...] | None = None
        turns: list[tuple[tuple[int, ...], dict[int, int]]] = []
        for turn, names in self.turns:
            nodes = [0] * self.count
            for position, number in enumerate(world.nodes):
                nodes[turn[position]] = numbers.renamed(number, turn, names)
            turned = tuple(nodes)
            if best is None or turned < best:
                best, turns = turned, [(turn, names)]
            elif turned == best:
                turns.append((turn, names))
        return min((best, *self._turned(world, turn, names)) for turn, names in turns)

    def _turned(self, world: World, turn: tuple[int, ...], names: dict[int, int]) -> tuple[Any, ...]:
        bodies, logs, promises = self.nodes.messages, self.nodes.logs, world.promises
        messages = sorted(
            (
                turn[source],
                turn[target],
                names.get(to, to),
                place,
                kind,
                is_heard,
                kind != FAILURE and bodies.renamed(body, turn, names),
            )
            for place, (source, target, to, kind, body, is_heard) in enumerate(world.messages)
        )
        messages = [message[:3] + message[4:] for message in messages]
        asked = sorted((turn[at], number, turn[source], names.get(to, to)) for at, number, source, to in world.asked)
        return (
            tuple(messages),
            tuple(asked),
            world.budget.appends,
            world.budget.power_losses,
            world.budget.faults,
            world.budget.lost_votes,
            world.budget.removals,
            world.budget.timers,
            tuple((epoch, turn[leader]) for epoch, leader in promises.leaders),
            tuple(sorted((epoch, turn[by], turn[whom]) for epoch, by, whom in promises.votes)),
            logs.renamed(promises.committed, turn, names),
            promises.committed_in,
        )

    # --- words -------------------------------------------------------------------------------------------------------

    def _label(self, position: int, event: Event) -> str:
        if event[0] == "remove":
            return f"{IDS[position]} is asked to remove {event[1]}"
        words = {"flush": "flushes", "append": "appends a record", "power": "loses power", "forget": "loses its vote"}
        what = words.get(event[0]) or f"timer {event[1]}" + (f" {event[2]}" if event[2] else "")
        return f"{IDS[position]} {what}"

    def _label_message(self, message: Message) -> str:
        source, target, _, kind, body, is_heard = message
        if kind == FAILURE:
            return f"{IDS[target]}'s request to {IDS[source]} fails"
        text = brief(self.nodes.messages.values[body])
        return f"{IDS[source]} -> {IDS[target]} {text}" + ("" if is_heard else " (given up)")


def in_order(messages: list[Message]) -> tuple[Message, ...]:
    """Put connection beside connection, with the messages of each in the order in which they were sent."""
    messages.sort(key=_connection)
    return tuple(messages)


def _connection(message: Message) -> tuple[Any, ...]:
    return message[:3] if message[2] != LATE else message


def epoch_of(request: Any) -> int:
    """The epoch in which a request was sent."""
    if not getattr(request, "topics", None):
        return 1 << 30
    partition = request.topics[0].partitions[0]
    for name in ("replica_epoch", "leader_epoch", "current_leader_epoch"):
        if hasattr(partition, name):
            epoch: int = getattr(partition, name)
            return epoch
    return 1 << 30


def brief(message: Any) -> str:
    """A message in a line."""
    name = type(message).__name__
    topics = getattr(message, "topics", None) or getattr(message, "responses", None)
    if not topics:
        return name
    partition = topics[0].partitions[0]
    shown = {
        "FetchRequest": ("current_leader_epoch", "fetch_offset", "last_fetched_epoch"),
        "FetchResponse": ("error_code", "high_watermark", "diverging_epoch", "current_leader"),
        "VoteRequest": ("pre_vote", "replica_epoch", "last_offset_epoch", "last_offset"),
        "VoteResponse": ("error_code", "leader_epoch", "vote_granted"),
    }.get(name, ("leader_id", "leader_epoch", "error_code"))
    text = " ".join(f"{field}={_plain(getattr(partition, field))}" for field in shown if hasattr(partition, field))
    return f"{name} {text}"


def _plain(value: Any) -> Any:
    return "/".join(str(part) for part in frozen(value, {})[1:]) if attrs.has(type(value)) else value


def batches_of(epochs: Sequence[int]) -> tuple[Batch, ...]:
    """A log of one record in each batch."""
    from kraftlib.records.batch import encode_batch

    return tuple(
        encode_batch([b"record"], timestamp_ms=0, base_offset=offset, epoch=epoch)
        for offset, epoch in enumerate(epochs)
    )
