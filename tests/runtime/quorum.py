"""Three real replicas in one process: real clients, a real executor and core, memory or files, a hub or sockets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import NotLeaderError, OutcomeUnknownError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.storage.directory import format_directory
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.types import Endpoint
from tests.ports import local_voters

PATIENCE_S = 30.0
"""No wait of these tests is longer: they then fail instead of hanging."""

TIMING: dict[str, int] = {
    "election_timeout_ms": 100,
    "fetch_timeout_ms": 500,
    "fetch_max_wait_ms": 100,
    "request_timeout_ms": 500,
}

PLACE = Endpoint("replica", 1)
"""Where an only voter is reached."""


def alone(parts: Mapping[str, Any] | None = None, **config: Any) -> RaftClient[Any]:
    """Return an only voter, not started, with `parts` of its own: in memory, or in a directory that is formatted."""
    settings: dict[str, Any] = {"node_id": 1, "voters": (StaticVoter(1, PLACE),), **TIMING, **config}
    if "directory" in settings:
        format_directory(settings["directory"], node_id=1, cluster_id="test", static_voters=[1], ignore_formatted=True)
    return RaftClient(RaftConfig(**settings), **{"transport": MemoryTransport(MemoryHub(), PLACE), **(parts or {})})


class Quorum:
    """Voters on one hub. A voter that is stopped can be started again with the stores that it left."""

    def __init__(self, *, voters: int = 3, make: Callable[[int], dict[str, Any]] | None = None, **config: Any) -> None:
        self.hub = MemoryHub()
        self.ids = range(1, voters + 1)
        self._make = make or (lambda node_id: {})
        self._config = {**TIMING, **config}
        self._logs = {node_id: MemoryReplicatedLog() for node_id in self.ids}
        self._elections = {node_id: MemoryQuorumStateStore() for node_id in self.ids}
        self.clients: dict[int, RaftClient[Any]] = {}

    def endpoint(self, node_id: int) -> Endpoint:
        return Endpoint("replica", node_id)

    def config(self, node_id: int) -> RaftConfig:
        voters = tuple(StaticVoter(voter_id, self.endpoint(voter_id)) for voter_id in self.ids)
        return RaftConfig(node_id=node_id, voters=voters, cluster_id="test", **self._config)

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids or self.ids:
            client: RaftClient[Any] = RaftClient(
                self.config(node_id),
                log=self._logs[node_id],
                elections=self._elections[node_id],
                transport=MemoryTransport(self.hub, self.endpoint(node_id)),
                random=random.Random(node_id),
                **self._make(node_id),
            )
            await client.start()
            self.clients[node_id] = client

    async def stop(self, node_id: int, *, timeout_ms: int = 0) -> None:
        await self.clients.pop(node_id).shutdown(timeout_ms=timeout_ms)
        self._logs[node_id] = self._logs[node_id].reopen()
        self._elections[node_id] = MemoryQuorumStateStore(self._elections[node_id].read())

    async def leader(self, *, not_id: int | None = None) -> RaftClient[Any]:
        """Return the client that leads and has proved it by a commit in its epoch."""
        return await leader_of(self.clients.values(), probe=self.probe, not_id=not_id)

    probe: Any = b"probe"

    async def close(self) -> None:
        for client in self.clients.values():
            await client.shutdown(timeout_ms=0)


@asynccontextmanager
async def quorum(**settings: Any) -> AsyncIterator[Quorum]:
    """Run a quorum for the length of a block."""
    together = Quorum(**settings)
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            await together.start()
            yield together
    finally:
        await together.close()


@asynccontextmanager
async def on_sockets(
    settings: Mapping[int, Mapping[str, Any]], *, parts: Mapping[int, Mapping[str, Any]] | None = None, **config: Any
) -> AsyncIterator[dict[int, RaftClient[Any]]]:
    """Run the replicas that `settings` names, each with its own, on sockets of this machine."""
    voters = local_voters(settings)
    clients: dict[int, RaftClient[Any]] = {}
    async with AsyncExitStack() as stack:
        for voter in voters:
            own = {**TIMING, "cluster_id": "blue", **config, **settings[voter.id]}
            client: RaftClient[Any] = RaftClient(
                RaftConfig(node_id=voter.id, voters=voters, **own), **(parts or {}).get(voter.id, {})
            )
            await client.start()
            stack.push_async_callback(client.shutdown, timeout_ms=0)
            clients[voter.id] = client
        yield clients


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for is in another thread
            await asyncio.sleep(0.002)


async def leader_of(
    clients: Collection[RaftClient[Any]], *, probe: Any = b"probe", not_id: int | None = None
) -> RaftClient[Any]:
    """Return the one of `clients` that leads and has proved it by a commit in its epoch."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for client in list(clients):
                if client.leader_and_epoch().leader_id == client.node_id != not_id:
                    try:
                        await client.append_one(probe, timeout_ms=0)
                        return client
                    except (NotLeaderError, OutcomeUnknownError):
                        continue
            await asyncio.sleep(0.005)
