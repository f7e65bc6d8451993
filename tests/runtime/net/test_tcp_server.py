"""Strangers on the port: whatever they do, the connections of others are served and what they cost is bounded."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import re
import socket
import ssl
import struct
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trustme

from kraftlib.runtime.net.framing import framed
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.transport import Destination, Peer, Reply
from kraftlib.security.limits import TcpLimits
from kraftlib.testing.transport_contract import PATIENCE_S, Station, station
from kraftlib.types import Endpoint
from tests.runtime.quorum import until

LOOPBACK = Endpoint("127.0.0.1", 0)
HALF_A_HELLO = bytes.fromhex("16 0301")
"""The beginning of a TLS handshake."""


@asynccontextmanager
async def server(
    *,
    limits: TcpLimits | None = None,
    echo: bool = True,
    frame_max_bytes: int = 1_000_000,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Station]:
    transport = TcpTransport(LOOPBACK, limits=limits, frame_max_bytes=frame_max_bytes, server_ssl=tls)
    async with station(lambda at: transport, echo=echo) as opened:
        yield opened


class Stranger:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            size = struct.unpack(">i", await self.reader.readexactly(4))[0]
            return await self.reader.readexactly(size)

    async def closed(self) -> bytes:
        """Wait until the other side has closed; return what came before."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def closed_or_answered(self) -> bool:
        """Wait for the first bytes of an answer; False, if the other side closes instead."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return bool(await self.reader.read(1))
            except ConnectionError:
                return False


@asynccontextmanager
async def stranger(endpoint: Endpoint, **how: object) -> AsyncIterator[Stranger]:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, **how)  # type: ignore[arg-type]
    try:
        yield Stranger(reader, writer)
    finally:
        writer.transport.abort()


async def still_serves(opened: Station) -> bool:
    async with stranger(opened.endpoint) as other:
        other.write(framed(b"all well?"))
        return await other.answer() == b"all well?"


def tcp(opened: Station) -> TcpTransport:
    assert isinstance(opened.transport, TcpTransport)
    return opened.transport


async def test_a_connection_that_is_gone_keeps_none_of_its_bytes() -> None:
    unfinished = (100_000).to_bytes(4, "big") + bytes(50_000)
    async with server() as opened:
        gc.collect()
        gc.disable()  # whoever waits for it keeps the memory of a flood for long
        tracemalloc.start()
        try:
            for _ in range(40):
                async with stranger(opened.endpoint) as one:
                    one.write(framed(b"in") + unfinished)
                    assert await one.answer() == b"in"
                await until(lambda: not tcp(opened).accepted_connections)
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert kept < 20 * len(unfinished)


async def test_connections_beyond_the_limit_are_refused_and_leave_room_when_they_go() -> None:
    limits = TcpLimits(connections_max=3)
    async with server(limits=limits) as opened, stranger(opened.endpoint) as one, stranger(opened.endpoint) as two:
        async with stranger(opened.endpoint) as three:
            for each in (one, two, three):
                each.write(framed(b"in"))
                assert await each.answer() == b"in"
            async with stranger(opened.endpoint) as fourth:
                assert await fourth.closed() == b""
            assert tcp(opened).trouble == {"too_many": 1}
        await until(lambda: tcp(opened).accepted_connections == 2)
        assert await still_serves(opened)


async def test_connections_that_have_gone_do_not_count() -> None:
    limits = TcpLimits(connections_max=2, connections_per_address_max=2)
    async with server(limits=limits) as opened:
        for _ in range(5):
            assert await still_serves(opened)
            await until(lambda: tcp(opened).accepted_connections == 0)
        assert tcp(opened).trouble == {}


async def test_one_address_cannot_take_all_connections() -> None:
    async with server(limits=TcpLimits(connections_per_address_max=1)) as opened, stranger(opened.endpoint) as here:
        here.write(framed(b"in"))
        await here.answer()
        async with stranger(opened.endpoint) as again:
            assert await again.closed() == b""
        async with stranger(opened.endpoint, local_addr=("127.0.0.2", 0)) as elsewhere:
            elsewhere.write(framed(b"in"))
            assert await elsewhere.answer() == b"in"


async def test_a_connection_that_is_idle_gives_way_to_a_newcomer() -> None:
    """A few clients that connect and rest must not keep a replica from the same host out."""

    class Choosy(Station):
        def request_received(self, frame: bytes | memoryview, reply: Reply, peer: Peer) -> None:
            super().request_received(frame, reply, peer)
            if bytes(frame) != b"wait":
                reply(bytes(frame))

    limits = TcpLimits(connections_per_address_max=2, idle_ms=50, stall_ms=20)
    transport = TcpTransport(LOOPBACK, limits=limits)
    opened = Choosy(transport, echo=False)
    opened.endpoint = await transport.start(opened)
    async with stranger(opened.endpoint) as busy, stranger(opened.endpoint) as idle:
        busy.write(framed(b"wait"))
        idle.write(framed(b"in"))
        assert await idle.answer() == b"in"
        async with asyncio.timeout(PATIENCE_S):
            while not await is_served(opened):
                pass

        assert await idle.closed() == b""
        opened.requests[0][1](b"at last")
        assert await busy.answer() == b"at last"
        assert transport.trouble["made_room"] == 1
    await transport.close()


async def is_served(opened: Station) -> bool:
    """Whether a newcomer gets an answer, and not just the end of its connection."""
    async with stranger(opened.endpoint) as newcomer:
        newcomer.write(framed(b"new"))
        return await newcomer.closed_or_answered()


@asynccontextmanager
async def silent_ones(opened: Station, addresses: list[str], *, each: int) -> AsyncIterator[None]:
    """Connections that say nothing."""
    found = [socket.create_connection(where(opened), source_address=(host, 0)) for host in addresses * each]
    try:
        await until(lambda: tcp(opened).accepted_connections >= min(len(found), 2))
        yield
    finally:
        for one in found:
            one.close()


def where(opened: Station) -> tuple[str, int]:
    return opened.endpoint.host, opened.endpoint.port


async def test_silent_connections_do_not_hold_a_port() -> None:
    """Four addresses, each with as many connections as it may have: all slots of strangers."""
    limits = TcpLimits(connections_max=16, connections_per_address_max=4)
    addresses = [f"127.0.0.{number}" for number in range(2, 6)]
    async with server(limits=limits) as opened, silent_ones(opened, addresses, each=5):
        assert await still_serves(opened)
        async with stranger(opened.endpoint, local_addr=("127.0.0.2", 0)) as shared:
            shared.write(framed(b"me, too"))
            assert await shared.answer() == b"me, too"


async def test_a_voter_has_slots_that_strangers_never_take() -> None:
    limits = TcpLimits(connections_max=2, connections_per_address_max=2, voter_connections_max=1)
    async with (
        server(limits=limits, echo=False) as opened,
        stranger(opened.endpoint, local_addr=("127.0.0.9", 0)) as one,
        stranger(opened.endpoint, local_addr=("127.0.0.9", 0)) as two,
    ):
        tcp(opened).voters_at(["127.0.0.7", "voter.invalid"])
        for busy in (one, two):
            busy.write(framed(b"wait"))
        await opened.until_asked(2)
        async with stranger(opened.endpoint, local_addr=("127.0.0.8", 0)) as third:
            assert await third.closed() == b""
        async with stranger(opened.endpoint, local_addr=("127.0.0.7", 0)) as voter:
            voter.write(framed(b"vote"))
            await opened.until_asked(3)
            opened.requests[2][1](b"granted")
            assert await voter.answer() == b"granted"
        assert tcp(opened).trouble == {"too_many": 1}


async def test_where_strangers_share_the_address_of_a_voter_they_give_way_to_it() -> None:
    """Behind a NAT, and on loopback: also those that ask and wait for answers."""
    limits = TcpLimits(connections_max=2, connections_per_address_max=2, voter_connections_max=2)
    async with server(limits=limits, echo=False) as opened:
        tcp(opened).voters_at(["127.0.0.1"])
        async with stranger(opened.endpoint) as voter:
            voter.write(framed(b"fetch"))
            await opened.until_asked(1)
            tcp(opened).recognized(opened.requests[0][2], is_voter=True)
            busy = [socket.create_connection(where(opened)) for _ in range(6)]
            for one in busy:
                with suppress(ConnectionError):
                    one.sendall(framed(b"wait"))
            async with stranger(opened.endpoint) as returned:
                returned.write(framed(b"vote"))
                await opened.until(lambda: any(frame == b"vote" for frame, _, _ in opened.requests))
                next(reply for frame, reply, _ in opened.requests if frame == b"vote")(b"granted")
                assert await returned.answer() == b"granted"
            opened.requests[0][1](b"records")
            assert await voter.answer() == b"records"
            for one in busy:
                one.close()


async def test_a_voter_that_authenticates_gets_a_slot_wherever_it_comes_from(authority: trustme.CA) -> None:
    limits = TcpLimits(connections_max=1, voter_connections_max=1)
    mine = client_context(authority, "node-7.example")
    async with (
        server(tls=server_context(authority), limits=limits, echo=False) as opened,
        stranger(opened.endpoint, ssl=mine) as busy,
    ):
        busy.write(framed(b"wait"))
        await opened.until_asked(1)
        async with stranger(opened.endpoint, ssl=mine) as voter:
            voter.write(framed(b"vote"))
            await opened.until_asked(2)
            tcp(opened).recognized(opened.requests[1][2], is_voter=True)
            async with stranger(opened.endpoint) as third:
                assert await third.closed() == b""
            opened.requests[1][1](b"granted")
            assert await voter.answer() == b"granted"


async def test_no_descriptors_left_stops_accepting_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()]

    def out_of_descriptors(listener: socket.socket) -> object:
        if failures:
            raise failures.pop(0)
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", out_of_descriptors)
    async with server() as opened:
        assert await still_serves(opened)
        assert failures == []
        assert tcp(opened).trouble == {"accept": 1}
        assert "Too many open files" in caplog.text


async def test_reset_connections_harm_nobody() -> None:
    async with server(echo=False) as opened:
        for sent in (b"", b"\x00", framed(b"whole"), framed(b"x" * 70_000)[:-1]):
            with socket.create_connection((opened.endpoint.host, opened.endpoint.port)) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.sendall(sent)
        await until(lambda: tcp(opened).accepted_connections == 0)
        for _, reply, _ in opened.requests:
            reply(b"to nobody")
        opened.echo = True
        assert await still_serves(opened)


async def test_an_answer_reaches_who_has_closed_its_sending_side_too_late() -> None:
    """Half-closed connections are closed: nobody waits for ever for the other half."""
    async with server(echo=False) as opened, stranger(opened.endpoint) as half:
        half.write(framed(b"question"))
        half.writer.write_eof()
        assert await half.closed() == b""


# TLS ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(authority: trustme.CA, host: str, **names: Any) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    authority.issue_cert(host, **names).configure_cert(context)
    return context


async def test_the_certificate_of_a_peer_names_it(authority: trustme.CA) -> None:
    mine = client_context(authority, "node-7.example", common_name="node-7")
    async with server(tls=server_context(authority)) as opened, stranger(opened.endpoint, ssl=mine) as known:
        known.write(framed(b"hello"))
        assert await known.answer() == b"hello"
        (principal,) = opened.requests[0][2].principals
        assert re.fullmatch(r"cert:CN=node-7,OU=Testing cert .*,O=trustme .*", principal), "its whole subject"


@pytest.mark.parametrize("who", ["nobody", "another authority's"])
async def test_who_has_no_certificate_of_ours_gets_no_answer(authority: trustme.CA, who: str) -> None:
    theirs = ssl.create_default_context()
    authority.configure_trust(theirs)
    if who != "nobody":
        trustme.CA().issue_cert("127.0.0.1").configure_cert(theirs)
    async with server(tls=server_context(authority)) as opened:
        # TLS 1.3: the client takes the handshake for done before the server has looked at its certificate.
        async with stranger(opened.endpoint, ssl=theirs) as unknown:
            unknown.write(framed(b"let me in"))
            assert await unknown.closed() == b""
        assert opened.requests == []
        assert tcp(opened).trouble == {"handshake": 1}


@pytest.mark.parametrize("sent", [framed(b"\x00\x12\x00\x04"), b"GET / HTTP/1.1\r\n\r\n"])
async def test_plaintext_on_a_tls_port_is_closed_and_named(
    authority: trustme.CA, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with server(tls=server_context(authority)) as opened, stranger(opened.endpoint) as plain:
        plain.write(sent)
        await plain.closed()
        assert opened.requests == []
        assert "one side speaks TLS and the other does not" in caplog.text


async def test_a_handshake_that_never_ends_is_given_up(authority: trustme.CA) -> None:
    async with server(tls=server_context(authority), limits=TcpLimits(handshake_ms=30)) as opened:
        async with stranger(opened.endpoint) as half:
            half.write(HALF_A_HELLO)
            assert await half.closed() == b""
        assert tcp(opened).trouble == {"handshake": 1}
        assert tcp(opened).accepted_connections == 0


async def test_an_encrypted_peer_that_is_closed_and_does_not_close_goes_all_the_same(
    authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not answer the alert with which TLS ends. Nor do answers that come too late fill the log."""
    mine, limits = client_context(authority, "node-7.example"), TcpLimits(stall_ms=50)
    async with server(tls=server_context(authority), limits=limits, echo=False) as opened:
        async with stranger(opened.endpoint, ssl=mine) as deaf:
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(20):
                deaf.write(framed(b"question"))
            await opened.until_asked(20)
            deaf.write(b"\xff\xff\xff\xff")
            await until(lambda: tcp(opened).trouble["bad_frame"] == 1)
            for _, reply, _ in opened.requests:
                reply(b"late")
            await until(lambda: tcp(opened).accepted_connections == 0)
        assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_half_open_handshakes_count_as_connections_and_give_way(authority: trustme.CA) -> None:
    tls, limits = server_context(authority), TcpLimits(connections_max=1)
    async with server(tls=tls, limits=limits) as opened, stranger(opened.endpoint) as first:
        first.write(HALF_A_HELLO)
        await until(lambda: tcp(opened).accepted_connections == 1)
        async with stranger(opened.endpoint) as second:
            second.write(HALF_A_HELLO)
            assert await first.closed() == b""
        assert tcp(opened).trouble["made_room"] == 1
        await until(lambda: tcp(opened).accepted_connections == 1)


