"""The Unix socket transport keeps what it promises, by the kit that is there for everybody's transports."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.custom_transport import UnixSocketTransport
from kraftlib import Endpoint
from kraftlib.runtime.net.transport import Destination, Transport
from kraftlib.testing.transport_contract import TRANSPORT_CHECKS, Lost, Station, TransportCheck, station


@pytest.fixture
def directory() -> Iterator[Path]:
    """A place with a short name: the path of a Unix socket has at most some hundred characters."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
async def test_the_unix_socket_transport_keeps_the_contract(check: TransportCheck, directory: Path) -> None:
    free = itertools.count(1)

    def make(at: Endpoint | None) -> Transport:
        return UnixSocketTransport(directory, at or Endpoint("station", next(free)))

    await check(make)


async def test_what_is_no_frame_of_ours_ends_the_connection(directory: Path) -> None:
    """From whichever side."""
    endpoint = Endpoint("station", 1)
    async with station(lambda _: UnixSocketTransport(directory, endpoint)):
        path = directory / "station-1.sock"
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(answer, directory / "web-1.sock")
    client = Station(UnixSocketTransport(directory, Endpoint("station", 2)))
    await client.transport.start(client)
    web = Destination(1, Endpoint("web", 1))
    client.ask(web)
    await client.until_heard(2)
    assert client.heard == [None, Lost(web, refused=False)]
    await client.transport.close()
    server.close()
