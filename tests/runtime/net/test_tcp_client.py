"""Connections that a replica makes: when, how patiently, and what it is told when they end."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from kraftlib.runtime.net.framing import framed
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.transport import Destination
from kraftlib.security.limits import TcpLimits
from kraftlib.testing.transport_contract import Lost, Station, station
from kraftlib.types import Endpoint

LOOPBACK = Endpoint("127.0.0.1", 0)
Host = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def client(
    *, limits: TcpLimits | None = None, tls: ssl.SSLContext | None = None, frame_max_bytes: int = 1_000_000
) -> AsyncIterator[Station]:
    transport = TcpTransport(LOOPBACK, limits=limits, client_ssl=tls, frame_max_bytes=frame_max_bytes)
    async with station(lambda at: transport) as opened:
        yield opened


@asynccontextmanager
async def host(behaviour: Host) -> AsyncIterator[Endpoint]:
    """Listen with a raw socket and behave as told to whoever connects."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await behaviour(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the other side went first
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(behave, "127.0.0.1", 0)
    try:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


@asynccontextmanager
async def silent(address: str, port: int = 0) -> AsyncIterator[Endpoint]:
    """Have the kernel drop attempts to connect without a word: the backlog is full."""
    with socket.socket() as full:
        full.bind((address, port))
        full.listen(0)
        endpoint = Endpoint(address, full.getsockname()[1])
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex((endpoint.host, endpoint.port))
        yield endpoint
        for each in waiting:
            each.close()


async def request(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(framed(await request(reader)))


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint("no-such-host.invalid", 9),
        Endpoint("127.0.0.1", 70_000),
        Endpoint("127.0.0.1", -1),
        Endpoint("", 9),
        Endpoint("a" * 300, 9),
        Endpoint("nul\0host", 9),
        Endpoint("ünïcode." * 20, 9),
    ],
)
async def test_an_endpoint_that_nobody_can_reach_is_no_news_of_a_peer(endpoint: Endpoint) -> None:
    """A peer told it to us, so it may be anything."""
    async with client() as opened:
        assert await only_fails(opened, endpoint)


async def test_what_is_no_host_is_not_looked_up_and_cannot_forge_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A log that was written before hosts were checked may have one."""
    looked_up: list[Any] = []

    def noted(*place: Any, **how: Any) -> Any:
        looked_up.append(place)
        raise OSError("nothing is looked up here")

    async with client() as opened:
        monkeypatch.setattr(socket, "getaddrinfo", noted)
        assert await only_fails(opened, Endpoint("evil.example\nforged", 9))
    assert looked_up == []
    assert len(caplog.messages) == 1
    assert "'evil.example\\nforged':9" in caplog.messages[0]


async def only_fails(opened: Station, endpoint: Endpoint) -> bool:
    """Whether a request fails, and the next one too, without a word of a lost connection between the two."""
    for count in (1, 2):
        opened.ask(Destination(1, endpoint))
        await opened.until_heard(count)
    return opened.heard == [None, None]


async def test_a_host_that_refuses_at_one_of_its_addresses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost` has two of them, of which this host may not have one."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        family, kind = socket.AF_INET, socket.SOCK_STREAM
        places = [(family, kind, 6, "", ("127.0.0.1", port)), (family, kind, 6, "", ("127.0.0.2", port))]
        there = Destination(1, Endpoint("two-addresses.example", port))
        async with client() as opened:
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
            opened.ask(there)
            await opened.until_heard(2)
            assert opened.heard == [None, Lost(there, refused=True)]


async def test_a_host_is_reached_though_the_first_of_its_addresses_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of IPv6, say, on a network that drops it."""
    async with host(echo) as endpoint, silent("127.0.0.2", endpoint.port):
        family, kind = socket.AF_INET, socket.SOCK_STREAM
        places = [(family, kind, 6, "", (address, endpoint.port)) for address in ("127.0.0.2", "127.0.0.1")]
        async with client(limits=TcpLimits(connect_ms=1_000)) as opened:
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
            opened.ask(Destination(1, Endpoint("two-addresses.example", endpoint.port)), b"there?")
            await opened.until_heard(1)
            assert opened.heard == [b"there?"]


