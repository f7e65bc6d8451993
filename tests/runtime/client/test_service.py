"""A service of an application answers on the port of its replica, from the start of the replica to its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlib.codec.versions import Versions
from kraftlib.errors import ReplicaFailedError, StorageError
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.transport import Destination
from kraftlib.storage.memory import MemoryQuorumStateStore
from kraftlib.testing.transport_contract import station
from kraftlib.wire.apis import PrivateApiKey
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.query import QueryRequest, QueryResponse
from tests.runtime.quorum import PATIENCE_S, PLACE, alone
from tests.runtime.wired import ANYWHERE


class Echo:
    """Answers a Query with its question."""

    def __init__(self) -> None:
        self.served = {PrivateApiKey.QUERY: Versions(0, 0)}
        self.life: list[str] = []

    def begin(self, node: Any) -> None:
        self.life.append("begin")

        def take(request_id: int, request: Any, peer: Any) -> None:
            node.router.respond(request_id, QueryResponse(answer=request.question))

        node.router.serve(PrivateApiKey.QUERY, take)

    def end(self) -> None:
        self.life.append("end")


class Clinging(Echo):
    """Raises when it is to end."""

    def end(self) -> None:
        raise ZeroDivisionError("not yet")


async def test_a_service_that_cannot_end_keeps_no_replica_open() -> None:
    hub = MemoryHub()
    client = alone({"transport": MemoryTransport(hub, PLACE), "service": Clinging()})
    await client.start()
    with pytest.raises(ZeroDivisionError, match="not yet"):
        await client.shutdown()
    async with asyncio.timeout(PATIENCE_S):
        await client.wait_closed()
    async with alone({"transport": MemoryTransport(hub, PLACE), "service": Echo()}) as next_one:
        await next_one.wait_for_leader(timeout_ms=30_000)


@pytest.mark.parametrize("served", [True, False])
async def test_requests_of_a_service_are_answered_and_those_of_none_close_the_connection(served: bool) -> None:
    hub, service = MemoryHub(), Echo()
    parts = {"transport": MemoryTransport(hub, ANYWHERE), "service": service if served else None}
    question = encode_request(QueryRequest(question=b"why?"), version=0, correlation_id=7, client_id=None)
    async with (
        alone(parts) as client,
        station(lambda at: MemoryTransport(hub, ANYWHERE)) as stranger,
    ):
        stranger.ask(Destination(1, client.endpoint), question)
        await stranger.until_heard(1)

        reply = stranger.heard[0]
        if served:
            assert isinstance(reply, bytes)
            assert decode_response(reply, api_key=PrivateApiKey.QUERY, version=0)[1].answer == b"why?"
            assert service.life == ["begin"]
        else:
            assert reply is None
    assert service.life == (["begin", "end"] if served else [])


class Failing(MemoryQuorumStateStore):
    """A disk that takes no vote."""

    def write(self, *_: object, **more: object) -> None:
        raise StorageError("the disk has failed")


async def test_a_service_ends_with_a_replica_that_fails_as_it_starts() -> None:
    service = Echo()
    client = alone({"service": service, "elections": Failing()}, flush="inline", engine="inline")
    with pytest.raises(ReplicaFailedError, match="the disk has failed"):
        await client.start()
    assert service.life == ["begin", "end"]
