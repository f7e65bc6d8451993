"""The simulated network: connections as TCP gives them, over links that can do worse."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraftlib.consensus.events import Failure
from kraftlib.records.batch import read_batches
from kraftlib.testing.clock import MILLISECOND, Timeline
from kraftlib.testing.network import SILENCE_US, Port, SimulatedNetwork, endpoint_of
from kraftlib.testing.recode import Recoder
from kraftlib.testing.trace import Trace
from kraftlib.types import METADATA_TOPIC_ID
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from tests.testing.logs import batch


class Host:
    """A process that only listens and remembers."""

    def __init__(self, network: SimulatedNetwork, node_id: int) -> None:
        self.node_id = node_id
        self.asked: list[tuple[int, Any]] = []
        self.heard: list[tuple[Any, ...]] = []
        self.port = Port(network, self)
        network.join(self.port)

    def request_received(self, request_id: int, message: Any, version: int, peer: Any) -> None:
        self.asked.append((request_id, message.max_wait_ms))

    def response_received(self, correlation_id: int, message: Any) -> None:
        self.heard.append((correlation_id, message.throttle_time_ms))

    def request_failed(self, correlation_id: int, failure: Failure) -> None:
        self.heard.append((correlation_id, failure))

    def connection_lost(self, destination: int, refused: bool) -> None:
        self.heard.append(("lost", destination, refused))


class Nobody:
    def request_sent(self, *_: Any) -> None: ...

    def response_sent(self, *_: Any) -> None: ...


class Pair:
    """Two hosts: 1 asks 2."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        recoder = Recoder(random.Random(1), one_in=0, complain=lambda text: None)
        self.network = SimulatedNetwork(self.timeline, random.Random(1), Trace(), Nobody(), recoder)
        self.client, self.server = Host(self.network, 1), Host(self.network, 2)
        self.there, self.back = self.network.link(1, 2), self.network.link(2, 1)

    def ask(self, number: int) -> None:
        self.client.port.send(number, 2, endpoint_of(2), FetchRequest(max_wait_ms=number))

    def answer(self, place: int, number: int | None) -> None:
        request_id, _ = self.server.asked[place]
        self.server.port.respond(request_id, None if number is None else FetchResponse(throttle_time_ms=number))

    def run(self, ms: int = 1_000) -> None:
        self.timeline.run(self.timeline.now_us + ms * MILLISECOND, lambda: False)


def test_requests_and_answers_keep_their_order() -> None:
    pair = Pair()
    for number in range(20):
        pair.ask(number)
    pair.run()
    assert [wait for _, wait in pair.server.asked] == list(range(20))
    for place in range(20):
        pair.answer(place, place)
    pair.run()

    assert pair.client.heard == [(number, number) for number in range(20)]
    assert pair.server.port.requests == {}


def test_an_answer_waits_for_those_before_it() -> None:
    """As on a Kafka connection: a held Fetch holds up the Vote behind it."""
    pair = Pair()
    pair.ask(1)
    pair.ask(2)
    pair.run()
    pair.answer(1, 2)
    pair.run()
    assert pair.client.heard == []
    pair.answer(0, 1)
    pair.run()

    assert pair.client.heard == [(1, 1), (2, 2)]


def test_it_is_known_when_what_is_on_its_way_has_arrived() -> None:
    """An answer that is late keeps those behind it waiting, though the link is fast again."""
    pair = Pair()
    assert pair.network.all_arrived_us() == pair.timeline.now_us
    pair.ask(1)
    pair.run()
    pair.back.delay_us = 70 * MILLISECOND
    pair.answer(0, 1)
    pair.back.delay_us = 0
    late_us = pair.network.all_arrived_us()
    assert late_us >= pair.timeline.now_us + 70 * MILLISECOND
    pair.ask(2)
    pair.run(1)
    pair.answer(1, 2)
    pair.timeline.run(late_us - 1, lambda: False)
    assert pair.client.heard == []
    pair.timeline.run(late_us, lambda: False)

    assert pair.client.heard == [(1, 1), (2, 2)]


def test_nobody_there_is_a_refusal() -> None:
    pair = Pair()
    pair.network.leave(pair.server.port, silently=False)
    pair.ask(1)
    pair.run()

    assert pair.client.heard == [(1, Failure.DISCONNECTED), ("lost", 2, True)]


def test_a_process_that_dies_breaks_its_connections() -> None:
    pair = Pair()
    pair.ask(1)
    pair.run()
    pair.network.leave(pair.server.port, silently=False)
    pair.run()

    assert pair.client.heard == [(1, Failure.DISCONNECTED), ("lost", 2, False)]


