"""The network between simulated nodes: connections as TCP gives them, over links that can do worse.

A connection carries requests one way and answers the other, each in order, and answers leave in the order of their
requests. It is lost when the process at the other end dies, when it is reset, or when an answer is "close"; its maker
then hears that the requests failed. A machine that vanishes silently is not noticed until it is back.

A link between two nodes has a delay and may lose, repeat or reorder messages, or be cut in one direction: then it drops
what comes, or holds it back until it is healed, as a kernel that sends again does.
"""

from __future__ import annotations

import random as chance
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import attrs

from kraftlib.consensus.events import Failure
from kraftlib.records.batch import HEADER_SIZE, Batch, batch_size
from kraftlib.runtime.net.transport import Peer
from kraftlib.testing.clock import Timeline
from kraftlib.testing.recode import Recoder, speaks_old
from kraftlib.testing.trace import Step, Trace
from kraftlib.types import Endpoint, ReplicaId

Message = Any
Deliver = Callable[..., None]
Meddler = Callable[[ReplicaId, ReplicaId, Message], "Sequence[tuple[int, Message]] | None"]
"""Given source, target and message, returns what arrives instead, each with its delay in µs beyond that of the link;
None if it has no hand in this message."""

FIRST_PORT: Final = 9_000
"""Node `n` listens on this plus `n`."""

SILENCE_US: Final = 3_000_000
"""A connection over which nothing has come for this long although an answer is due is replaced by a new one."""


@attrs.define
class Link:
    """One direction between two nodes. Times in microseconds, the rest are probabilities."""

    source: ReplicaId
    target: ReplicaId
    delay_us: int = 300
    jitter_us: int = 400
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    retransmission_us: int = 0
    """If set, a lost message comes after all, this much later, and all behind it waits: TCP's view of a lost packet."""
    uneven_us: int = 0
    """Messages over the connection for the log, or over those beside it, arrive so much later."""
    slows_log: bool = False
    cut: bool = False
    holds: bool = False
    """A cut link keeps what is sent, and delivers it when healed."""
    held: list[tuple[Connection, Deliver, tuple[Any, ...]]] = attrs.field(factory=list)


class Receiver(Protocol):
    """The process behind a port: its executor, unless it is paused or dead."""

    @property
    def node_id(self) -> ReplicaId:
        """The node it runs on."""
        ...

    def request_received(self, request_id: int, message: Message, version: int, peer: Peer) -> None:
        """As `NetworkReceiver.request_received`."""
        ...

    def response_received(self, correlation_id: int, message: Message) -> None:
        """As `NetworkReceiver.response_received`."""
        ...

    def request_failed(self, correlation_id: int, failure: Failure) -> None:
        """As `NetworkReceiver.request_failed`."""
        ...

    def connection_lost(self, destination: int, refused: bool) -> None:
        """As `NetworkReceiver.connection_lost`."""
        ...


class Watcher(Protocol):
    """Is called for every message that leaves a process."""

    def request_sent(self, port: Port, request: Message) -> None:
        """A request is about to leave."""
        ...

    def response_sent(self, port: Port, request: Message, response: Message) -> None:
        """The answer to `request` is about to leave."""
        ...


class Connection:
    """A connection as both ends see it."""

    __slots__ = (
        "answers", "client", "heard_us", "in_flight", "is_open", "number", "server", "target", "to_client_us",
        "to_server_us",
    )  # fmt: skip

    def __init__(self, client: Port, number: int, target: ReplicaId, now_us: int) -> None:
        self.client = client
        self.number = number
        """The destination, as the client numbers it: a replica id, or a bootstrap server below -1."""
        self.target = target
        self.server: Port | None = None
        """The process that accepted it; None while none has."""
        self.is_open = True
        self.in_flight: dict[int, None] = {}
        self.answers: deque[Answer] = deque()
        self.to_server_us = 0
        self.to_client_us = 0
        self.heard_us = now_us
        """When the client last had an answer, or nothing to wait for."""


