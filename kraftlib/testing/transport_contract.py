"""The contract of every `Transport`, as checks that any test runner can run.

    @pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
    async def test_my_transport_keeps_the_contract(check: TransportCheck) -> None:
        await check(lambda at: MyTransport(at or MyAddress.free()))

A check gets a function that makes transports which reach each other: `at` is None for any free address, or an endpoint
that an earlier one has returned and left. It raises InvariantError, with the promise that was broken, or TimeoutError.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import attrs

from kraftlib.errors import ensure
from kraftlib.runtime.net.transport import Destination, Frame, Peer, Reply, Transport
from kraftlib.types import Endpoint

MakeTransport = Callable[[Endpoint | None], Transport]
TransportCheck = Callable[[MakeTransport], Awaitable[None]]

PATIENCE_S: Final = 10.0
"""Longer than anything here takes."""


@attrs.define(eq=False)
class Station:
    """An engine that only takes notes: one transport, and its calls in their order."""

    transport: Transport
    endpoint: Endpoint = Endpoint("nowhere", 0)
    requests: list[tuple[bytes, Reply, Peer]] = attrs.Factory(list)
    heard: list[object] = attrs.Factory(list)
    """Answers (None or the frame) and lost connections, as they came."""
    echo: bool = True
    """Answer each request at once, with its own bytes."""
    foreign: set[str] = attrs.Factory(set)
    """The callbacks that came on another thread than that of the loop."""
    _thread: int = attrs.Factory(threading.get_ident)
    _news: asyncio.Event = attrs.Factory(asyncio.Event)

    def request_received(self, frame: Frame, reply: Reply, peer: Peer) -> None:
        """Take a request."""
        self._came("request_received")
        self.requests.append((bytes(frame), reply, peer))
        self._news.set()
        if self.echo:
            reply(bytes(frame))

    def connection_lost(self, destination: Destination, refused: bool) -> None:
        """Take note of a lost connection."""
        self._came("connection_lost")
        self.heard.append(Lost(destination, refused))
        self._news.set()

    def answered(self, frame: Frame | None) -> None:
        """Take an answer: the `Reply` of most requests here."""
        self._came("a reply")
        self.heard.append(None if frame is None else bytes(frame))
        self._news.set()

    def _came(self, callback: str) -> None:
        if threading.get_ident() != self._thread:
            self.foreign.add(callback)

    def ask(self, destination: Destination, frame: bytes = b"question") -> None:
        """Send a request whose answer will be heard, and not before this returns."""
        before = len(self.heard)
        self.transport.send(destination, frame, self.answered)
        ensure(len(self.heard) == before, "send returns before any callback is called")

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, which is looked at whenever there is news."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def until_heard(self, count: int) -> None:
        """Wait for this many answers and lost connections."""
        await self.until(lambda: len(self.heard) >= count)

    async def until_asked(self, count: int) -> None:
        """Wait for this many requests."""
        await self.until(lambda: len(self.requests) >= count)


@attrs.frozen
class Lost:
    """`connection_lost` was called with these."""

    destination: Destination
    refused: bool


@asynccontextmanager
async def station(make: MakeTransport, *, at: Endpoint | None = None, echo: bool = True) -> AsyncIterator[Station]:
    """Run a transport that takes notes."""
    opened = Station(make(at), echo=echo)
    opened.endpoint = await opened.transport.start(opened)
    try:
        yield opened
    finally:
        await opened.transport.close()
        called = ", ".join(sorted(opened.foreign))
        ensure(not called, f"all is called on the loop that start() ran on; another thread called {called}")


async def a_request_is_answered(make: MakeTransport) -> None:
    """The frame arrives as it was sent, with a peer to name in logs, and so does the answer."""
    async with station(make) as server, station(make) as client:
        client.ask(Destination(1, server.endpoint), b"\x00\x12 question")
        await client.until_heard(1)
        ensure(client.heard == [b"\x00\x12 question"], f"the answer is what was given, not {client.heard}")
        ensure(server.requests[0][2].address != "", "a peer has an address")
        ensure(len(server.requests) == 1, f"a request is given once, not {len(server.requests)} times")


async def frames_of_any_size_pass(make: MakeTransport) -> None:
    """One byte, a few, and more than any buffer of a system holds."""
    async with station(make) as server, station(make) as client:
        frames = [bytes([size % 251]) * size for size in (1, 4, 200, 16_384, 16_385, 300_000, 3_000_000, 1)]
        for frame in frames:
            client.ask(Destination(1, server.endpoint), frame)
        await client.until_heard(len(frames))
        ensure([frame for frame, _, _ in server.requests] == frames, "requests arrive whole and in order")
        ensure(client.heard == frames, "answers arrive whole and in order")


async def answers_leave_in_the_order_of_their_requests(make: MakeTransport) -> None:
    """A server may answer in any order; the client gets the answers in the order of its requests."""
    async with station(make, echo=False) as server, station(make) as client:
        frames = [f"question {number}".encode() for number in range(20)]
        for frame in frames:
            client.ask(Destination(1, server.endpoint), frame)
        await server.until_asked(len(frames))
        for frame, reply, _ in reversed(server.requests):
            ensure(client.heard == [], "no answer overtakes one that is not given yet")
            reply(frame)
        await client.until_heard(len(frames))
        ensure(client.heard == frames, "answers come in the order of the requests")


async def a_held_answer_holds_back_no_other_connection(make: MakeTransport) -> None:
    """A leader holds the Fetch of one follower and serves the others meanwhile."""
    async with station(make, echo=False) as server, station(make) as patient, station(make) as brisk:
        patient.ask(Destination(1, server.endpoint), b"hold this")
        await server.until_asked(1)
        server.echo = True
        brisk.ask(Destination(1, server.endpoint), b"answer this")
        await brisk.until_heard(1)
        ensure(patient.heard == [], "the held one waits")
        server.requests[0][1](b"at last")
        await patient.until_heard(1)
        ensure(patient.heard == [b"at last"], "and gets its answer in the end")


async def a_refused_connection_is_news(make: MakeTransport) -> None:
    """If the connection is refused, the pending requests get None first; then the engine is told."""
    async with station(make) as client:
        nobody = Destination(1, await _left(make))
        client.ask(nobody)
        client.ask(nobody)
        await client.until_heard(3)
        ensure(client.heard == [None, None, Lost(nobody, refused=True)], f"None, None, refused; not {client.heard}")


async def a_lost_connection_is_news(make: MakeTransport) -> None:
    """The peer goes away: outstanding answers are None first, then the engine is told. The next attempt is refused,
    at once, and that is news again: it tells a dead leader from a cut cable.
    """
    async with station(make) as client:
        async with station(make) as server:
            there = Destination(1, server.endpoint)
            client.ask(there, b"are you there?")
            await client.until_heard(1)
            server.echo = False
            client.ask(there)
            client.ask(there)
            await server.until_asked(3)
        await client.until_heard(4)
        ensure(client.heard[1:] == [None, None, Lost(there, refused=False)], f"None, None, lost; not {client.heard}")
        client.ask(there)
        await client.until_heard(6)
        ensure(client.heard[4:] == [None, Lost(there, refused=True)], f"None, refused; not {client.heard}")


async def a_lost_idle_connection_is_news(make: MakeTransport) -> None:
    """Also when nothing was in flight."""
    async with station(make) as client:
        async with station(make) as server:
            there = Destination(1, server.endpoint)
            client.ask(there)
            await client.until_heard(1)
        await client.until_heard(2)
        ensure(client.heard[1:] == [Lost(there, refused=False)], f"lost; not {client.heard}")


async def a_peer_that_returns_is_reached_again(make: MakeTransport) -> None:
    """A replica restarts at its old address: sooner or later a request gets through."""
    async with station(make) as client:
        async with station(make) as server:
            there = Destination(1, server.endpoint)
            client.ask(there)
            await client.until_heard(1)
        await client.until_heard(2)
        async with station(make, at=there.endpoint):
            async with asyncio.timeout(PATIENCE_S):
                while client.heard[-1] != b"back?":
                    count = len(client.heard)
                    client.ask(there, b"back?")
                    await client.until_heard(count + 1)


async def none_instead_of_an_answer_closes_the_connection(make: MakeTransport) -> None:
    """Some peers must not get an error code: earlier answers arrive, then the connection ends."""
    async with station(make, echo=False) as server, station(make) as client:
        there = Destination(1, server.endpoint)
        for frame in (b"first", b"second", b"third"):
            client.ask(there, frame)
        await server.until_asked(3)
        server.requests[1][1](None)
        server.requests[0][1](b"answer")
        await client.until_heard(4)
        expected = [b"answer", None, None, Lost(there, refused=False)]
        ensure(client.heard == expected, f"{expected}, not {client.heard}")
        server.requests[2][1](b"to nobody")  # late answers are allowed and go nowhere


async def a_disconnect_of_our_own_is_no_news(make: MakeTransport) -> None:
    """Requests in flight get None, no lost connection is reported, and the next request makes a new one."""
    async with station(make, echo=False) as server, station(make) as client:
        there = Destination(1, server.endpoint)
        client.ask(there, b"first")
        await server.until_asked(1)
        client.transport.disconnect(there)
        ensure(client.heard == [], "disconnect returns before any callback is called")
        await client.until_heard(1)
        server.requests[0][1](b"to nobody")
        server.echo = True
        async with asyncio.timeout(PATIENCE_S):
            while client.heard[-1] is None:
                count = len(client.heard)
                client.ask(there, b"second")
                await client.until_heard(count + 1)
        ensure(client.heard[-1] == b"second", f"the new connection serves; heard {client.heard}")
        ensure(not any(isinstance(heard, Lost) for heard in client.heard), "our own wish is no lost connection")


async def destinations_of_different_numbers_share_nothing(make: MakeTransport) -> None:
    """A bootstrap server and a voter may be one endpoint: the end of one connection leaves the other alone."""
    async with station(make, echo=False) as server, station(make) as client:
        bootstrap, voter = Destination(-2, server.endpoint), Destination(1, server.endpoint)
        client.ask(bootstrap, b"who leads?")
        client.ask(voter, b"records?")
        await server.until_asked(2)
        client.transport.disconnect(bootstrap)
        await client.until_heard(1)
        for frame, reply, _ in server.requests:
            reply(frame)
        await client.until_heard(2)
        ensure(client.heard == [None, b"records?"], f"None for one, an answer for the other; not {client.heard}")


async def a_number_that_moves_is_followed(make: MakeTransport) -> None:
    """A voter has a new endpoint: the old connection is dropped, the new place is asked."""
    async with station(make, echo=False) as old, station(make) as new, station(make) as client:
        client.ask(Destination(1, old.endpoint), b"first")
        await old.until_asked(1)
        client.ask(Destination(1, new.endpoint), b"second")
        await client.until_heard(2)
        ensure(set(client.heard) == {None, b"second"}, f"None and the new one's answer; not {client.heard}")


async def closing_leaves_nobody_waiting(make: MakeTransport) -> None:
    """A pending request gets None; closing twice is allowed; connections that we close ourselves are not reported."""
    async with station(make, echo=False) as server:
        async with station(make) as client:
            client.ask(Destination(1, server.endpoint))
            await server.until_asked(1)
            await client.transport.close()
            ensure(client.heard == [None], f"None, once; not {client.heard}")
        server.requests[0][1](b"to nobody")


async def closing_releases_every_descriptor(make: MakeTransport) -> None:
    """A client that is closed and made anew, again and again, must not run out of them: on both sides."""
    await _meet(make)  # descriptors that a loop opens at its first use stay
    before = len(os.listdir("/proc/self/fd"))
    await _meet(make)
    await _meet(make)
    left = 0
    for _ in range(int(PATIENCE_S * 100)):  # closed ones go with the next turns of the loop
        left = len(os.listdir("/proc/self/fd")) - before
        if left <= 0:
            return
        await asyncio.sleep(0.01)
    ensure(False, f"{left} descriptors are open that were not before transports were opened and closed")


async def _meet(make: MakeTransport) -> None:
    async with station(make) as server, station(make) as client:
        client.ask(Destination(1, server.endpoint))
        client.ask(Destination(2, server.endpoint))
        await client.until_heard(2)


async def _left(make: MakeTransport) -> Endpoint:
    """Return an endpoint at which no transport listens any more."""
    async with station(make) as gone:
        return gone.endpoint


TRANSPORT_CHECKS: Final[tuple[TransportCheck, ...]] = (
    a_request_is_answered,
    frames_of_any_size_pass,
    answers_leave_in_the_order_of_their_requests,
    a_held_answer_holds_back_no_other_connection,
    a_refused_connection_is_news,
    a_lost_connection_is_news,
    a_lost_idle_connection_is_news,
    a_peer_that_returns_is_reached_again,
    none_instead_of_an_answer_closes_the_connection,
    a_disconnect_of_our_own_is_no_news,
    destinations_of_different_numbers_share_nothing,
    a_number_that_moves_is_followed,
    closing_leaves_nobody_waiting,
    closing_releases_every_descriptor,
)
"""Every promise of `Transport`, each checked with transports of its own."""
