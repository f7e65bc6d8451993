"""The relays of a chaos run carry bytes as a network does: in order, late over a slow link, and not over a held one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kraftlib.types import Endpoint
from kraftlib.wire.frames import encode_request
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from tests.chaos.links import Network

PATIENCE_S = 30
QUIET_S = 0.2
"""How long it is looked whether something comes that must not; a slow machine only makes that look shorter."""

REQUEST = encode_request(ApiVersionsRequest(), version=0, correlation_id=0, client_id="raft-client-1")
FIRST = struct.pack(">i", len(REQUEST)) + REQUEST


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[Network, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect replica 1 to replica 2, which sends every byte back."""
    network = Network([1, 2])
    await network.start()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    network.serve(2, Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]))
    there = network.endpoint(2)
    reader, writer = await asyncio.open_connection(there.host, there.port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            writer.write(FIRST)
            assert await reader.readexactly(len(FIRST)) == FIRST
            yield network, reader, writer
    finally:
        writer.close()
        server.close()
        await network.close()


async def test_bytes_pass_in_both_directions_and_in_order() -> None:
    async with connection() as (_, reader, writer):
        sent = bytes(range(256)) * 4_096
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent


@pytest.mark.parametrize(("source", "target"), [(1, 2), (2, 1)], ids=["requests", "answers"])
async def test_what_is_held_comes_late_and_not_before_the_link_is_released(source: int, target: int) -> None:
    async with connection() as (network, reader, writer):
        network.link(source, target).hold()
        writer.write(b"late")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await reader.readexactly(1)
        network.link(source, target).release()
        assert await reader.readexactly(4) == b"late"


async def test_a_held_link_does_not_hold_the_other_direction() -> None:
    async with connection() as (network, reader, writer):
        network.link(2, 1).hold()
        network.link(2, 1).release()
        network.link(1, 2).delay_s = 0.01
        writer.write(b"slow")
        assert await reader.readexactly(4) == b"slow"


async def test_a_reset_ends_the_connection() -> None:
    async with connection() as (network, reader, _):
        network.reset(1, 2)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)


async def test_a_replica_that_does_not_run_ends_the_connection() -> None:
    network = Network([1, 2])
    await network.start()
    there = network.endpoint(2)
    reader, writer = await asyncio.open_connection(there.host, there.port)
    try:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
    finally:
        writer.close()
        await network.close()