class Answer:
    """The place of an answer among those of its connection."""

    __slots__ = ("connection", "correlation_id", "given", "request", "response", "version")

    def __init__(self, connection: Connection, correlation_id: int, request: Message, version: int) -> None:
        self.connection = connection
        self.correlation_id = correlation_id
        self.request = request
        self.version = version
        self.given = False
        self.response: Message | None = None


class Port:
    """The network as one process sees it: its executor sends through it (`kraftlib.runtime.ports.Answers`)."""

    def __init__(self, network: SimulatedNetwork, receiver: Receiver) -> None:
        self.node_id = receiver.node_id
        self.peer = Peer(f"node-{receiver.node_id}")
        self.receiver = receiver
        self.connections: dict[int, Connection] = {}
        self.accepted: dict[Connection, None] = {}
        self.requests: dict[int, Answer] = {}
        """Requests that are not answered yet, by request id."""
        self._network = network
        self._next_request_id = 0

    def send(self, correlation_id: int, destination: int, endpoint: Endpoint, request: Message) -> None:
        """Send a request; connect first if need be."""
        network = self._network
        network.watcher.request_sent(self, request)
        target = endpoint.port - FIRST_PORT
        old = not network.older.isdisjoint((self.node_id, target))
        if old and not speaks_old(request):
            network.timeline.after(0, self.receiver.request_failed, correlation_id, Failure.UNSUPPORTED_VERSION)
            return
        connection = self.connections.get(destination)
        now_us = network.timeline.now_us
        if connection is not None and not connection.in_flight:
            connection.heard_us = now_us
        if connection is None or connection.target != target or now_us - connection.heard_us > SILENCE_US:
            if connection is not None:
                network.abandon(connection)
            connection = self.connections[destination] = Connection(self, destination, target, now_us)
        connection.in_flight[correlation_id] = None
        request, version = network.recoder.request(request, old=old)
        network.transmit(
            self.node_id, target, connection, network.request_arrives, (connection, correlation_id, request, version)
        )

    def respond(self, request_id: int, response: Message | None) -> None:
        """Answer a request; None closes its connection."""
        answer = self.requests.pop(request_id)
        if response is not None:
            self._network.watcher.response_sent(self, answer.request, response)
            response = self._network.recoder.response(response, answer.version)
        answer.response = response
        answer.given = True
        self._network.send_answers(self, answer.connection)

    def respond_records(self, request_ids: Sequence[int], response: Message, batches: Sequence[Batch]) -> None:
        """Answer Fetches alike, with the bytes of `batches` put into the one partition."""
        for request_id in request_ids:
            self._respond_records(request_id, response, batches)

    def _respond_records(self, request_id: int, response: Any, batches: Sequence[Batch]) -> None:
        data = batches[0].data if len(batches) == 1 else b"".join(batch.data for batch in batches)
        if self._network.corruption:
            data = self._network.corrupted(data)
        if self.node_id in self._network.withholding:
            data = b""
        topic = response.responses[0]
        partition = attrs.evolve(topic.partitions[0], records=data)
        self.respond(request_id, attrs.evolve(response, responses=(attrs.evolve(topic, partitions=(partition,)),)))

    def expect(self, connection: Connection, correlation_id: int, request: Message, version: int) -> int:
        """Return the id by which a request that has arrived is to be answered."""
        answer = Answer(connection, correlation_id, request, version)
        connection.answers.append(answer)
        self._next_request_id += 1
        self.requests[self._next_request_id] = answer
        return self._next_request_id