async def test_closing_waits_for_the_last_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with server(echo=False) as opened, stranger(opened.endpoint) as last:
        last.write(framed(b"last words?"))
        await opened.until_asked(1)
        opened.requests[0][1](b"x" * 900_000)
        closing = asyncio.ensure_future(opened.transport.close())
        assert await last.closed() == framed(b"x" * 900_000)
        await closing


@pytest.mark.parametrize("turns", range(1, 8))
async def test_a_close_that_is_cancelled_frees_the_address(turns: int) -> None:
    """The host's loop ends, and cancels all of its tasks."""
    transport = TcpTransport(LOOPBACK)
    opened = Station(transport)
    place = opened.endpoint = await transport.start(opened)
    async with stranger(place) as one:
        one.write(framed(b"in"))
        await one.answer()
        opened.ask(Destination(1, place))
        await opened.until_heard(1)
        closing = asyncio.ensure_future(transport.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))

    again = TcpTransport(place)
    await again.start(Station(again))
    await again.close()


async def test_closing_does_not_wait_for_who_does_not_read() -> None:
    async with server(echo=False) as opened:
        with socket.create_connection((opened.endpoint.host, opened.endpoint.port)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.sendall(framed(b"question"))
            await opened.until_asked(1)
            opened.requests[0][1](b"x" * 20_000_000)
            listening = tcp(opened)._server
            async with asyncio.timeout(PATIENCE_S):
                await opened.transport.close()
            assert listening is not None
            assert listening.connections == 0
