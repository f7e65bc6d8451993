"""One stranger on the port: whatever it sends or does not send, what it costs is bounded."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from kraftlib.runtime.net.frame_turns import TURN_S
from kraftlib.runtime.net.framing import framed
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.transport import Peer, Reply
from kraftlib.security.limits import TcpLimits
from kraftlib.testing.transport_contract import PATIENCE_S, Station
from tests.runtime.net.test_tcp_server import LOOPBACK, server, still_serves, stranger, tcp
from tests.runtime.quorum import until


async def test_a_frame_may_come_byte_by_byte() -> None:
    async with server() as opened, stranger(opened.endpoint) as slow:
        for byte in framed(b"patience"):
            slow.write(bytes([byte]))
            await slow.writer.drain()
            await asyncio.sleep(0)
        assert await slow.answer() == b"patience"


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


async def test_who_rests_for_too_long_is_closed_however_much_room_there_is() -> None:
    async with server(limits=TcpLimits(idle_max_ms=20)) as opened, stranger(opened.endpoint) as quiet:
        quiet.write(framed(b"first"))
        assert await quiet.answer() == b"first"
        assert await quiet.closed() == b""
        assert tcp(opened).trouble == {"idle": 1}


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
    limits = TcpLimits(unfinished_max_bytes=200_000, newcomer_frame_max_bytes=2**30)
    async with server(limits=limits, frame_max_bytes=2**30) as opened:
        async with stranger(opened.endpoint) as modest, stranger(opened.endpoint) as greedy:
            modest.write(struct.pack(">i", 2**30) + b"x" * 1_000)
            await until_unfinished(opened, lambda kept: kept == 1_004)
            greedy.write(struct.pack(">i", 2**30) + b"x" * 300_000)
            assert await greedy.closed() == b""
            await until_unfinished(opened, lambda kept: kept == 1_004)
            assert tcp(opened).trouble == {"unfinished": 1}
        await until_unfinished(opened, lambda kept: kept == 0)


async def test_the_first_frame_of_a_stranger_is_small_and_that_of_a_replica_is_not() -> None:
    limits = TcpLimits(newcomer_frame_max_bytes=2_000)
    async with server(limits=limits) as opened, stranger(opened.endpoint) as one, stranger(opened.endpoint) as two:
        for each in (one, two):
            each.write(framed(b"x" * 2_000))
            assert await each.answer() == b"x" * 2_000
        tcp(opened).recognized(opened.requests[0][2], is_voter=False)
        one.write(framed(b"x" * 2_001))
        assert await one.answer() == b"x" * 2_001
        two.write(framed(b"x" * 2_001))
        assert await two.closed() == b""
        assert tcp(opened).trouble == {"bad_frame": 1}


async def test_large_requests_of_one_peer_leave_turns_to_others() -> None:
    """A dear frame takes a moment, and thirty of them in one turn would keep a leader from everybody else."""
    async with server() as opened, stranger(opened.endpoint) as first:
        first.write(framed(b"in"))
        assert await first.answer() == b"in"
        at = (opened.endpoint.host, opened.endpoint.port)
        with socket.create_connection(at) as dear, socket.create_connection(at) as modest:
            dear.sendall(framed(b"x" * 70_000) * 3)
            modest.sendall(framed(b"modest"))
            await opened.until(lambda: len(opened.requests) == 5)
        assert [len(frame) for frame, _, _ in opened.requests].index(6) <= 2


async def test_answers_that_nobody_reads_have_one_budget() -> None:
    """Each holds less than one connection may; the one that has not read for longest goes, and what it held with it."""
    limits = TcpLimits(answers_max_bytes=20_000_000)
    async with server(echo=False, limits=limits) as opened:
        deaf = [socket.create_connection((opened.endpoint.host, opened.endpoint.port)) for _ in range(4)]
        try:
            for number, each in enumerate(deaf):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                each.sendall(framed(b"much, please"))
                await opened.until_asked(number + 1)
                opened.requests[number][1](b"x" * 20_000_000)
            await until(lambda: tcp(opened).accepted_connections == 1)
            assert tcp(opened).trouble == {"unread": 3}
            assert await still_serves_by_hand(opened)
        finally:
            for each in deaf:
                each.close()


async def test_answers_that_wait_for_an_earlier_one_count_and_a_voter_goes_last() -> None:
    limits = TcpLimits(answers_max_bytes=10_000_000)
    async with server(echo=False, limits=limits) as opened, stranger(opened.endpoint) as voter:
        tcp(opened).voters_at(["127.0.0.1"])
        voter.write(framed(b"held") + framed(b"much, please"))
        await opened.until_asked(2)
        tcp(opened).recognized(opened.requests[0][2], is_voter=True)
        opened.requests[1][1](b"x" * 6_000_000)
        async with stranger(opened.endpoint) as other:
            other.write(framed(b"held") + framed(b"much, please"))
            await opened.until_asked(4)
            opened.requests[3][1](b"x" * 6_000_000)
            assert await other.closed() == b""
        opened.requests[0][1](b"first")
        assert [len(await voter.answer()) for _ in range(2)] == [5, 6_000_000]


async def test_a_peer_that_is_closed_and_never_reads_goes_all_the_same() -> None:
    """Else it would keep its slot and what it has not read, however little that is."""
    async with server(echo=False, limits=TcpLimits(stall_ms=50)) as opened:
        with socket.create_connection((opened.endpoint.host, opened.endpoint.port)) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.sendall(framed(b"much, please"))
            await opened.until_asked(1)
            opened.requests[0][1](b"x" * 7_000_000)
            deaf.sendall(b"\xff\xff\xff\xff")
            await until(lambda: tcp(opened).trouble["bad_frame"] == 1)
            await until(lambda: tcp(opened).accepted_connections == 0)


async def test_a_single_large_request_may_be_larger_than_the_common_limit() -> None:
    async with server(limits=TcpLimits(unfinished_max_bytes=10_000)) as opened, stranger(opened.endpoint) as large:
        large.write(framed(b"x" * 900_000))
        assert await large.answer() == b"x" * 900_000


async def until_unfinished(opened: Station, condition: Callable[[int], bool]) -> None:
    frame_server = tcp(opened)._server
    assert frame_server is not None
    await until(lambda: condition(frame_server.shared.unfinished_bytes))


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


async def test_the_frames_of_a_flood_fill_no_turn_of_the_loop_and_voters_pass_them() -> None:
    """Twenty peers that each send what one may leave unanswered kept the Fetch of a voter waiting for all of it."""
    frame_s = TURN_S / 5

    class Busy(Station):
        def request_received(self, frame: bytes | memoryview, reply: Reply, peer: Peer) -> None:
            super().request_received(frame, reply, peer)
            if bytes(frame) == b"dear":
                time.sleep(frame_s)

    transport = TcpTransport(LOOPBACK, limits=TcpLimits(pipeline_max=16))
    opened = Busy(transport)
    opened.endpoint = await transport.start(opened)
    taken = [0]
    async with AsyncExitStack() as stack, stranger(opened.endpoint) as voter, asyncio.timeout(PATIENCE_S):
        transport.voters_at(["127.0.0.1"])
        voter.write(framed(b"fetch"))
        await voter.answer()
        transport.recognized(opened.requests[0][2], is_voter=True)
        strangers = [await stack.enter_async_context(stranger(opened.endpoint)) for _ in range(20)]
        for each in strangers:
            each.write(framed(b"dear") * 16)
        await opened.until_asked(2)
        voter.write(framed(b"fetch again"))
        while len(opened.requests) < 2 + 20 * 16:
            taken.append(len(opened.requests))
            await asyncio.sleep(0)
        for each in strangers:
            assert [await each.answer() for _ in range(16)] == [b"dear"] * 16
    frames = [frame for frame, _, _ in opened.requests]
    # Between two turns of this test there may be two of the frames, and the voter's frame.
    assert max(after - before for before, after in itertools.pairwise(taken)) <= 2 * 5 + 1
    assert frames.index(b"fetch again") < 40
    await transport.close()
