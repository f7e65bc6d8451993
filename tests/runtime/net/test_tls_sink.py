"""What an encrypted peer does not read waits in the sink, and is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kraftlib.runtime.net.tls_sink import PIECE_BYTES, TlsSink
from tests.security.authority import Authority

MEBIBYTE = 1024 * 1024


class Server(asyncio.Protocol):
    """Writes to its sink what a test says."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.said: list[str] = []
        self.made = asyncio.Event()
        self.gone = asyncio.Event()
        self.relieved = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        loop = asyncio.get_running_loop()
        self.sink = TlsSink(
            transport, self.max_bytes, loop, stalled=lambda: self.said.append("stalled"), relieved=self.note_relief
        )
        self.sink.begin()
        self.made.set()

    def note_relief(self) -> None:
        self.said.append("relieved")
        self.relieved.set()

    def pause_writing(self) -> None:
        self.sink.pause_writing()

    def resume_writing(self) -> None:
        self.sink.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self.sink.drop()
        self.gone.set()


@asynccontextmanager
async def pair(directory: Path, max_bytes: int) -> AsyncIterator[tuple[Server, asyncio.StreamReader]]:
    """Connect over TLS; the client reads nothing by itself beyond a few hundred KiB."""
    contexts = Authority(directory).contexts("kraft://test/1")
    server = Server(max_bytes)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: server, "127.0.0.1", 0, ssl=contexts["server_ssl"])
    port = listener.sockets[0].getsockname()[1]
    tls = contexts["client_ssl"]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="127.0.0.1")
    try:
        async with asyncio.timeout(30):
            await server.made.wait()
            yield server, reader
    finally:
        writer.transport.abort()
        listener.close()
        await server.gone.wait()
        await asyncio.sleep(0)


@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES + 1, 32 * MEBIBYTE])
async def test_all_arrives_in_order_before_the_connection_closes(size: int, tmp_path: Path) -> None:
    sent = [b"first", bytes(range(256)) * (size // 256) + b"x" * (size % 256), b"last"]
    async with pair(tmp_path, MEBIBYTE) as (server, reader):
        for each in sent:
            server.sink.write(each)
        server.sink.close()
        assert await reader.read() == b"".join(sent)


async def test_what_is_not_read_is_counted_and_said_once(tmp_path: Path) -> None:
    async with pair(tmp_path, 8 * MEBIBYTE) as (server, reader):
        server.sink.write(b"x" * 48 * MEBIBYTE)
        await asyncio.sleep(0.2)  # the sockets take what they can
        assert server.sink.get_write_buffer_size() > 24 * MEBIBYTE
        assert server.said == ["stalled"]
        assert len(await reader.readexactly(48 * MEBIBYTE)) == 48 * MEBIBYTE
        await server.relieved.wait()
        assert server.said == ["stalled", "relieved"]


async def test_a_connection_that_is_gone_keeps_nothing(tmp_path: Path) -> None:
    async with pair(tmp_path, MEBIBYTE) as (server, _):
        server.sink.write(b"x" * 48 * MEBIBYTE)
    assert server.sink.get_write_buffer_size() == 0
