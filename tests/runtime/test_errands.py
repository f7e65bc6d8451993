"""What stands between network and executor: errands come back here, and everything else passes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlib.consensus.events import Failure, RequestReceived
from kraftlib.runtime.errands import FIRST_DESTINATION, Errands, FailedErrandError
from kraftlib.types import Endpoint
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest
from tests.runtime.fakes import Trace, TracingNetwork

PLACE = Endpoint("localhost", 9001)


class Receiver:
    """An executor that only remembers."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def submit(self, event: Any) -> None:
        self.heard.append(("submit", event))

    def request_received(self, *arguments: Any) -> None:
        self.heard.append(("request", *arguments))

    def response_received(self, *arguments: Any) -> None:
        self.heard.append(("response", *arguments))

    def request_failed(self, *arguments: Any) -> None:
        self.heard.append(("failed", *arguments))

    def connection_lost(self, *arguments: Any) -> None:
        self.heard.append(("lost", *arguments))


def desk() -> tuple[Errands, Receiver, Trace, list[int]]:
    trace, receiver, sent = Trace(), Receiver(), []
    network = TracingNetwork(trace)
    network.on_send = sent.append
    errands = Errands(network)
    errands.open(receiver)  # type: ignore[arg-type]
    return errands, receiver, trace, sent


async def test_an_answer_reaches_whoever_asked_and_nobody_else() -> None:
    errands, receiver, trace, sent = desk()
    first, second = errands.ask(3, PLACE, "one"), errands.ask(3, PLACE, "two")

    errands.response_received(sent[1], "answer two")
    errands.response_received(sent[0], "answer one")
    errands.response_received(sent[0], "again")

    assert (await first, await second) == ("answer one", "answer two")
    assert trace[0] == f"send one to {FIRST_DESTINATION - 3}"
    assert receiver.heard == []


async def test_what_is_not_ours_passes() -> None:
    errands, receiver, trace, _ = desk()
    errands.request_received(1, "request", 2, None)
    errands.response_received(0, "response")
    errands.request_failed(5, Failure.MALFORMED)
    errands.connection_lost(2, True)
    errands.respond(7, "answer")
    errands.respond(0, None)

    assert [heard[0] for heard in receiver.heard] == ["request", "response", "failed", "lost"]
    assert list(trace) == ["respond answer to 7", "respond None to 0"]


@pytest.mark.parametrize(("message", "version"), [(UpdateFeaturesRequest(), 2), (AddRaftVoterRequest, 1)])
async def test_our_own_core_is_asked_as_a_peer_would(message: Any, version: int) -> None:
    errands, receiver, trace, _ = desk()
    future = errands.ask_here(message)
    (_, event) = receiver.heard[0]
    assert event == RequestReceived(-1, message, version)

    errands.respond(event.request_id, "done")

    assert await future == "done"
    assert list(trace) == []


async def test_no_answer_is_an_error_that_says_why() -> None:
    errands, _, _, sent = desk()
    remote, closed, here, last = (
        errands.ask(3, PLACE, ""),
        errands.ask(3, PLACE, ""),
        errands.ask_here(UpdateFeaturesRequest()),
        errands.ask(4, PLACE, ""),
    )

    errands.request_failed(sent[0], Failure.UNSUPPORTED_VERSION)
    errands.request_failed(sent[1], Failure.DISCONNECTED)
    errands.respond(-3, None)
    errands.close(RuntimeError("closed"))

    with pytest.raises(FailedErrandError) as unsupported:
        await remote
    assert unsupported.value.failure is Failure.UNSUPPORTED_VERSION
    for future in (closed, here):
        with pytest.raises(FailedErrandError, match="disconnected"):
            await future
    with pytest.raises(RuntimeError, match="closed"):
        await last


async def test_who_waits_no_more_is_left_alone() -> None:
    errands, _, _, sent = desk()
    future = errands.ask(3, PLACE, "")
    future.cancel()

    errands.response_received(sent[0], "late")
    errands.close(RuntimeError("closed"))

    with pytest.raises(asyncio.CancelledError):
        await future