class SimulatedNetwork:
    """All links, and the node behind each address."""

    def __init__(
        self, timeline: Timeline, random: chance.Random, trace: Trace, watcher: Watcher, recoder: Recoder
    ) -> None:
        self.watcher = watcher
        self.recoder = recoder
        self.ports: dict[ReplicaId, Port] = {}
        """The processes that listen now."""
        self.unreachable: set[ReplicaId] = set()
        """Machines that are gone without a word: nothing comes back from them, not even a refusal."""
        self.older: set[ReplicaId] = set()
        """Nodes that run an older release: they, and their peers towards them, speak older versions, and nothing
        newer."""
        self.links: dict[tuple[ReplicaId, ReplicaId], Link] = {}
        self.corruption = 0.0
        """Share of the Fetch responses that arrive with a flipped bit."""
        self.withholding: set[ReplicaId] = set()
        """Nodes whose Fetch answers arrive without their records."""
        self.meddler: Meddler | None = None
        """Rules that drop, delay, repeat or rewrite particular messages."""
        self.lost = self.repeated = self.reordered = self.damaged = 0
        self.timeline = timeline
        self._random = random
        self._trace = trace

    def join(self, port: Port) -> None:
        """Let a process listen."""
        self.ports[port.node_id] = port

    def leave(self, port: Port, *, silently: bool) -> None:
        """A process ends. Unless `silently`, its peers lose their connections."""
        if self.ports.get(port.node_id) is port:
            del self.ports[port.node_id]
        for connection in port.connections.values():
            connection.is_open = False
        for connection in port.accepted:
            if not silently:
                self._send_back(connection, self._breaks, (connection, False))
        port.connections.clear()
        port.accepted.clear()
        port.requests.clear()

    def reset(self, a: ReplicaId, b: ReplicaId) -> None:
        """Break every connection between two nodes, at once for both."""
        for client, server in ((a, b), (b, a)):
            port = self.ports.get(client)
            if port is not None:
                for connection in [made for made in port.connections.values() if made.target == server]:
                    self._breaks(connection, False)

    def abandon(self, connection: Connection) -> None:
        """The client gives a connection up for another one."""
        self._breaks(connection, False)

    # --- on the way --------------------------------------------------------------------------------------------------

    def link(self, source: ReplicaId, target: ReplicaId) -> Link:
        """Return one direction between two nodes."""
        link = self.links.get((source, target))
        if link is None:
            link = self.links[source, target] = Link(source, target)
        return link

    def transmit(
        self, source: ReplicaId, target: ReplicaId, connection: Connection, deliver: Deliver, arguments: tuple[Any, ...]
    ) -> None:
        """Let `deliver` be called at the other end, if the link between the two sees fit."""
        link = self.links.get((source, target)) or self.link(source, target)
        if link.cut:
            if link.holds:
                link.held.append((connection, deliver, arguments))
            else:
                self._lose(link, arguments)
            return
        if self.meddler is not None and len(arguments) > 2:
            instead = self.meddler(source, target, arguments[2])
            if instead is not None:
                for extra_us, message in instead:
                    changed = (*arguments[:2], message, *arguments[3:])
                    self.timeline.after(link.delay_us + extra_us, deliver, *changed)
                return
        random = self._random.random
        delay_us = link.delay_us + int(random() * link.jitter_us)
        if link.uneven_us and (connection.number == connection.target) is link.slows_log:
            delay_us += link.uneven_us
        if link.loss and random() < link.loss:
            if not link.retransmission_us:
                self._lose(link, arguments)
                return
            delay_us += link.retransmission_us
        arrives_us = self.timeline.now_us + delay_us
        if link.reordering and random() < link.reordering:
            self.reordered += 1
            arrives_us += int(random() * 20 * link.jitter_us)
        elif deliver == self._resets:
            pass  # TCP takes a reset before what is still on its way
        elif source == connection.client.node_id:
            arrives_us = connection.to_server_us = max(arrives_us, connection.to_server_us)
        else:
            arrives_us = connection.to_client_us = max(arrives_us, connection.to_client_us)
        self.timeline.at(arrives_us, deliver, *arguments)
        if link.duplication and random() < link.duplication:
            self.repeated += 1
            self.timeline.at(arrives_us + int(random() * 40 * link.jitter_us), deliver, *arguments)

    def heal(self, links: Iterable[Link]) -> None:
        """Let cut links work again; held back messages arrive."""
        for link in links:
            link.cut = False
            held, link.held = link.held, []
            for connection, deliver, arguments in held:
                self.transmit(link.source, link.target, connection, deliver, arguments)

    def all_arrived_us(self) -> int:
        """Return when everything that is on its way over an open connection will have arrived."""
        open_ones = [connection for port in self.ports.values() for connection in port.connections.values()]
        return max((max(each.to_server_us, each.to_client_us) for each in open_ones), default=self.timeline.now_us)

    def corrupted(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return records as they arrive: now and then one bit is another one.

        Base offset and epoch of a batch stay whole: they stand outside its checksum, and what TCP and disks let through
        there no replica of Kafka's could see.
        """
        if self._random.random() >= self.corruption or len(data) < HEADER_SIZE:
            return data
        damaged = bytearray(data)
        place = self._random.randrange(16, batch_size(data))
        damaged[place] ^= 1 << self._random.randrange(8)
        self.damaged += 1
        return bytes(damaged)

    def _lose(self, link: Link, arguments: tuple[Any, ...]) -> None:
        self.lost += 1
        key = getattr(arguments[2], "api_key", -1) if len(arguments) > 2 else -1
        self._trace.add(self.timeline.now_us, Step.LOST, link.target, link.source, key)

    def _send_back(self, connection: Connection, deliver: Deliver, arguments: tuple[Any, ...]) -> None:
        self.transmit(connection.target, connection.client.node_id, connection, deliver, arguments)

    # --- arriving ----------------------------------------------------------------------------------------------------

    def request_arrives(self, connection: Connection, correlation_id: int, request: Message, version: int) -> None:
        """A request reaches the node that it was sent to."""
        target = connection.target
        if target in self.unreachable:
            return
        port = self.ports.get(target)
        if port is None:
            self._send_back(connection, self._resets, (connection, connection.server is None))
            return
        if connection.server is None:
            connection.server = port
            port.accepted[connection] = None
        elif connection.server is not port:
            # The process that accepted it is gone, and the new one knows nothing of it.
            self._send_back(connection, self._resets, (connection, False))
            return
        if not connection.is_open or connection not in port.accepted:
            return
        self._trace.add(self.timeline.now_us, Step.REQUEST, target, connection.client.node_id, request.api_key)
        request_id = port.expect(connection, correlation_id, request, version)
        port.receiver.request_received(request_id, request, version, connection.client.peer)

    def send_answers(self, port: Port, connection: Connection) -> None:
        """Send the answers whose turn has come."""
        answers = connection.answers
        while answers and answers[0].given:
            answer = answers.popleft()
            if connection not in port.accepted:
                continue
            if answer.response is None:
                del port.accepted[connection]
                self._send_back(connection, self._breaks, (connection, False))
            else:
                self._send_back(
                    connection, self._response_arrives, (connection, answer.correlation_id, answer.response)
                )

    def _response_arrives(self, connection: Connection, correlation_id: int, response: Message) -> None:
        if not connection.is_open:
            return
        client = connection.client
        self._trace.add(self.timeline.now_us, Step.RESPONSE, client.node_id, connection.target, response.api_key)
        connection.in_flight.pop(correlation_id, None)
        connection.heard_us = self.timeline.now_us
        client.receiver.response_received(correlation_id, response)

    def _resets(self, connection: Connection, refused: bool) -> None:
        """The server does not know the connection."""
        self._breaks(connection, refused)

    def _breaks(self, connection: Connection, refused: bool) -> None:
        """The client learns that a connection is gone, or could not be made."""
        if not connection.is_open:
            return
        connection.is_open = False
        client = connection.client
        if client.connections.get(connection.number) is connection:
            del client.connections[connection.number]
        if connection.server is not None:
            connection.server.accepted.pop(connection, None)
        self._trace.add(self.timeline.now_us, Step.DISCONNECTED, client.node_id, connection.number, int(refused))
        for correlation_id in list(connection.in_flight):
            client.receiver.request_failed(correlation_id, Failure.DISCONNECTED)
        client.receiver.connection_lost(connection.number, refused)


def endpoint_of(number: ReplicaId) -> Endpoint:
    """Return where node `number` listens."""
    return Endpoint(f"node-{number}", FIRST_PORT + number)