def test_a_machine_that_vanishes_is_noticed_when_it_is_back() -> None:
    pair = Pair()
    pair.ask(1)
    pair.run()
    pair.network.leave(pair.server.port, silently=True)
    pair.network.unreachable.add(2)
    pair.ask(2)
    pair.run()
    assert pair.client.heard == []
    pair.network.unreachable.discard(2)
    Host(pair.network, 2)
    pair.ask(3)
    pair.run()

    assert pair.client.heard == [*((number, Failure.DISCONNECTED) for number in (1, 2, 3)), ("lost", 2, False)]


def test_a_reset_does_not_wait_for_an_answer_that_is_late() -> None:
    pair = Pair()
    pair.back.delay_us = 1_000 * MILLISECOND
    pair.ask(1)
    pair.run(ms=10)
    pair.answer(0, 1)
    pair.back.delay_us = MILLISECOND
    pair.network.leave(pair.server.port, silently=True)
    Host(pair.network, 2)
    pair.ask(2)
    pair.run(ms=10)
    gone = [*((number, Failure.DISCONNECTED) for number in (1, 2)), ("lost", 2, False)]
    assert pair.client.heard == gone
    pair.run()

    assert pair.client.heard == gone


def test_none_closes_the_connection_in_its_turn() -> None:
    pair = Pair()
    for number in (1, 2, 3):
        pair.ask(number)
    pair.run()
    pair.answer(1, None)
    pair.answer(2, 3)
    pair.answer(0, 1)
    pair.run()

    assert pair.client.heard == [(1, 1), (2, Failure.DISCONNECTED), (3, Failure.DISCONNECTED), ("lost", 2, False)]


def test_a_reset_is_heard_at_once_and_the_next_request_connects_anew() -> None:
    pair = Pair()
    pair.ask(1)
    pair.network.reset(1, 2)
    assert pair.client.heard == [(1, Failure.DISCONNECTED), ("lost", 2, False)]
    pair.ask(2)
    pair.run()
    pair.answer(-1, 2)
    pair.run()

    assert pair.client.heard[-1] == (2, 2)


def test_a_silent_connection_is_given_up() -> None:
    pair = Pair()
    pair.there.cut = True
    pair.ask(1)
    pair.run(SILENCE_US // MILLISECOND + 1)
    pair.there.cut = False
    pair.ask(2)
    pair.run()

    assert pair.client.heard == [(1, Failure.DISCONNECTED), ("lost", 2, False)]
    assert [wait for _, wait in pair.server.asked] == [2]


@pytest.mark.parametrize("holds", [False, True])
def test_a_cut_loses_what_is_sent_or_delivers_it_late(holds: bool) -> None:
    pair = Pair()
    pair.there.cut, pair.there.holds = True, holds
    pair.ask(1)
    pair.run()
    assert pair.server.asked == []
    pair.network.heal([pair.there])
    pair.run()

    assert [wait for _, wait in pair.server.asked] == ([1] if holds else [])
    assert pair.network.lost == (0 if holds else 1)


def test_links_lose_repeat_and_reorder_as_they_are_told() -> None:
    pair = Pair()
    pair.there.duplication = 1.0
    pair.ask(1)
    pair.run()
    assert [wait for _, wait in pair.server.asked] == [1, 1]
    pair.there.duplication, pair.there.loss = 0.0, 1.0
    pair.ask(2)
    pair.run()
    assert len(pair.server.asked) == 2
    pair.there.loss, pair.there.reordering = 0.0, 1.0
    for number in range(10, 30):
        pair.ask(number)
    pair.run()
    arrived = [wait for _, wait in pair.server.asked[2:]]

    assert sorted(arrived) == list(range(10, 30)) != arrived
    assert (pair.network.lost, pair.network.repeated, pair.network.reordered) == (1, 1, 20)


def test_what_a_packet_loss_costs_on_tcp_is_time() -> None:
    pair = Pair()
    pair.there.loss, pair.there.retransmission_us = 1.0, 200 * MILLISECOND
    pair.ask(1)
    pair.run(199)
    assert pair.server.asked == []
    pair.run(3)

    assert len(pair.server.asked) == 1


def test_records_arrive_as_the_bytes_of_their_batches_and_damage_is_visible() -> None:
    pair = Pair()
    batches = [batch(0, 1), batch(1, 1)]
    partition = FetchResponse.PartitionData(records=b"")
    topic = FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    response = FetchResponse(responses=(topic,))
    received: list[bytes] = []
    pair.client.response_received = lambda _, message: received.append(  # type: ignore[method-assign]
        message.responses[0].partitions[0].records
    )
    for corruption in (0.0, 1.0):
        pair.network.corruption = corruption
        pair.ask(1)
        pair.run()
        pair.server.port.respond_records([pair.server.asked[-1][0]], response, batches)
        pair.run()

    assert list(read_batches(received[0])) == batches
    assert received[1] != received[0]
    assert (received[1][:8], received[1][12:16]) == (received[0][:8], received[0][12:16])
    assert pair.network.damaged == 1
