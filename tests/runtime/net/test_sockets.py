"""Where a transport may listen, and what is known of a connection."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from kraftlib.errors import ConfigError
from kraftlib.runtime.net.sockets import address_text, bind, happens_within, is_loopback, on_its_way
from kraftlib.types import Endpoint


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
async def test_others_are_not_let_in_without_tls(host: str) -> None:
    with pytest.raises(ConfigError, match="insecure=True"):
        await bind(Endpoint(host, 0), encrypted=False, insecure=False)


@pytest.mark.parametrize("how", [{"encrypted": True, "insecure": False}, {"encrypted": False, "insecure": True}])
async def test_others_are_let_in_with_tls_or_on_demand(how: dict[str, bool]) -> None:
    with await bind(Endpoint("0.0.0.0", 0), **how) as listener:
        assert listener.getsockname()[1] > 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.3.2.1"])
async def test_loopback_needs_no_leave(host: str) -> None:
    with await bind(Endpoint(host, 0), encrypted=False, insecure=False) as listener:
        assert is_loopback(listener.getsockname()[0])


async def test_an_address_in_use_is_named_with_a_remedy() -> None:
    with await bind(Endpoint("127.0.0.1", 0), encrypted=False, insecure=False) as first:
        taken = Endpoint("127.0.0.1", first.getsockname()[1])

        with pytest.raises(ConfigError, match=f"{taken}: the address is in use; .* another port"):
            await bind(taken, encrypted=False, insecure=False)


async def test_an_address_of_another_host_is_named_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:9: this host has no such address"):
        await bind(Endpoint("192.0.2.1", 9), encrypted=True, insecure=False)


async def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="cannot listen on no-such-host"):
        await bind(Endpoint("no-such-host.invalid", 0), encrypted=True, insecure=False)


@pytest.mark.parametrize(
    ("address", "text"),
    [(("127.0.0.1", 9), "127.0.0.1:9"), (("::1", 9, 0, 0), "[::1]:9"), ("/run/x", "/run/x"), (None, "unknown")],
)
def test_addresses_are_written_as_people_do(address: Any, text: str) -> None:
    assert address_text(address) == text


async def test_waiting_for_an_event_ends() -> None:
    event = asyncio.Event()
    assert not await happens_within(event, 0.001)
    event.set()
    assert await happens_within(event, 10)


def test_bytes_on_their_way_are_counted_where_the_system_tells() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        ours.sendall(b"x" * 1_000)
        assert len(theirs.recv(1_000, socket.MSG_WAITALL)) == 1_000
        waiting, arrived = on_its_way(ours)
        assert waiting <= 1_000
        assert not hasattr(socket, "TCP_INFO") or waiting + arrived >= 1_000
        theirs.close()
    assert on_its_way(ours) == (0, 0), "it is closed"
    one, other = socket.socketpair()
    with one, other:
        assert on_its_way(one) == (0, 0)
