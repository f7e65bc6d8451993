"""TcpTransport keeps the contract that users' own transports are held to: plain and with TLS, on both event loops."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme
import uvloop

from kraftlib.errors import ClosedError, ConfigError
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.transport import Destination, Transport
from kraftlib.security.contexts import Contexts, Trust
from kraftlib.security.limits import FRAME_MAX_BYTES, TcpLimits
from kraftlib.testing.transport_contract import TRANSPORT_CHECKS, Station, TransportCheck, station
from kraftlib.types import Endpoint
from tests.runtime.net.test_tcp_server import client_context, server_context
from tests.runtime.wired import ANYWHERE

LOOPBACK = Endpoint("127.0.0.1", 0)
LARGE = TcpLimits(newcomer_frame_max_bytes=FRAME_MAX_BYTES)
"""Nobody here says which peers are replicas."""

every_check = pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
every_loop = pytest.mark.parametrize("loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


@every_loop
@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
@every_check
def test_the_contract_is_kept(
    check: TransportCheck, secured: bool, loop: Any, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    server, client = tls
    how: dict[str, Any] = {"limits": LARGE}
    if secured:
        how = {"trust": Trust(contexts=Contexts(server, client), unnamed=True)}
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check(lambda at: TcpTransport(at or LOOPBACK, **how)))


async def test_it_says_where_it_listens() -> None:
    async with station(lambda at: TcpTransport(LOOPBACK)) as one:
        assert one.endpoint.host == "127.0.0.1"
        assert one.endpoint.port > 0
        with pytest.raises(ConfigError, match=f"cannot listen on {one.endpoint}: the address is in use"):
            await TcpTransport(one.endpoint).start(one)


async def test_it_does_not_listen_beyond_loopback_in_the_clear() -> None:
    anywhere = Endpoint("0.0.0.0", 0)
    transport = TcpTransport(anywhere)
    with pytest.raises(ConfigError, match="insecure=True"):
        await transport.start(Station(transport))
    async with station(lambda at: TcpTransport(anywhere, insecure=True)) as one:
        assert one.endpoint.host == "0.0.0.0"


@pytest.mark.parametrize("make", [lambda: TcpTransport(LOOPBACK), lambda: MemoryTransport(MemoryHub(), ANYWHERE)])
async def test_nothing_is_sent_before_the_start_or_after_the_end(make: Callable[[], Transport]) -> None:
    transport, somewhere = make(), Destination(1, Endpoint("127.0.0.1", 9))
    with pytest.raises(ClosedError):
        transport.send(somewhere, b"x", lambda frame: None)
    await transport.start(Station(transport))
    await transport.close()
    with pytest.raises(ClosedError):
        transport.send(somewhere, b"x", lambda frame: None)
    transport.disconnect(somewhere)


@pytest.fixture(scope="module")
def tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of both sides that trust one authority and ask each other for certificates."""
    authority = trustme.CA()
    return server_context(authority), client_context(authority, "127.0.0.1")
