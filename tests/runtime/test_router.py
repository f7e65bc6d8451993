"""Who receives what: requests of this replica's application come back to it, and everything else passes."""

from __future__ import annotations

from typing import Any

from kraftlib.consensus import events as ev
from kraftlib.consensus.events import Failure
from kraftlib.runtime.net.transport import Peer
from kraftlib.runtime.own_requests import FIRST_DESTINATION
from kraftlib.runtime.router import Router
from kraftlib.types import Endpoint
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tests.runtime.fakes import Trace, TracingNetwork

PLACE = Endpoint("localhost", 9001)
PEER = Peer("elsewhere:1")


class CoreInput:
    """An executor that only remembers."""

    def __init__(self) -> None:
        self.heard: list[ev.Event] = []

    def submit(self, event: ev.Event) -> None:
        self.heard.append(event)


def rig() -> tuple[Router, CoreInput, Trace, list[int]]:
    trace, core, sent = Trace(), CoreInput(), []
    network = TracingNetwork(trace)
    network.on_send = sent.append
    router = Router()
    router.connect_network(network)
    router.connect_core(core)
    return router, core, trace, sent


async def test_what_peers_send_reaches_the_core_in_order() -> None:
    router, core, _, _ = rig()
    request = ReadBarrierRequest()
    router.request_received(1, request, 2, PEER)
    router.response_received(0, "response")
    router.request_failed(5, Failure.MALFORMED)
    router.connection_lost(2, True)

    assert core.heard == [
        ev.RequestReceived(1, request, 2),
        ev.ResponseReceived(0, "response"),
        ev.RequestFailed(5, Failure.MALFORMED),
        ev.ConnectionLost(2, True),
    ]


async def test_what_the_core_sends_reaches_the_network() -> None:
    router, _, trace, _ = rig()
    router.send(3, 2, PLACE, "request")
    router.respond(7, "answer")
    router.respond(0, None)

    assert list(trace) == ["send request to 2", "respond answer to 7", "respond None to 0"]


async def test_the_answer_of_a_peer_to_our_application_does_not_reach_the_core() -> None:
    router, core, trace, sent = rig()
    answered, failed = router.own.ask(3, PLACE, "one"), router.own.ask(3, PLACE, "two")
    router.response_received(sent[0], "answer")
    router.request_failed(sent[1], Failure.DISCONNECTED)

    assert await answered == "answer"
    assert failed.exception() is not None
    assert trace[0] == f"send one to {FIRST_DESTINATION - 3}"
    assert core.heard == []


async def test_the_answer_of_our_own_core_to_our_application_does_not_reach_the_network() -> None:
    router, core, trace, _ = rig()
    answered, failed = router.own.ask_here(UpdateFeaturesRequest()), router.own.ask_here(UpdateFeaturesRequest())
    first, second = core.heard
    assert isinstance(first, ev.RequestReceived)
    assert isinstance(second, ev.RequestReceived)
    router.respond(first.request_id, "done")
    router.respond(second.request_id, None)

    assert await answered == "done"
    assert failed.exception() is not None
    assert list(trace) == []


def test_what_arrives_before_the_core_is_there_is_kept() -> None:
    router, core = Router(), CoreInput()
    router.connection_lost(1, False)
    router.submit(ev.TimeoutReached())
    arrived: list[Any] = [ev.ConnectionLost(1, False), ev.TimeoutReached()]
    router.connect_core(core)
    router.connection_lost(2, False)

    assert core.heard == [*arrived, ev.ConnectionLost(2, False)]


async def test_a_service_takes_the_requests_of_its_api_and_the_core_never_sees_them() -> None:
    router, core, _, _ = rig()
    taken: list[object] = []
    router.serve(ReadBarrierRequest.api_key, lambda *request: taken.append(request))
    request = ReadBarrierRequest()

    router.request_received(1, request, 0, PEER)

    assert taken == [(1, request, PEER)]
    assert core.heard == []
