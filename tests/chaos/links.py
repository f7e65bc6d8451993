"""The network of a chaos run: one relay in front of every replica, with a link of its own for each direction of a pair.

A replica advertises its relay, so that everything that others send it passes here. The sender is known by the client
id in the header of the first request. `Link` is one direction between two replicas, whichever of them opened the
connection: what it carries can be held back (a partition), delayed (a slow link), or its connections reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Coroutine, Iterable, Iterator
from typing import Final

from kraftlib.types import Endpoint, ReplicaId

CLIENT_ID_PREFIX: Final = b"raft-client-"
HEAD: Final = struct.Struct(">ihhih")
"""Length of the frame, API key, version, correlation id, length of the client id."""
CLIENT_ID_MAX_BYTES: Final = 64
CHUNK_BYTES: Final = 64 * 1024
HELD_MAX_CHUNKS: Final = 64
"""What a held link keeps for one connection, as the buffers of both hosts would; then the sender has to wait."""


class Link:
    """One direction between two replicas."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.delay_s = 0.0

    @property
    def held(self) -> bool:
        """Whether nothing gets through."""
        return not self._open.is_set()

    def hold(self) -> None:
        """Let nothing through. It is delivered late, as TCP does, unless the connection is reset before."""
        self._open.clear()

    def release(self) -> None:
        """Let everything through again."""
        self._open.set()

    async def passable(self) -> None:
        """Wait until something sent now would get through."""
        await self._open.wait()


class Network:
    """The relays of all replicas, and the links between them."""

    def __init__(self, ids: Iterable[ReplicaId]) -> None:
        self.ids: Final = tuple(ids)
        self._links: Final = {(a, b): Link() for a in self.ids for b in self.ids if a != b}
        self._relays: Final = {number: _Relay(number, self) for number in self.ids}

    async def start(self) -> None:
        """Listen in front of every replica, on loopback."""
        for relay in self._relays.values():
            await relay.start()

    async def close(self) -> None:
        """Drop all connections and stop listening."""
        self.heal()
        for relay in self._relays.values():
            await relay.close()

    def endpoint(self, number: ReplicaId) -> Endpoint:
        """Return what the replica `number` advertises."""
        return self._relays[number].endpoint

    def serve(self, number: ReplicaId, target: Endpoint) -> None:
        """Pass on what is sent to the replica `number` to where it listens."""
        self._relays[number].target = target

    def link(self, source: ReplicaId, target: ReplicaId) -> Link:
        """Return the link that carries what `source` sends to `target`."""
        return self._links[source, target]

    def outgoing(self, number: ReplicaId) -> Iterator[Link]:
        """Yield the links that carry what `number` sends."""
        return (link for (source, _), link in self._links.items() if source == number)

    def incoming(self, number: ReplicaId) -> Iterator[Link]:
        """Yield the links that carry what is sent to `number`."""
        return (link for (_, target), link in self._links.items() if target == number)

    def reset(self, a: ReplicaId, b: ReplicaId) -> None:
        """Reset every connection between two replicas."""
        self._relays[a].reset(b)
        self._relays[b].reset(a)

    def heal(self) -> None:
        """Let everything through everywhere, at once."""
        for link in self._links.values():
            link.release()
            link.delay_s = 0.0


class _Relay:
    """Accepts connections for one replica and passes them on over the links of the pair."""

    def __init__(self, number: ReplicaId, network: Network) -> None:
        self._number = number
        self._network = network
        self.endpoint = Endpoint("127.0.0.1", 1)
        self.target: Endpoint | None = None
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], ReplicaId | None] = {}

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.endpoint = Endpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.reset(None)
        await asyncio.gather(*self._connections, return_exceptions=True)

    def reset(self, source: ReplicaId | None) -> None:
        """Reset the connections that `source` has opened; None: all of them."""
        for connection, opened_by in list(self._connections.items()):
            if source in (None, opened_by):
                connection.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        try:
            await self._pass_on(task, reader, writer)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()  # the replica is not there, or the connection is reset
        finally:
            writer.close()
            del self._connections[task]

    async def _pass_on(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self.target is None:
            raise ConnectionRefusedError(f"replica {self._number} was not started yet")
        # Connected before the first frame is read: a dead replica refuses at once, as without a relay.
        there, back = await asyncio.open_connection(self.target.host, self.target.port)
        try:
            source, first = await _read_source(reader)
            self._connections[task] = source
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, back, self._network.link(source, self._number), first))
                pumps.create_task(_pump(there, writer, self._network.link(self._number, source), b""))
        except* (OSError, EOFError):
            pass  # one side is gone, and what it sent was passed on
        finally:
            if task.cancelling():
                back.transport.abort()
            back.close()


async def _read_source(reader: asyncio.StreamReader) -> tuple[ReplicaId, bytes]:
    """Return which replica opened a connection, and the bytes that were read to learn it. Raises: ConnectionError."""
    head = await reader.readexactly(HEAD.size)
    *_, length = HEAD.unpack(head)
    client_id = await reader.readexactly(length) if 0 <= length <= CLIENT_ID_MAX_BYTES else b""
    number = client_id.removeprefix(CLIENT_ID_PREFIX)
    if not client_id.startswith(CLIENT_ID_PREFIX) or not number.isdigit():
        raise ConnectionAbortedError(f"{head + client_id!r} is no request of a replica")
    return int(number), head + client_id


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, link: Link, first: bytes) -> None:
    """Carry bytes over `link`, in order, each chunk as late as the link is slow. Raises: EOFError at the end."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD_MAX_CHUNKS)

    async def read() -> None:
        data = first or await source.read(CHUNK_BYTES)
        while data:
            await chunks.put((loop.time() + link.delay_s, data))
            data = await source.read(CHUNK_BYTES)

    reading = asyncio.create_task(_until_end(read(), chunks))
    try:
        while True:
            due, data = await chunks.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await link.passable()  # the end of a connection is held back like everything else
            if not data:
                raise EOFError
            target.write(data)
            await target.drain()
    finally:
        reading.cancel()


async def _until_end(reading: Coroutine[None, None, None], chunks: asyncio.Queue[tuple[float, bytes]]) -> None:
    with contextlib.suppress(OSError):
        await reading
    await chunks.put((0.0, b""))
