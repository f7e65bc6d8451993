"""Replicas of one quorum on loopback, opened and connected to as a service would."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kraftlib.codec.declared import Message
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.coordination.access import Machine
from kraftlib.coordination.commands import decode, encode, encode_command
from kraftlib.coordination.messages import Answer, Ask, Do, OpenSession, Question, Result, Selector, Transact, Watched
from kraftlib.coordination.net.replica import ReplicaAccess, open
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.types import Endpoint, new_uuid
from tests.ports import free_ports
from tests.runtime.quorum import PATIENCE_S, TIMING, until

CALL_MS = 20_000
EVERYTHING = encode(Selector(watched=Watched.PREFIX, name=""))


class Replicas:
    """Three of them. A killed one starts again with the log and the vote that it left, at its old address."""

    def __init__(
        self,
        count: int = 3,
        *,
        of_one: Callable[[int], dict[str, Any]] = lambda node_id: {},
        machine: Callable[[int], Machine | None] = lambda node_id: None,
        **options: Any,
    ) -> None:
        self.ids = range(1, count + 1)
        self._ports = dict(zip(self.ids, free_ports(count), strict=True))
        self._of_one = of_one
        self._machine = machine
        self._options = {**TIMING, **options}
        self._logs = {node_id: MemoryReplicatedLog() for node_id in self.ids}
        self._elections = {node_id: MemoryQuorumStateStore() for node_id in self.ids}
        self.running: dict[int, ReplicaAccess] = {}

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def endpoint(self, node_id: int) -> Endpoint:
        return Endpoint("127.0.0.1", self._ports[node_id])

    async def start(self, node_id: int) -> None:
        voters = tuple(StaticVoter(other, self.endpoint(other)) for other in self.ids)
        options = {"listen": self.endpoint(node_id), **self._options, **self._of_one(node_id)}
        config = RaftConfig(node_id=node_id, voters=voters, cluster_id="ways", **options)
        log, elections = self._logs[node_id], self._elections[node_id]
        access = open(config, machine=self._machine(node_id), log=log, elections=elections)
        await access.__aenter__()
        self.running[node_id] = access

    async def kill(self, node_id: int) -> None:
        await self.running.pop(node_id).client.shutdown(timeout_ms=0)
        self._logs[node_id] = self._logs[node_id].reopen()
        self._elections[node_id] = MemoryQuorumStateStore(self._elections[node_id].read())

    async def leader(self) -> RaftClient[bytes]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for access in self.running.values():
                    client = access.client
                    if client.leader_and_epoch().leader_id == client.node_id:
                        return client
                await asyncio.sleep(0.005)

    async def change_leader(self, *, kill: bool) -> None:
        """Have another leader, and come back to as many replicas as before."""
        leader = await self.leader()
        if kill:
            await self.kill(leader.node_id)
            await self.leader()
            await self.start(leader.node_id)
        else:
            epoch = leader.leader_and_epoch().epoch
            leader.resign(epoch)
            await until(lambda: leader.leader_and_epoch().epoch > epoch)
            await self.leader()


@asynccontextmanager
async def replicas(count: int = 3, **options: Any) -> AsyncIterator[Replicas]:
    together = Replicas(count, **options)
    try:
        async with asyncio.timeout(4 * PATIENCE_S):
            for node_id in together.ids:
                await together.start(node_id)
            yield together
    finally:
        for access in together.running.values():
            await access.client.shutdown(timeout_ms=0)


class Caller:
    """A session over an access, which numbers its calls."""

    def __init__(self, access: Any) -> None:
        self.access = access
        self.id = new_uuid()
        self._numbers = itertools.count(1)
        self._opened = -1

    async def begin(self, ttl_ms: int = 60_000) -> Caller:
        done = await self.send(OpenSession(ttl_ms=ttl_ms), 0)
        self._opened = decode(Result, done.result).offset
        return self

    def command(self, body: Message, number: int) -> bytes:
        return encode_command(body, session=self.id, opened=self._opened, sequence=number, acknowledged=number)

    async def send(self, body: Message, number: int) -> Any:
        done = await self.access.call(self.command(body, number), timeout_ms=CALL_MS)
        result = decode(Result, done.result)
        assert result.status == 0, result
        return done

    async def transact(self, body: Transact) -> Any:
        return await self.send(body, next(self._numbers))

    async def add(self, key: str) -> Any:
        return await self.transact(addition(key))

    async def put(self, key: str, value: bytes) -> Any:
        return await self.transact(putting(key, value))


def addition(key: str) -> Transact:
    return Transact(then=(Transact.Operation(do=Do.ADD, key=key, delta=1),))


def putting(key: str, value: bytes) -> Transact:
    return Transact(then=(Transact.Operation(do=Do.PUT, key=key, value=value),))


def question(key: str) -> bytes:
    return encode(Question(ask=Ask.KEYS, name=key, most=1))


async def value(access: Any, key: str, **how: Any) -> bytes | None:
    _, data = await access.query(question(key), timeout_ms=CALL_MS, **how)
    rows = decode(Answer, data).rows
    return rows[0].value if rows else None
