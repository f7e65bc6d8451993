"""Row 21 of the security checklist: strangers that hold connections keep no voter from any other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.net.framing import framed
from kraftlib.security.limits import TcpLimits
from kraftlib.types import Endpoint
from kraftlib.wire.frames import encode_request
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from tests.runtime.quorum import PATIENCE_S, Quorum

ADDRESSES = [f"127.0.0.{number}" for number in range(1, 5)]
EACH = 64
LIMITS = TcpLimits(first_frame_ms=600_000, idle_ms=600_000)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in found]


class TcpQuorum(Quorum):
    """Three voters on loopback, over TCP."""

    def __init__(self) -> None:
        super().__init__()
        self._places = {
            node_id: Endpoint("127.0.0.1", port) for node_id, port in zip(self.ids, free_ports(3), strict=True)
        }

    def endpoint(self, node_id: int) -> Endpoint:
        return self._places[node_id]

    def config(self, node_id: int) -> RaftConfig:
        voters = tuple(StaticVoter(voter_id, self.endpoint(voter_id)) for voter_id in self.ids)
        return RaftConfig(
            node_id=node_id,
            voters=voters,
            cluster_id="test",
            engine="inline",
            limits=LIMITS,
            **self._config | {"election_timeout_ms": 300},
        )

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids or self.ids:
            client: RaftClient[Any] = RaftClient(
                self.config(node_id), log=self._logs[node_id], elections=self._elections[node_id]
            )
            await client.start()
            self.clients[node_id] = client


HELLO = framed(encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="stranger"))


@contextmanager
def strangers(endpoint: Endpoint, said: bytes) -> Iterator[None]:
    """Connections from four addresses, as many as one may have: they say this, and nothing more."""
    found = []
    try:
        for address in ADDRESSES * EACH:
            one = socket.create_connection((endpoint.host, endpoint.port), source_address=(address, 0), timeout=10)
            one.setblocking(False)
            found.append(one)
            with suppress(OSError):  # it was refused, or had to give way
                one.send(said)
        yield
    finally:
        for one in found:
            one.close()


@pytest.mark.parametrize("said", [b"", HELLO], ids=["silent", "with a first request"])
async def test_row_21_a_port_full_of_strangers_lets_a_follower_return_and_elects(said: bytes) -> None:
    """Also where they share the address of the voters, and though no deadline closes them during this test."""
    quorum = TcpQuorum()
    await quorum.start()
    first = await quorum.leader()
    loop = asyncio.get_running_loop()
    await quorum.stop(first.node_id)
    with ExitStack() as stack:
        for client in quorum.clients.values():
            filled = strangers(quorum.endpoint(client.node_id), said)
            await loop.run_in_executor(None, stack.enter_context, filled)
        second = await quorum.leader()
        await quorum.start(first.node_id)
        offset = (await second.append_one(b"after")).base_offset
        async with asyncio.timeout(PATIENCE_S):
            await quorum.clients[first.node_id].wait_for_offset(offset)

        await quorum.stop(second.node_id)
        await quorum.leader(not_id=second.node_id)
    for node_id in list(quorum.clients):
        await quorum.stop(node_id)
