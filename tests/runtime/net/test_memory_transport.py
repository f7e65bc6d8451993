"""The network of a process: it keeps the contract, it can be cut, and its replicas may live in threads of their own."""

from __future__ import annotations

import asyncio
import threading
from typing import ClassVar

import pytest

from kraftlib.errors import ConfigError
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.transport import Destination, Peer, Reply
from kraftlib.testing.transport_contract import PATIENCE_S, TRANSPORT_CHECKS, Lost, Station, TransportCheck, station
from kraftlib.types import Endpoint

ANYWHERE = Endpoint("memory", 0)


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
async def test_the_contract_is_kept(check: TransportCheck) -> None:
    hub = MemoryHub()
    await check(lambda at: MemoryTransport(hub, at or ANYWHERE))


async def test_one_place_is_taken_by_one() -> None:
    hub, place = MemoryHub(), Endpoint("memory", 7)
    async with station(lambda at: MemoryTransport(hub, place)) as first:
        assert first.endpoint == place
        with pytest.raises(ConfigError, match="memory:7: the address is in use"):
            await MemoryTransport(hub, place).start(first)
    async with station(lambda at: MemoryTransport(hub, place)) as second:
        assert second.endpoint == place


async def test_a_free_port_is_one_that_nobody_has() -> None:
    hub = MemoryHub()
    async with (
        station(lambda at: MemoryTransport(hub, Endpoint("memory", 1))),
        station(lambda at: MemoryTransport(hub, ANYWHERE)) as second,
        station(lambda at: MemoryTransport(hub, ANYWHERE)) as third,
    ):
        assert len({1, second.endpoint.port, third.endpoint.port, 0}) == 4


async def test_what_is_cut_is_lost_and_refused_on_both_sides_until_it_is_healed() -> None:
    hub = MemoryHub()

    def make(at: Endpoint | None) -> MemoryTransport:
        return MemoryTransport(hub, at or ANYWHERE)

    async with station(make, echo=False) as a, station(make, echo=False) as b, station(make) as c:
        to_a, to_b, to_c = (Destination(number, one.endpoint) for number, one in enumerate((a, b, c)))
        a.ask(to_b)
        b.ask(to_a)
        a.ask(to_c, b"untouched")
        await a.until_asked(1)
        await b.until_asked(1)
        await a.until_heard(1)

        hub.cut(a.endpoint, b.endpoint)
        await a.until_heard(3)
        await b.until_heard(2)
        assert a.heard == [b"untouched", None, Lost(to_b, refused=False)]
        assert b.heard == [None, Lost(to_a, refused=False)]
        for _, reply, _ in (*a.requests, *b.requests):
            reply(b"to nobody")

        a.ask(to_b)
        await a.until_heard(5)
        assert a.heard[3:] == [None, Lost(to_b, refused=True)]

        hub.heal(a.endpoint, b.endpoint)
        b.echo = True
        a.ask(to_b, b"again")
        await a.until_heard(6)
        assert a.heard[5:] == [b"again"]


async def test_who_is_isolated_reaches_nobody_until_all_is_healed() -> None:
    hub = MemoryHub()

    def make(at: Endpoint | None) -> MemoryTransport:
        return MemoryTransport(hub, at or ANYWHERE)

    async with station(make) as a, station(make) as b, station(make) as c:
        hub.isolate(a.endpoint)
        b.ask(Destination(0, a.endpoint))
        b.ask(Destination(2, c.endpoint), b"we two")
        await b.until_heard(3)
        assert set(b.heard) == {None, Lost(Destination(0, a.endpoint), refused=True), b"we two"}

        hub.heal_all()
        b.ask(Destination(0, a.endpoint), b"welcome back")
        await b.until_heard(4)
        assert b.heard[3] == b"welcome back"


class Witness(Station):
    """Also knows in which threads it was called."""

    threads: ClassVar[set[int]] = set()

    def request_received(self, frame: bytes | memoryview, reply: Reply, peer: Peer) -> None:
        self.threads.add(threading.get_ident())
        super().request_received(frame, reply, peer)


async def test_replicas_in_threads_of_their_own_reach_each_other() -> None:
    """Each callback comes in the loop of its own replica."""
    hub, endpoint = MemoryHub(), Endpoint("memory", 42)
    here, there, stop = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    async def other() -> None:
        transport = MemoryTransport(hub, endpoint)
        await transport.start(Witness(transport))
        here.call_soon_threadsafe(there.set)
        while not stop.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0)
        await transport.close()

    thread = threading.Thread(target=lambda: asyncio.run(other()))
    thread.start()
    try:
        async with asyncio.timeout(PATIENCE_S), station(lambda at: MemoryTransport(hub, ANYWHERE)) as opened:
            await there.wait()
            for number in range(100):
                opened.ask(Destination(1, endpoint), b"%d" % number)
            await opened.until_heard(100)
            assert opened.heard == [b"%d" % number for number in range(100)]
            assert Witness.threads == {thread.ident}

            stop.set()
            await opened.until_heard(101)
            assert opened.heard[100] == Lost(Destination(1, endpoint), refused=False)
    finally:
        stop.set()
        thread.join(PATIENCE_S)


async def test_a_replica_whose_loop_has_ended_without_a_word_is_lost() -> None:
    hub, endpoint = MemoryHub(), Endpoint("memory", 42)

    async def other() -> None:
        transport = MemoryTransport(hub, endpoint)
        await transport.start(Station(transport))

    await asyncio.to_thread(lambda: asyncio.run(other()))
    async with station(lambda at: MemoryTransport(hub, ANYWHERE)) as opened:
        opened.ask(Destination(1, endpoint))
        await opened.until_heard(2)
        assert opened.heard == [None, Lost(Destination(1, endpoint), refused=False)]
