"""Requests of this replica's own application: each gets its answer, an error that says why not, or is left alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlib.consensus.events import Failure, RequestReceived
from kraftlib.runtime.own_requests import FIRST_DESTINATION, NoAnswerError, OwnRequests
from kraftlib.types import Endpoint
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest

PLACE = Endpoint("localhost", 9001)


class Rig:
    """Own requests, and what leaves because of them."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, Endpoint, Any]] = []
        self.submitted: list[Any] = []
        self.own = OwnRequests(send=lambda *what: self.sent.append(what), submit=self.submitted.append)


async def test_an_answer_reaches_the_request_that_it_answers() -> None:
    rig = Rig()
    first, second = rig.own.ask(3, PLACE, "one"), rig.own.ask(3, PLACE, "two")
    one, two = (sent[0] for sent in rig.sent)

    rig.own.answered(two, "answer two")
    rig.own.answered(one, "answer one")
    rig.own.answered(one, "again")

    assert (await first, await second) == ("answer one", "answer two")
    assert rig.sent[0][1:] == (FIRST_DESTINATION - 3, PLACE, "one")
    assert max(one, two) < 0


@pytest.mark.parametrize(("message", "version"), [(UpdateFeaturesRequest(), 2), (AddRaftVoterRequest, 1)])
async def test_our_own_core_is_asked_as_a_peer_would(message: Any, version: int) -> None:
    rig = Rig()
    future = rig.own.ask_here(message)
    (event,) = rig.submitted
    assert event == RequestReceived(-1, message, version)

    rig.own.answered(event.request_id, "done")

    assert await future == "done"
    assert rig.sent == []


async def test_no_answer_is_an_error_that_says_why() -> None:
    rig = Rig()
    unsupported, lost, last = (rig.own.ask(node_id, PLACE, "") for node_id in (3, 3, 4))

    rig.own.failed(rig.sent[0][0], Failure.UNSUPPORTED_VERSION)
    rig.own.failed(rig.sent[1][0], Failure.DISCONNECTED)
    rig.own.close(RuntimeError("closed"))

    with pytest.raises(NoAnswerError) as raised:
        await unsupported
    assert raised.value.failure is Failure.UNSUPPORTED_VERSION
    with pytest.raises(NoAnswerError, match="disconnected"):
        await lost
    with pytest.raises(RuntimeError, match="closed"):
        await last
    with pytest.raises(RuntimeError, match="closed"):
        await rig.own.ask(3, PLACE, "too late")
    assert len(rig.sent) == 3


async def test_a_caller_that_waits_no_more_is_left_alone() -> None:
    rig = Rig()
    future = rig.own.ask(3, PLACE, "")
    future.cancel()

    rig.own.answered(rig.sent[0][0], "late")
    rig.own.close(RuntimeError("closed"))

    with pytest.raises(asyncio.CancelledError):
        await future
