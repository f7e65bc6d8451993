"""The HTTP transport keeps what it promises, by the kit that is there for everybody's transports."""

from __future__ import annotations

import asyncio

import pytest

from examples.custom_transport import HttpTransport
from kraftlib import Endpoint
from kraftlib.runtime.net.transport import Destination
from kraftlib.testing.transport_contract import TRANSPORT_CHECKS, Lost, Station, TransportCheck, station

ANYWHERE = Endpoint("127.0.0.1", 0)


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
async def test_the_http_transport_keeps_the_contract(check: TransportCheck) -> None:
    await check(lambda at: HttpTransport(at or ANYWHERE))


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /raft HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
        b"POST /raft HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /raft HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n",
        b"POST /raft HTTP/1.1\r\nX: " + b"x" * 100_000,
    ],
    ids=["a browser", "chunks", "a frame that is too long", "a head without an end"],
)
async def test_a_client_that_is_no_replica_is_told_so(request_head: bytes) -> None:
    async with station(lambda _: HttpTransport(ANYWHERE)) as server, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(request_head)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert server.requests == []


async def test_a_server_that_is_no_replica_is_a_lost_connection() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    client = Station(HttpTransport(ANYWHERE))
    await client.transport.start(client)
    gateway = Destination(1, Endpoint(*server.sockets[0].getsockname()))
    client.ask(gateway)
    await client.until_heard(2)
    assert client.heard == [None, Lost(gateway, refused=False)]
    await client.transport.close()
    server.close()
