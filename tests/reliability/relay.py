"""Three replicas on real sockets, each reached through a relay that can go silent without closing anything."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kraftlib import RaftClient, RaftConfig
from kraftlib.config import StaticVoter
from kraftlib.types import Endpoint
from tests.ports import free_port
from tests.runtime.quorum import PATIENCE_S, TIMING, Quorum


class Relay:
    """Passes bytes on in both directions, until it is frozen: then it takes them, and says nothing."""

    def __init__(self, target: Endpoint) -> None:
        self.target = target
        self.endpoint = Endpoint("127.0.0.1", 0)
        self._passing = True
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.endpoint = Endpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])

    def freeze(self) -> None:
        """Pass nothing on from now on, and close nothing."""
        self._passing = False

    @property
    def open_connections(self) -> int:
        """How many connections nobody has closed."""
        return sum(not writer.is_closing() for writer in self._writers)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self.target.host, self.target.port)
        except OSError:
            writer.close()
            return
        self._writers += [writer, back]
        for source, target in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, target))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                if self._passing:
                    target.write(data)
                    await target.drain()
        except ConnectionError:
            pass  # one side has closed: so does the other
        if self._passing:
            target.close()

    async def close(self) -> None:
        self._passing = False
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        if self._server is not None:
            self._server.close()


class RelayedQuorum(Quorum):
    """Three voters that reach each other through relays."""

    def __init__(self) -> None:
        super().__init__()
        self.relays = {node_id: Relay(Endpoint("127.0.0.1", free_port())) for node_id in self.ids}

    async def start(self, *node_ids: int) -> None:
        for relay in self.relays.values():
            await relay.start()
        voters = tuple(StaticVoter(node_id, relay.endpoint) for node_id, relay in self.relays.items())
        for node_id, relay in self.relays.items():
            config = RaftConfig(
                node_id=node_id,
                voters=voters,
                cluster_id="test",
                listen=relay.target,
                advertised=relay.endpoint,
                **TIMING,
            )
            client: RaftClient[Any] = RaftClient(
                config, log=self._logs[node_id], elections=self._elections[node_id], random=random.Random(node_id)
            )
            await client.start()
            self.clients[node_id] = client

    async def close(self) -> None:
        await super().close()
        for relay in self.relays.values():
            await relay.close()


@asynccontextmanager
async def relayed_quorum() -> AsyncIterator[RelayedQuorum]:
    """Run it for the length of a block."""
    together = RelayedQuorum()
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            await together.start()
            yield together
    finally:
        await together.close()