async def test_a_process_without_descriptors_says_nothing_of_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    async with client() as opened:
        monkeypatch.setattr(socket, "socket", exhausted)
        try:
            assert await only_fails(opened, Endpoint("127.0.0.1", 9))
        finally:
            monkeypatch.undo()


async def test_a_connection_that_is_reset_amid_the_handshake_is_lost() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with host(reset) as endpoint, client(tls=ssl.create_default_context()) as opened:
        opened.ask(Destination(1, endpoint))
        await opened.until_heard(2)
        assert opened.heard == [None, Lost(Destination(1, endpoint), refused=False)]


async def test_a_host_that_does_not_answer_is_no_news_of_a_peer() -> None:
    async with silent("127.0.0.1") as endpoint, client(limits=TcpLimits(connect_ms=50)) as opened:
        assert await only_fails(opened, endpoint)


async def test_requests_beyond_the_queue_fail_and_the_others_do_not() -> None:
    async with host(echo) as endpoint, client(limits=TcpLimits(queue_max=3)) as opened:
        for number in range(5):
            opened.ask(Destination(1, endpoint), b"%d" % number)
        await opened.until_heard(5)
        assert opened.heard == [None, None, b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS alert"),
        (struct.pack(">i", 0), "answer of 0 bytes"),
        (struct.pack(">i", -5), "answer of -5 bytes"),
        (struct.pack(">i", 1_000_001), "answer of 1000001 bytes"),
        (framed(b"answer") + framed(b"unasked"), "an answer to no question"),
    ],
)
async def test_a_peer_that_speaks_no_kafka_is_broken_off_with(
    sent: bytes, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def foreign(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(sent)
        await reader.read()

    async with host(foreign) as endpoint, client() as opened:
        there = Destination(1, endpoint)
        opened.ask(there)
        await opened.until_heard(2)

        assert opened.heard[-1] == Lost(there, refused=False)
        assert what in caplog.text
        assert len(caplog.messages) == 1


async def test_a_truncated_answer_is_no_answer() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(framed(b"long answer")[:-1])
        await writer.drain()
        writer.close()

    async with host(cut) as endpoint, client() as opened:
        opened.ask(Destination(1, endpoint))
        await opened.until_heard(2)
        assert opened.heard == [None, Lost(Destination(1, endpoint), refused=False)]


async def test_closing_gives_up_an_attempt_that_is_under_way() -> None:
    async with client() as opened:
        opened.ask(Destination(1, Endpoint("192.0.2.1", 9)))
        await opened.transport.close()
        assert opened.heard == [None]


# TLS ----------------------------------------------------------------------------------------------


async def test_a_server_of_another_authority_is_named_and_not_taken_for_dead(caplog: pytest.LogCaptureFixture) -> None:
    served, trusted = trustme.CA(), trustme.CA()
    theirs, ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    served.issue_cert("127.0.0.1").configure_cert(theirs)
    trusted.configure_trust(ours)
    async with station(lambda at: TcpTransport(LOOPBACK, server_ssl=theirs)) as server, client(tls=ours) as opened:
        there = Destination(1, server.endpoint)
        assert await only_fails(opened, there.endpoint)
        assert server.requests == []
        assert "certificate" in caplog.text


async def test_a_server_with_the_certificate_of_another_host_is_not_taken_for_dead() -> None:
    authority = trustme.CA()
    theirs, ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("elsewhere.example").configure_cert(theirs)
    authority.configure_trust(ours)
    async with station(lambda at: TcpTransport(LOOPBACK, server_ssl=theirs)) as server, client(tls=ours) as opened:
        assert await only_fails(opened, server.endpoint)


async def test_tls_to_a_plaintext_port_is_lost_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async with station(lambda at: TcpTransport(LOOPBACK)) as server:
        async with client(tls=ssl.create_default_context()) as opened:
            opened.ask(Destination(1, server.endpoint))
            await opened.until_heard(2)
            assert opened.heard == [None, Lost(Destination(1, server.endpoint), refused=False)]
        assert "it sent TLS, but this port is plaintext" in caplog.text
