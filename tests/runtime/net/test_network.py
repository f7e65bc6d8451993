"""Two replicas talk: both halves of the network together, over real sockets."""

from __future__ import annotations

import asyncio
import io
import socket
import struct
from typing import Any

from kio.schema.api_versions.v4.request import ApiVersionsRequest as KioApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse as KioApiVersionsResponse
from kio.serial import entity_reader, entity_writer

from kraftlib.consensus.events import Failure
from kraftlib.records.batch import encode_batch, read_batches
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.types import Endpoint
from tests.runtime.wired import engine, fetch, fetch_answer

LOOPBACK = Endpoint("127.0.0.1", 0)


def over_tcp(**how: Any) -> Any:
    return engine(TcpTransport(LOOPBACK), **how)


async def test_records_of_a_megabyte_arrive_as_they_left() -> None:
    batches = [
        encode_batch([b"%d" % number * 10_000] * 10, base_offset=10 * number, epoch=1, timestamp_ms=1)
        for number in range(10)
    ]
    async with over_tcp() as leader, over_tcp() as follower:
        for correlation_id in range(3):
            follower.network.send(correlation_id, 1, leader.endpoint, fetch())
            await leader.until(correlation_id + 1)
            leader.network.respond_records([leader.heard[correlation_id][1]], fetch_answer(), batches)
            await follower.until(correlation_id + 1)
            records = follower.heard[correlation_id][2].responses[0].partitions[0].records
            assert read_batches(records) == tuple(batches)


async def test_a_killed_leader_is_noticed_and_refused() -> None:
    async with over_tcp() as follower:
        async with over_tcp() as leader:
            follower.network.send(1, 3, leader.endpoint, fetch())
            await leader.until(1)
        await follower.until(2)
        follower.network.send(2, 3, leader.endpoint, fetch())
        await follower.until(4)
        assert follower.heard == [
            ("failed", 1, Failure.DISCONNECTED),
            ("lost", 3, False),
            ("failed", 2, Failure.UNSENT),
            ("lost", 3, True),
        ]


async def test_a_raw_client_with_an_independent_codec_is_served() -> None:
    """kio writes the question and reads the answer; the frames around them are put together by hand."""

    def ask(endpoint: Endpoint) -> bytes:
        with socket.create_connection((endpoint.host, endpoint.port), timeout=10) as raw:
            body = io.BytesIO()
            entity_writer(KioApiVersionsRequest)(
                body, KioApiVersionsRequest(client_software_name="lab", client_software_version="0.1")
            )
            request = struct.pack(">hhih", 18, 4, 77, 3) + b"lab\x00" + body.getvalue()
            raw.sendall(struct.pack(">i", len(request)) + request)
            file = raw.makefile("rb")
            return file.read(struct.unpack(">i", file.read(4))[0])

    async with over_tcp(features=lambda: {"kraft.version": 1}) as server:
        frame = await asyncio.to_thread(ask, server.endpoint)
    assert frame[:4] == struct.pack(">i", 77)
    response, size = entity_reader(KioApiVersionsResponse)(frame[4:], 0)
    assert size == len(frame) - 4
    assert response.error_code == 0
    assert {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}[52] == (0, 2)
    assert [(row.name, row.min_version, row.max_version) for row in response.supported_features] == [
        ("kraft.version", 0, 1)
    ]
