"""TcpTransport keeps the contract that users' own transports are held to: plain and with TLS, on both event loops."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme
import uvloop

from kraftlib.errors import ClosedError, ConfigError
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.transport import Destination, Transport
from kraftlib.security.contexts import Contexts, Trust
from kraftlib.security.limits import FRAME_MAX_BYTES, TcpLimits
from kraftlib.testing.transport_contract import TRANSPORT_CHECKS, Station, TransportCheck, station
from kraftlib.types import Endpoint
from tests.runtime.net.test_tcp_server import client_context, server_context

LOOPBACK = Endpoint("127.0.0.1", 0)
LARGE = TcpLimits(newcomer_frame_max_bytes=FRAME_MAX_BYTES)
"""Nobody here says which peers are replicas."""

every_check = pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)


@every_check
async def test_the_contract_is_kept(check: TransportCheck) -> None:
    await check(lambda at: TcpTransport(at or LOOPBACK, limits=LARGE))


@every_check
def test_the_contract_is_kept_under_uvloop(check: TransportCheck) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(check(lambda at: TcpTransport(at or LOOPBACK, limits=LARGE)))


@every_check
async def test_the_contract_is_kept_with_tls(check: TransportCheck, tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, client = tls
    await check(lambda at: TcpTransport(at or LOOPBACK, trust=Trust(contexts=Contexts(server, client), unnamed=True)))


@every_check
def test_the_contract_is_kept_with_tls_under_uvloop(
    check: TransportCheck, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    server, client = tls
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(
            check(lambda at: TcpTransport(at or LOOPBACK, trust=Trust(contexts=Contexts(server, client), unnamed=True)))
        )


async def test_it_is_a_transport() -> None:
    assert isinstance(TcpTransport(LOOPBACK), Transport)


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


async def test_nothing_is_sent_before_the_start_or_after_the_end() -> None:
    transport, somewhere = TcpTransport(LOOPBACK), Destination(1, Endpoint("127.0.0.1", 9))
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
