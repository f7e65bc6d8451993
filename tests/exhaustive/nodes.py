"""One replica, core and disk, as a number; what an event makes of it is worked out once and remembered.

A world of three replicas has millions of states, but each replica alone has a few thousand, and the same event always
makes the same of it. So the real core runs a few ten thousand times, and the search goes on with numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Leader
from kraftlib.consensus.voters import VoterSet
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.types import ZERO_UUID, ElectionState
from kraftlib.wire.messages.raft_voters import RemoveRaftVoterRequest
from tests.exhaustive.cores import (
    CHOICES,
    CLUSTER,
    NOW,
    Names,
    copied,
    frozen,
    frozen_batch,
    key,
    new_core,
    run_out,
    settle,
    timers,
)

VERSIONS: Final = {
    "VoteRequest": 2, "BeginQuorumEpochRequest": 1, "EndQuorumEpochRequest": 1, "FetchRequest": 18,
    "UpdateRaftVoterRequest": 0, "RemoveRaftVoterRequest": 0,
}  # fmt: skip

OPERATOR: Final = 900
"""The request id of whoever changes the voters, and does not wait for the answer."""

UNHEARD: Final = 0
"""In place of the destination, for a request to whose answer nobody listens any more."""

Event = tuple[Any, ...]
"""("timer", name, number) · ("request", request id, message) · ("answer", destination, message) ·
("failure", destination) · ("flush",) · ("append",) · ("power",) · ("forget",) · ("remove",
voter)."""


@attrs.frozen(eq=False)
class Node:
    """A replica between two events."""

    replica_id: int
    core: Replica
    batches: tuple[Batch, ...]
    flushed: int
    election: ElectionState
    flushes: tuple[tuple[int, int], ...]
    """What is on its way to the disk: the end and the log version."""

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0


@attrs.frozen
class Outcome:
    """What an event can make of a replica, and what others can notice of it."""

    node: int
    sent: tuple[tuple[int, int, int, bool], ...] = ()
    """Replica, destination and message of each request, and whether it waits for the answer."""
    answered: tuple[tuple[int, int | None], ...] = ()
    """Request id and message; None where the connection is closed instead."""
    heard: frozenset[int] = frozenset()
    """The destinations whose answers it still waits for, of those that it waited for before."""
    facts: tuple[tuple[Any, ...], ...] = ()
    """("vote", epoch, id) · ("lead", epoch, log) · ("commit", epoch, leads, log)."""
    loses_power: bool = False


class Numbers:
    """Values by number, and the number of a value in which replicas are called otherwise."""

    def __init__(self, freeze: Any) -> None:
        self.values: list[Any] = []
        self._freeze = freeze
        self._by_form: dict[Hashable, int] = {}
        self._forms: dict[Hashable, int] = {}
        self._renamed: dict[tuple[int, Any], int] = {}

    def number(self, value: Any) -> int:
        form = self._freeze(value, {})
        known = self._by_form.get(form)
        if known is None:
            known = self._by_form[form] = len(self.values)
            self.values.append(value)
        return known

    def renamed(self, number: int, turn: tuple[int, ...], names: Names) -> int:
        """A number that two values share if one is the other with other names."""
        place = (number, turn)
        known = self._renamed.get(place)
        if known is None:
            form = self._freeze(self.values[number], names)
            known = self._renamed[place] = self._forms.setdefault(form, len(self._forms))
        return known


def freeze_node(node: Node, names: Names) -> Hashable:
    batches = tuple(frozen_batch(bytes(batch.data), names) for batch in node.batches)
    core = frozen(node.core, names)
    election = frozen(node.election, names)
    return (names.get(node.replica_id, node.replica_id), core, batches, node.flushed, election, node.flushes)


def freeze_log(log: tuple[Batch, ...], names: Names) -> Hashable:
    return tuple(frozen_batch(bytes(batch.data), names) for batch in log)


class _Disk:
    """What a replica's actions do, as they are performed."""

    def __init__(self, node: Node) -> None:
        self.batches = list(node.batches)
        self.flushed = node.flushed
        self.election = node.election
        self.flushes = list(node.flushes)

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def catch_up(self) -> None:
        """The disk does one thing after the other: what it was asked for before is durable."""
        self.flushed = max([self.flushed, *(min(end, self.end) for end, _ in self.flushes)])

    def truncate(self, end_offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end_offset <= end_offset]
        self.flushed = min(self.flushed, self.end)
        self.flushes = []


