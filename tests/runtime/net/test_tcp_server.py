"""Strangers on the port: whatever they do, the connections of others are served and what they cost is bounded."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from kraftlib.runtime.net.framing import framed
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.tcp_limits import TcpLimits
from kraftlib.runtime.net.transport import Destination, Peer, Reply
from kraftlib.testing.transport_contract import PATIENCE_S, Station, station
from kraftlib.types import Endpoint

LOOPBACK = Endpoint("127.0.0.1", 0)


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


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what nobody announces."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_frame_may_come_byte_by_byte() -> None:
    async with server() as opened, stranger(opened.endpoint) as slow:
        for byte in framed(b"patience"):
            slow.write(bytes([byte]))
            await slow.writer.drain()
            await asyncio.sleep(0)
        assert await slow.answer() == b"patience"


async def test_a_thousand_pipelined_requests_are_answered_in_order() -> None:
    frames = [b"request %d" % number for number in range(1_000)]
    async with server() as opened, stranger(opened.endpoint) as eager:
        eager.write(b"".join(map(framed, frames)))

        assert [await eager.answer() for _ in frames] == frames


async def test_pipelined_requests_are_taken_as_earlier_ones_are_answered() -> None:
    frames = [b"request %d" % number for number in range(1_000)]
    async with server(echo=False, limits=TcpLimits(pipeline_max=8)) as opened, stranger(opened.endpoint) as eager:
        eager.write(b"".join(map(framed, frames)))
        for number in range(0, 1_000, 8):
            await opened.until_asked(number + 8)
            assert len(opened.requests) == number + 8
            # From the last to the first: the order of the answers is not that of the requests.
            for frame, reply, _ in reversed(opened.requests[number:]):
                reply(frame)

        assert [await eager.answer() for _ in frames] == frames


async def test_one_peer_that_floods_does_not_keep_another_waiting() -> None:
    """It is served in turns: the request of another is answered long before the flood is."""
    flood = framed(b"x") * 20_000
    async with server() as opened, stranger(opened.endpoint) as greedy, stranger(opened.endpoint) as modest:
        greedy.write(flood)
        await opened.until_asked(1)
        modest.write(framed(b"me too"))
        assert await modest.answer() == b"me too"
        modest_came = next(place for place, (frame, _, _) in enumerate(opened.requests) if frame == b"me too")

        for _ in range(20_000):
            await greedy.answer()
        assert modest_came < 5_000


async def test_requests_beyond_the_rate_are_taken_later() -> None:
    async with server(limits=TcpLimits(requests_per_second=500)) as opened, stranger(opened.endpoint) as hot:
        hot.write(framed(b"again") * 250)

        assert {await hot.answer() for _ in range(250)} == {b"again"}
        assert tcp(opened).trouble["paced"] >= 2


@pytest.mark.parametrize(
    ("sent", "what"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS alert"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (struct.pack(">i", 0), "frame of 0 bytes"),
        (struct.pack(">i", -1), "frame of -1 bytes"),
        (struct.pack(">i", 1_000_001), "frame of 1000001 bytes"),
        (b"\xff" * 100, "frame of -1 bytes"),
    ],
)
async def test_who_speaks_no_kafka_is_closed_and_named(
    sent: bytes, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with server() as opened, stranger(opened.endpoint) as foreign:
        foreign.write(framed(b"so far so good") + sent)
        assert await foreign.closed() == framed(b"so far so good")
        assert await still_serves(opened)

        assert len(caplog.messages) == 1
        assert what in caplog.text
        assert tcp(opened).trouble == {"bad_frame": 1}


async def test_garbage_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as opened:
        for _ in range(20):
            async with stranger(opened.endpoint) as foreign:
                foreign.write(b"\xde\xad\xbe\xef" * 10)
                await foreign.closed()
        assert len(caplog.messages) == 1
        assert tcp(opened).trouble == {"bad_frame": 20}


async def test_who_sends_nothing_is_closed() -> None:
    async with server(limits=TcpLimits(first_frame_ms=20)) as opened, stranger(opened.endpoint) as silent:
        assert await silent.closed() == b""
        assert tcp(opened).trouble == {"no_first_frame": 1}


async def test_who_has_sent_a_request_may_rest() -> None:
    limits = TcpLimits(first_frame_ms=20, frame_ms=20)
    async with server(limits=limits) as opened, stranger(opened.endpoint) as quiet:
        quiet.write(framed(b"first"))
        await quiet.answer()
        for _ in range(2):
            async with stranger(opened.endpoint) as silent:
                await silent.closed()  # so a deadline has passed and was looked at
        quiet.write(framed(b"second"))
        assert await quiet.answer() == b"second"


@pytest.mark.parametrize("begun", [framed(b"x" * 100)[:-1], b"\x00\x00"])
async def test_a_request_that_never_ends_is_given_up(begun: bytes) -> None:
    async with server(limits=TcpLimits(frame_ms=20)) as opened, stranger(opened.endpoint) as slow:
        slow.write(framed(b"first"))
        await slow.answer()
        slow.write(begun)

        assert await slow.closed() == b""
        assert tcp(opened).trouble == {"slow_sender": 1}


async def test_a_thousand_announced_megabytes_take_no_memory() -> None:
    """What is kept is what arrived; who goes beyond the common limit is closed, the others are not."""
    limits = TcpLimits(unfinished_max_bytes=200_000)
    async with server(limits=limits, frame_max_bytes=2**30) as opened:
        async with stranger(opened.endpoint) as modest, stranger(opened.endpoint) as greedy:
            modest.write(struct.pack(">i", 2**30) + b"x" * 1_000)
            await until_unfinished(opened, lambda kept: kept == 1_004)
            greedy.write(struct.pack(">i", 2**30) + b"x" * 300_000)
            assert await greedy.closed() == b""
            await until_unfinished(opened, lambda kept: kept == 1_004)
            assert tcp(opened).trouble == {"unfinished": 1}
        await until_unfinished(opened, lambda kept: kept == 0)


async def test_a_single_large_request_may_be_larger_than_the_common_limit() -> None:
    async with server(limits=TcpLimits(unfinished_max_bytes=10_000)) as opened, stranger(opened.endpoint) as large:
        large.write(framed(b"x" * 900_000))
        assert await large.answer() == b"x" * 900_000


async def until_unfinished(opened: Station, condition: Callable[[int], bool]) -> None:
    frame_server = tcp(opened)._server
    assert frame_server is not None
    await until(lambda: condition(frame_server.unfinished_bytes))


async def test_who_never_reads_is_held_and_then_closed() -> None:
    limits = TcpLimits(send_buffer_max_bytes=100_000, stall_ms=50, pipeline_max=1)
    async with server(echo=False, limits=limits) as opened:
        with socket.create_connection((opened.endpoint.host, opened.endpoint.port)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.setblocking(False)
            deaf.sendall(framed(b"much, please") * 30)
            answered = 0
            async with asyncio.timeout(PATIENCE_S):
                while tcp(opened).accepted_connections or not answered:
                    for _, reply, _ in opened.requests[answered:]:
                        reply(b"x" * 20_000_000)
                        answered += 1
                    await asyncio.sleep(0)
        # Thirty were asked for: after the first had filled the buffer, no further request was taken.
        assert answered == 1
        assert tcp(opened).trouble == {"slow_reader": 1}


async def test_requests_behind_an_answer_that_is_not_read_are_not_taken() -> None:
    """Also not those that came in one piece with it: else a few hundred bytes would make us hold gigabytes."""

    class Generous(Station):
        def request_received(self, frame: bytes | memoryview, reply: Reply, peer: Peer) -> None:
            super().request_received(frame, reply, peer)
            reply(b"x" * 20_000_000)

    transport = TcpTransport(LOOPBACK, limits=TcpLimits(stall_ms=50))
    opened = Generous(transport, echo=False)
    opened.endpoint = await transport.start(opened)
    with socket.create_connection((opened.endpoint.host, opened.endpoint.port)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.sendall(framed(b"much, please") * 30)
        await opened.until_asked(1)
        await until(lambda: transport.accepted_connections == 0)
    assert len(opened.requests) == 1
    await transport.close()


async def test_answers_that_wait_for_an_earlier_one_keep_further_requests_from_being_taken() -> None:
    """Else a Fetch that is held, and many behind it, would make us hold all their records at once."""
    limits = TcpLimits(send_buffer_max_bytes=1_000)
    async with server(echo=False, limits=limits) as opened, stranger(opened.endpoint) as eager:
        eager.write(framed(b"held") + framed(b"more") * 20)
        await opened.until_asked(21)
        for _, reply, _ in opened.requests[1:]:
            reply(b"x" * 600)
        eager.write(framed(b"more") * 5)
        assert await still_serves_by_hand(opened)
        assert [frame for frame, _, _ in opened.requests].count(b"more") == 20

        opened.requests[0][1](b"first")
        assert [await eager.answer() for _ in range(21)] == [b"first", *[b"x" * 600] * 20]
        await opened.until(lambda: [frame for frame, _, _ in opened.requests].count(b"more") == 25)


async def still_serves_by_hand(opened: Station) -> bool:
    """Whether another connection is served: by then what came before on the others was looked at."""
    async with stranger(opened.endpoint) as other:
        other.write(framed(b"all well?"))
        await opened.until(lambda: opened.requests[-1][0] == b"all well?")
        opened.requests[-1][1](b"yes")
        return await other.answer() == b"yes"


async def test_a_slow_reader_gets_everything_if_it_reads_in_time() -> None:
    limits = TcpLimits(send_buffer_max_bytes=10_000)
    async with server(limits=limits) as opened, stranger(opened.endpoint) as slow:
        frames = [bytes([number]) * 500_000 for number in range(20)]
        slow.write(b"".join(map(framed, frames)))
        assert [await slow.answer() for _ in frames] == frames


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


async def test_no_descriptors_left_stops_accepting_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    accept, failures = loop.sock_accept, [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()]

    async def out_of_descriptors(listener: socket.socket) -> object:
        if failures:
            raise failures.pop(0)
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", out_of_descriptors)
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


async def test_the_certificate_of_a_peer_names_it(authority: trustme.CA) -> None:
    mine = ssl.create_default_context()
    authority.configure_trust(mine)
    authority.issue_cert("node-7.example", common_name="node-7").configure_cert(mine)
    async with server(tls=server_context(authority)) as opened, stranger(opened.endpoint, ssl=mine) as known:
        known.write(framed(b"hello"))
        assert await known.answer() == b"hello"
        assert opened.requests[0][2].principal == "node-7"


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
        async with stranger(opened.endpoint) as silent:
            assert await silent.closed() == b""
        assert tcp(opened).trouble == {"handshake": 1}
        assert tcp(opened).accepted_connections == 0


async def test_half_open_handshakes_count_as_connections(authority: trustme.CA) -> None:
    tls, limits = server_context(authority), TcpLimits(connections_max=1)
    async with server(tls=tls, limits=limits) as opened, stranger(opened.endpoint), stranger(opened.endpoint) as second:
        assert await second.closed() == b""
        assert tcp(opened).trouble == {"too_many": 1}


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
