"""Row 21 of the security checklist: strangers that hold connections keep no voter from any other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from typing import Any

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.net.framing import framed
from kraftlib.security.limits import TcpLimits
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_users import load_users
from kraftlib.types import Endpoint
from kraftlib.wire.frames import encode_request
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from tests.ports import free_ports
from tests.runtime.net.test_sasl_connections import log_in
from tests.runtime.net.test_tcp_server import stranger
from tests.runtime.quorum import PATIENCE_S, Quorum

ADDRESSES = [f"127.0.0.{number}" for number in range(1, 5)]
EACH = 64
PASSWORD = "correct horse battery staple"
LIMITS = TcpLimits(first_frame_ms=600_000, idle_ms=600_000)


class TcpQuorum(Quorum):
    """Three voters on loopback, over TCP. Connections come from 127.0.0.1, whatever address they are made to."""

    def __init__(self, host: str = "127.0.0.1", **options: Any) -> None:
        super().__init__(**{"limits": LIMITS, **options})
        self._places = {node_id: Endpoint(host, port) for node_id, port in zip(self.ids, free_ports(3), strict=True)}

    def endpoint(self, node_id: int) -> Endpoint:
        return self._places[node_id]

    def config(self, node_id: int) -> RaftConfig:
        voters = tuple(StaticVoter(voter_id, self.endpoint(voter_id)) for voter_id in self.ids)
        return RaftConfig(
            node_id=node_id,
            voters=voters,
            cluster_id="test",
            engine="inline",
            listen=Endpoint(self.endpoint(node_id).host, 0),
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
def strangers(endpoint: Endpoint, said: bytes, addresses: Sequence[str] = ADDRESSES * EACH) -> Iterator[None]:
    """Connections from these addresses, or as many as four of them may have: they say this, and nothing more."""
    found = []
    try:
        for address in addresses:
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


async def test_row_21_silent_connections_take_no_slot_from_a_voter_with_a_password() -> None:
    """Without TLS, and where no address tells a voter: all come from 127.0.0.1, which is not where the voters listen.

    At each port clients with a password of their own hold both slots of strangers, and forty more connections say
    nothing at all.
    """
    few = TcpLimits(
        first_frame_ms=600_000, handshake_ms=600_000, idle_ms=600_000, connections_max=2, connections_per_address_max=2,
        voter_connections_max=4,
    )  # fmt: skip
    known = dict.fromkeys(("replica-1", "replica-2", "replica-3", "grafana"), PASSWORD)
    sasl = SaslConfig(password=PASSWORD, users=known)
    grafana = load_users(SaslConfig(username="grafana", password=PASSWORD), 9, encrypted=False, insecure=False)
    quorum = TcpQuorum("127.0.0.9", limits=few, sasl=sasl, fetch_timeout_ms=30_000, request_timeout_ms=30_000)
    await quorum.start()
    first = await quorum.leader()
    epoch = first.leader_and_epoch().epoch
    follower_id = next(node_id for node_id in quorum.ids if node_id != first.node_id)
    async with AsyncExitStack() as stack, asyncio.timeout(3 * PATIENCE_S):
        for node_id in quorum.ids:
            for _ in range(2):
                client = await stack.enter_async_context(stranger(quorum.endpoint(node_id)))
                await log_in(client, grafana)
                client.write(HELLO)
                assert await client.answer() != b""
            filled = strangers(quorum.endpoint(node_id), b"", ["127.0.0.1"] * 40)
            await asyncio.get_running_loop().run_in_executor(None, stack.enter_context, filled)
        offset = (await first.append_one(b"amid the flood")).base_offset
        for replica in quorum.clients.values():
            await replica.wait_for_offset(offset)
        assert first.leader_and_epoch().epoch == epoch

        await quorum.stop(follower_id)
        await quorum.start(follower_id)
        offset = (await first.append_one(b"after the return")).base_offset
        await quorum.clients[follower_id].wait_for_offset(offset)
        await quorum.stop(first.node_id)
        await quorum.leader(not_id=first.node_id)
    for node_id in list(quorum.clients):
        await quorum.stop(node_id)