class Nodes:
    """All the replicas that a search has met."""

    def __init__(self, voters: VoterSet | None, *, seeks: bool) -> None:
        self.nodes = Numbers(freeze_node)
        self.messages = Numbers(frozen)
        self.logs = Numbers(freeze_log)
        self._voters, self._seeks = voters, seeks
        self._outcomes: dict[tuple[int, Event], list[Outcome]] = {}
        self._losses: dict[tuple[int, Event], list[Outcome]] = {}
        self._timers: dict[int, list[tuple[str, int]]] = {}
        self.handled = 0
        """How often a real core has handled an event."""

    def start(self, replica_id: int, batches: Sequence[Batch], flushed: int, election: ElectionState) -> Outcome:
        """Start a replica from its disk."""
        kept = tuple(batches)
        core = new_core(replica_id, kept, election, self._voters, seeks=self._seeks)
        node = Node(replica_id, core, kept, flushed, election, ())
        self.handled += 1
        CHOICES.script, CHOICES.asked = [], []
        return self._perform(node, core, core.start(NOW), None, [])

    def timers(self, number: int) -> list[tuple[str, int]]:
        if number not in self._timers:
            self._timers[number] = timers(self.nodes.values[number].core.state)
        return self._timers[number]

    def epoch_of(self, number: int) -> int:
        epoch: int = self.nodes.values[number].core.epoch
        return epoch

    def outcomes(self, number: int, event: Event) -> list[Outcome]:
        """What `event` can make of a replica, by chance."""
        place = (number, event)
        known = self._outcomes.get(place)
        if known is None:
            known = self._outcomes[place] = self._work_out(self.nodes.values[number], event, loses_power=False)
        return known

    def losses(self, number: int, event: Event) -> list[Outcome]:
        """What a loss of power amid `event` can make of a replica that is started again."""
        place = (number, event)
        known = self._losses.get(place)
        if known is None:
            known = self._losses[place] = self._work_out(self.nodes.values[number], event, loses_power=True)
        return known

    # --- running the core --------------------------------------------------------------------------------------------

    def _work_out(self, node: Node, event: Event, *, loses_power: bool) -> list[Outcome]:
        outcomes: dict[Outcome, None] = {}
        script: list[int] | None = []
        while script is not None:
            CHOICES.script, CHOICES.asked = script, []
            core = copied(node.core)
            self.handled += 1
            moments: list[tuple[Any, ...]] = []
            if event[0] in ("power", "forget"):
                election = node.election if event[0] == "power" else forgotten(node)
                moments.append((node.batches, node.flushed, election, (), (), ()))
            else:
                outcome = self._perform(node, core, self._tell(node, core, event), event, moments)
                if not loses_power:
                    outcomes[outcome] = None
            script = CHOICES.next_script()
            if loses_power:
                for moment in dict.fromkeys(moments):
                    outcomes.update(dict.fromkeys(self._restarted(node, moment)))
        return list(outcomes)

    def _tell(self, node: Node, core: Replica, event: Event) -> list[act.Action]:
        match event:
            case ("timer", name, number):
                run_out(core.state, (name, number))
                return core.handle(ev.TimeoutReached(), NOW)
            case ("request", request_id, number):
                message = self.messages.values[number]
                return core.handle(ev.RequestReceived(request_id, message, VERSIONS[type(message).__name__]), NOW)
            case ("answer", destination, number):
                return core.handle(ev.ResponseReceived(destination, self.messages.values[number]), NOW)
            case ("failure", destination):
                return core.handle(ev.RequestFailed(destination, ev.Failure.DISCONNECTED), NOW)
            case ("flush",):
                return core.handle(ev.Flushed(*node.flushes[0]), NOW)
            case ("append",):
                batch = encode_batch([b"record"], timestamp_ms=0, base_offset=node.end, epoch=core.epoch)
                return core.handle(ev.RecordsSubmitted((batch,), core.epoch), NOW)
            case ("remove", voter_id):
                directory_id = key(voter_id).directory_id
                request = RemoveRaftVoterRequest(
                    cluster_id=CLUSTER, voter_id=voter_id, voter_directory_id=directory_id or ZERO_UUID
                )
                return core.handle(ev.RequestReceived(OPERATOR, request, 0), NOW)
            case _:
                raise ValueError(event)

    def _perform(
        self, node: Node, core: Replica, actions: list[act.Action], event: Event | None, moments: list[tuple[Any, ...]]
    ) -> Outcome:
        """Perform a list of actions; note the moments at which the power can go."""
        disk = _Disk(node)
        if event == ("flush",):
            disk.flushed = max(disk.flushed, disk.flushes.pop(0)[0])
        sent: list[tuple[int, int, int, int]] = []
        answered: list[tuple[int, int | None]] = []
        facts: list[tuple[Any, ...]] = []
        waiting = list(actions)
        while waiting:
            action = waiting.pop(0)
            match action:
                case act.PersistElection():
                    disk.catch_up()
                    disk.election = action.election
                    if action.election.voted_key is not None:
                        facts.append(("vote", action.election.epoch, action.election.voted_key.id))
                case act.AppendToLog():
                    disk.batches += action.batches
                case act.TruncateLog():
                    disk.catch_up()
                    disk.truncate(action.end_offset)
                    waiting += core.handle(ev.LogTruncated(disk.end), NOW)
                case act.FlushLog():
                    disk.flushes.append((disk.end, action.log_version))
                case act.SendRequest():
                    message = self.messages.number(action.request)
                    sent.append((action.endpoint.port, action.destination, message, action.correlation_id))
                case act.SendResponse():
                    known = None if action.response is None else self.messages.number(action.response)
                    answered.append((action.request_id, known))
                case act.SendRecords():
                    answered.append((action.request_id, self.messages.number(_with_records(action, disk.batches))))
                case act.SubmitControl():
                    batch = encode_control_batch(
                        list(action.records), timestamp_ms=0, base_offset=disk.end, epoch=core.epoch
                    )
                    waiting += core.handle(ev.RecordsSubmitted((batch,), core.epoch), NOW)
                case act.AdvanceHighWatermark():
                    log = tuple(batch for batch in disk.batches if batch.end_offset <= action.high_watermark)
                    leads = isinstance(core.state.role_state, Leader)
                    facts.append(("commit", core.epoch, leads, self.logs.number(log)))
                case act.AcceptAppends():
                    facts.append(("lead", action.epoch, self.logs.number(tuple(disk.batches))))
                case _:
                    continue
            moments.append(
                (tuple(disk.batches), disk.flushed, disk.election, tuple(sent), tuple(answered), tuple(facts))
            )
        before = set(node.core.state.connections.requests)
        after = core.state.connections.requests
        waits_for = set(after)
        new = settle(core.state)
        number = self.nodes.number(
            Node(node.replica_id, core, tuple(disk.batches), disk.flushed, disk.election, tuple(disk.flushes))
        )
        return Outcome(
            node=number,
            sent=tuple(
                (port, destination, message, correlation_id in waits_for)
                for port, destination, message, correlation_id in sent
            ),
            answered=tuple(answered),
            heard=frozenset(before & waits_for) - new,
            facts=tuple(facts),
        )

    def _restarted(self, node: Node, moment: tuple[Any, ...]) -> list[Outcome]:
        """Start the replica again: what was not flushed is gone, or is not."""
        batches, flushed, election, sent, answered, facts = moment
        durable = tuple(batch for batch in batches if batch.end_offset <= flushed)
        results = []
        for kept in dict.fromkeys((durable, batches)):
            end_offset = kept[-1].end_offset if kept else 0
            started = self.start(node.replica_id, kept, end_offset, election)
            earlier = tuple((port, destination, message, False) for port, destination, message, _ in sent)
            results.append(
                Outcome(
                    node=started.node,
                    sent=(*earlier, *started.sent),
                    answered=answered,
                    facts=(*facts, *started.facts),
                    loses_power=True,
                )
            )
        return results


def forgotten(node: Node) -> ElectionState:
    """What is left of a lost election state: the epoch of the last record."""
    durable = [batch for batch in node.batches if batch.end_offset <= node.flushed]
    return ElectionState(epoch=durable[-1].epoch if durable else 0, amnesiac=True)


def _with_records(action: act.SendRecords, batches: Sequence[Batch]) -> Any:
    """Put the log's bytes into a Fetch answer, as the executor does."""
    data = b"".join(bytes(batch.data) for batch in batches if batch.base_offset >= action.start_offset)
    topic = action.response.responses[0]
    partition = attrs.evolve(topic.partitions[0], records=data)
    return attrs.evolve(action.response, responses=(attrs.evolve(topic, partitions=(partition,)),))
