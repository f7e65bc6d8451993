"""Connections are looked at as they come, wait for their first bytes in a slot, and are admitted or turned away."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trustme

from kraftlib.runtime.net.framing import framed
from kraftlib.runtime.net.sockets import bind
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.security.limits import TcpLimits
from kraftlib.testing.transport_contract import PATIENCE_S, Station, station
from kraftlib.types import Endpoint, parse_endpoint
from kraftlib.wire.frames import encode_request
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from tests.runtime.net.test_sasl_connections import log_in, server, telling, users
from tests.runtime.net.test_tcp_server import Stranger, server_context, stranger, tcp
from tests.runtime.quorum import until

LOOPBACK = Endpoint("127.0.0.1", 0)
HELLO = encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="stranger")


async def test_a_plaintext_client_of_a_tls_port_is_told_in_tls() -> None:
    told: list[tuple[str, str]] = []
    transport = TcpTransport(LOOPBACK, server_ssl=server_context(trustme.CA()))
    transport.tell_refusals(lambda peer, name, reason: told.append((name, reason)))
    async with station(lambda at: transport) as opened, stranger(opened.endpoint) as plain:
        plain.write(framed(HELLO))
        answer = await plain.closed()
    assert told == [("TlsHandshake", "one side speaks TLS and the other does not")]
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    incoming.write(answer)
    with pytest.raises(ssl.SSLError, match="TLSV1_ALERT_PROTOCOL_VERSION"):
        client.do_handshake()


async def test_who_asks_too_early_is_told_for_the_audit_log_and_takes_no_slot() -> None:
    told: list[tuple[str, str, str]] = []
    async with station(lambda _: telling(told)) as opened:
        for _ in range(3):
            async with stranger(opened.endpoint) as early:
                early.write(framed(b"\x00\x01" + HELLO[2:]))
                assert await early.closed() == b""
        assert [(name, reason) for _, name, reason in told] == [
            ("SaslLogin", "it asked for API 1 before it has authenticated")
        ] * 3
        assert tcp(opened).accepted_connections == 0
        assert opened.requests == []


# Where the system accepts a connection before its first bytes, as it does on a Unix socket --------------------


@asynccontextmanager
async def unix_server(directory: Path, limits: TcpLimits | None = None) -> AsyncIterator[Station]:
    transport = TcpTransport(parse_endpoint(f"unix:{directory}/1.sock"), limits=limits)
    async with station(lambda at: transport, echo=True) as opened:
        yield opened


@asynccontextmanager
async def connected(directory: Path) -> AsyncIterator[Stranger]:
    reader, writer = await asyncio.open_unix_connection(f"{directory}/1.sock")
    try:
        yield Stranger(reader, writer)
    finally:
        writer.transport.abort()


async def test_who_speaks_late_or_byte_by_byte_is_served(tmp_path: Path) -> None:
    async with unix_server(tmp_path) as opened, connected(tmp_path) as late:
        await until(lambda: tcp(opened).accepted_connections == 1)
        for byte in framed(b"at last"):
            late.write(bytes([byte]))
            await asyncio.sleep(0.002)
        assert await late.answer() == b"at last"
        assert tcp(opened).accepted_connections == 1


async def test_the_silent_give_way_are_closed_in_time_and_at_the_end(tmp_path: Path) -> None:
    limits = TcpLimits(connections_max=1, voter_connections_max=1)  # the user of the replica has both kinds of slots
    async with unix_server(tmp_path, limits) as opened, connected(tmp_path) as first, connected(tmp_path) as second:
        await until(lambda: tcp(opened).accepted_connections == 2)
        async with connected(tmp_path):
            assert await first.closed() == b""
            assert tcp(opened).trouble == {"made_room": 1}
            await asyncio.wait_for(opened.transport.close(), PATIENCE_S)
            assert await second.closed() == b""
    async with unix_server(tmp_path, TcpLimits(first_frame_ms=20)) as opened, connected(tmp_path) as silent:
        assert await silent.closed() == b""
        assert tcp(opened).trouble == {"no_first_frame": 1}
        await until(lambda: tcp(opened).accepted_connections == 0)


async def test_the_silent_that_go_and_those_with_wrong_first_bytes_free_their_slots(tmp_path: Path) -> None:
    async with unix_server(tmp_path) as opened:
        async with connected(tmp_path), connected(tmp_path) as foreign:
            await until(lambda: tcp(opened).accepted_connections == 2)
            foreign.write(b"GET / HTTP/1.1\r\n\r\n")
            await foreign.closed()
            await until(lambda: tcp(opened).accepted_connections == 1)
        await until(lambda: tcp(opened).accepted_connections == 0)
        assert tcp(opened).trouble == {"bad_frame": 1}


async def test_a_login_that_begins_late_succeeds() -> None:
    async with server() as opened, stranger(opened.endpoint) as peer:
        await until(lambda: tcp(opened).accepted_connections == 1)
        await log_in(peer, users(2))


async def test_what_is_accepted_has_the_options_of_the_listener() -> None:
    listener = await bind(LOOPBACK, encrypted=False, insecure=False)
    with listener, socket.create_connection(listener.getsockname()) as client:
        client.send(b"first")
        async with asyncio.timeout(PATIENCE_S):
            accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
