"""Simulated brokers and admin clients: connections that speak Kafka's protocol, and do little else."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, Final

from kraftlib.controller.features import SUPPORTED
from kraftlib.types import Endpoint, new_uuid
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftlib.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlib.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlib.wire.messages.create_topics import CreateTopicsRequest
from tools.bench_controller.metadata import directory_of

ANSWER_S: Final = 300.0
FAR: Final = 1 << 40
"""A simulated broker has read everything."""

_SIZE: Final = struct.Struct(">i")


class FailedError(Exception):
    """A controller has refused what it should have done."""


class Connection(asyncio.Protocol):
    """One connection; requests may be under way at the same time, and are answered in order."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: list[asyncio.Future[bytes]] = []
        self._received = bytearray()

    @classmethod
    async def to(cls, place: Endpoint) -> Connection:
        """Connect. Raises: OSError."""
        _, protocol = await asyncio.get_running_loop().create_connection(cls, place.host, place.port)
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Settle the requests whose answers are there."""
        self._received += data
        while len(self._received) >= 4:
            end = 4 + _SIZE.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            answer = bytes(self._received[4:end])
            del self._received[:end]
            waiting = self._waiting.pop(0)
            if not waiting.done():
                waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the connection has ended"))
        self._waiting.clear()
        self._transport = None

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    async def exchange(self, frame: bytes) -> bytes:
        """Send a framed request; return the answer without its size. Raises: ConnectionResetError, TimeoutError."""
        if self._transport is None:
            raise ConnectionResetError("the connection has ended")
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._transport.write(frame)
        async with asyncio.timeout(ANSWER_S):
            return await waiting

    async def ask(self, request: Any) -> Any:
        """Ask in the newest version."""
        return answered(request, await self.exchange(framed(request)))


def framed(request: Any) -> bytes:
    """Return a request with its size, in the newest version."""
    frame = encode_request(request, version=request.valid_versions.last, correlation_id=1, client_id="bench")
    return _SIZE.pack(len(frame)) + frame


def answered(request: Any, answer: bytes) -> Any:
    """Return the answer to such a request."""
    return decode_response(answer, api_key=request.api_key, version=request.valid_versions.last)[1]


def topic(
    name: str, partitions: int, replicas: int, assignments: Sequence[tuple[int, ...]] = ()
) -> CreateTopicsRequest:
    """Return the request that creates a topic, with replicas where the controller wants or as they are given."""
    rows = tuple(
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
        for number, brokers in enumerate(assignments)
    )
    wanted = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=-1 if rows else partitions,
        replication_factor=-1 if rows else replicas,
        assignments=rows,
    )
    return CreateTopicsRequest(topics=(wanted,), timeout_ms=60_000)


def check_created(answer: Any) -> None:
    """Raises: FailedError, unless the topic was created."""
    (row,) = answer.topics
    if row.error_code:
        raise FailedError(f"topic {row.name} was not created: {row.error_code} {row.error_message}")


def registration(cluster_id: str, broker_id: int) -> BrokerRegistrationRequest:
    """Return the registration of a broker that has just started."""
    row = BrokerRegistrationRequest.Feature
    features = tuple(
        row(name=name, min_supported_version=range_.first, max_supported_version=range_.last)
        for name, range_ in SUPPORTED.items()
    )
    place = BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=9)
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=new_uuid(),
        listeners=(place,),
        features=features,
        log_dirs=(directory_of(broker_id),),
    )


async def register(connection: Connection, cluster_id: str, broker_id: int) -> int:
    """Register a broker, let it serve, and return its epoch. Raises: FailedError."""
    answer = await connection.ask(registration(cluster_id, broker_id))
    if answer.error_code:
        raise FailedError(f"broker {broker_id} was not registered: {ErrorCode(answer.error_code).name}")
    beat = await connection.ask(heartbeat(broker_id, answer.broker_epoch))
    if beat.error_code or beat.is_fenced:
        raise FailedError(f"broker {broker_id} may not serve: {beat!r}")
    return int(answer.broker_epoch)


def heartbeat(broker_id: int, epoch: int, *, want_fence: bool = False) -> BrokerHeartbeatRequest:
    """Return a heartbeat of a broker that has read everything."""
    return BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=FAR, want_fence=want_fence
    )


def small_write(broker_id: int, epoch: int) -> AllocateProducerIdsRequest:
    """Return a request for which one small record is committed."""
    return AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
