"""For the tests of the network: an engine that takes notes, and a peer that is written out frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs

from kraftlib.config import RaftConfig
from kraftlib.consensus.events import Failure
from kraftlib.runtime.net.api_versions import SERVED
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.network import Network
from kraftlib.runtime.net.transport import Peer, Transport
from kraftlib.testing.transport_contract import PATIENCE_S, Station, station
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint
from kraftlib.wire.frames import Request, decode_request, encode_response
from kraftlib.wire.messages.api_versions import ApiVersionsResponse
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse

ANYWHERE = Endpoint("memory", 0)


@attrs.define(eq=False)
class Engine:
    """The executor's place: what the network tells, in order."""

    heard: list[tuple[Any, ...]] = attrs.Factory(list)
    network: Network = attrs.field(init=False)
    endpoint: Endpoint = attrs.field(init=False)
    answer: Callable[[Any], Any] | None = None
    """Answers each request at once, if given."""
    _news: asyncio.Event = attrs.Factory(asyncio.Event)

    def request_received(self, request_id: int, message: Any, version: int, peer: Peer) -> None:
        self._take("request", request_id, message, version, peer)
        if self.answer is not None:
            self.network.respond(request_id, self.answer(message))

    def response_received(self, correlation_id: int, message: Any) -> None:
        self._take("response", correlation_id, message)

    def request_failed(self, correlation_id: int, failure: Failure) -> None:
        self._take("failed", correlation_id, failure)

    def connection_lost(self, destination: int, refused: bool) -> None:
        self._take("lost", destination, refused)

    def _take(self, *what: Any) -> None:
        self.heard.append(what)
        self._news.set()

    async def until(self, count: int) -> None:
        """Wait until this much was heard."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.heard) < count:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def engine(transport: Transport, *, config: RaftConfig | None = None, **how: Any) -> AsyncIterator[Engine]:
    """Run a network over `transport`."""
    running = Engine(answer=how.pop("answer", None))
    running.network = Network(
        transport, client_id="raft-client-7", receiver=running, config=config or RaftConfig(node_id=7), **how
    )
    running.endpoint = await running.network.start()
    try:
        yield running
    finally:
        await running.network.close()


@attrs.define(eq=False)
class ScriptedPeer:
    """A peer that does what the test says, over frames."""

    station: Station

    @property
    def endpoint(self) -> Endpoint:
        return self.station.endpoint

    async def asked(self, number: int) -> Request:
        """Return the request of this number, counted from 0, once it has come."""
        await self.station.until_asked(number + 1)
        return decode_request(self.station.requests[number][0])

    def reply(self, number: int, frame: bytes | None) -> None:
        self.station.requests[number][1](frame)

    async def answer(self, number: int, message: Any, *, correlation_id: int | None = None) -> Request:
        """Answer a request in its version, by default with its correlation id."""
        request = await self.asked(number)
        wanted = request.correlation_id if correlation_id is None else correlation_id
        self.reply(number, encode_response(message, version=request.api_version, correlation_id=wanted))
        return request

    async def tell_versions(self, number: int = 0, ranges: dict[int, tuple[int, int]] | None = None) -> Request:
        """Answer ApiVersions; by default as we would."""
        served = {int(key): (range_.first, range_.last) for key, range_ in SERVED.items()}
        return await self.answer(number, versions_answer(ranges or served))


@asynccontextmanager
async def scripted(hub: MemoryHub) -> AsyncIterator[ScriptedPeer]:
    async with station(lambda at: MemoryTransport(hub, ANYWHERE), echo=False) as opened:
        yield ScriptedPeer(opened)


def versions_answer(ranges: dict[int, tuple[int, int]], error_code: int = 0) -> ApiVersionsResponse:
    rows = tuple(
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=first, max_version=last)
        for key, (first, last) in ranges.items()
    )
    return ApiVersionsResponse(error_code=error_code, api_keys=rows)


def vote(*, pre_vote: bool = False, epoch: int = 5) -> VoteRequest:
    partition = VoteRequest.PartitionData(replica_epoch=epoch, replica_id=7, pre_vote=pre_vote)
    return VoteRequest(topics=(VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),))


def vote_answer(*, granted: bool = True, error_code: int = 0, partition_error: int = 0) -> VoteResponse:
    partition = VoteResponse.PartitionData(leader_id=-1, vote_granted=granted, error_code=partition_error)
    topic = VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return VoteResponse(error_code=error_code, topics=(topic,) if not error_code else ())


def fetch(offset: int = 0) -> FetchRequest:
    partition = FetchRequest.FetchPartition(fetch_offset=offset, last_fetched_epoch=0, current_leader_epoch=1)
    topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return FetchRequest(topics=(topic,), max_wait_ms=500)


def fetch_answer(records: bytes = b"", *, error_code: int = 0) -> FetchResponse:
    partition = FetchResponse.PartitionData(high_watermark=3, records=records, error_code=error_code)
    topic = FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return FetchResponse(responses=(topic,))
