"""Routes: one connection for each destination, made anew at once after a good one, and later after a bad one."""

from __future__ import annotations

import asyncio

from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.tcp_routes import pause_ms
from kraftlib.runtime.net.transport import Destination
from kraftlib.security.limits import TcpLimits
from kraftlib.testing.transport_contract import Lost, station
from tests.runtime.net.test_tcp_client import LOOPBACK, client, echo, host, request


async def test_one_connection_serves_all_requests_to_a_destination() -> None:
    connected = 0

    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        await echo(reader, writer)

    async with host(counting) as endpoint, client() as opened:
        frames = [b"%d" % number for number in range(100)]
        for frame in frames[:50]:
            opened.ask(Destination(1, endpoint), frame)
        await opened.until_heard(50)
        for frame in frames[50:]:
            opened.ask(Destination(1, endpoint), frame)
        await opened.until_heard(100)
        assert opened.heard == frames
        assert connected == 1

        opened.ask(Destination(-2, endpoint), b"bootstrap")
        await opened.until_heard(101)
        assert connected == 2


async def test_the_first_attempt_after_a_loss_is_made_at_once_and_the_next_one_pauses() -> None:
    an_hour = TcpLimits(backoff_ms=3_600_000, backoff_max_ms=3_600_000)
    async with client(limits=an_hour) as opened:
        async with station(lambda at: TcpTransport(LOOPBACK)) as server:
            there = Destination(1, server.endpoint)
            opened.ask(there, b"good")
            await opened.until_heard(1)
        await opened.until_heard(2)
        opened.ask(there)
        await opened.until_heard(4)
        opened.ask(there)
        await opened.until_heard(5)

        lost, refused = Lost(there, refused=False), Lost(there, refused=True)
        # The last one failed without an attempt, hence without news.
        assert opened.heard == [b"good", lost, None, refused, None]


def test_pauses_double_up_to_the_limit() -> None:
    assert [pause_ms(failures, TcpLimits()) for failures in (0, 1, 2, 3, 4, 5, 6, 10_000)] == [
        0,
        50,
        100,
        200,
        400,
        500,
        500,
        500,
    ]


async def test_a_peer_that_hangs_up_before_its_first_answer_is_not_asked_in_a_hot_loop() -> None:
    connected = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        await request(reader)

    async with host(hang_up) as endpoint, client(limits=TcpLimits(backoff_ms=3_600_000)) as opened:
        there = Destination(1, endpoint)
        opened.ask(there)
        await opened.until_heard(2)
        for _ in range(50):
            opened.ask(there)
        await opened.until_heard(52)

        assert connected == 1
        assert opened.heard == [None, Lost(there, refused=False)] + [None] * 50
