"""A transport of your own: replicas that talk over Unix sockets, in a framing that you choose.

A transport moves opaque frames. It knows nothing of Kafka, elections or logs, and has four promises to keep
(`kraftlib.Transport` has them in full, `kraftlib.testing.transport_contract` checks them):

1. every `reply` is called once: with the answer, or with None when there will be none;
2. answers leave in the order of the requests of their connection, whatever the order in which they are given;
3. a connection that is lost, or cannot be made, is told: first None to whoever waits, then `connection_lost`;
4. nobody is called back from inside `send` or `disconnect`.

An `Endpoint` is only a name for it: this one makes a file name of host and port.

    python examples/custom_transport.py
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections import deque
from pathlib import Path

from kraftlib import Endpoint, MemoryQuorumStateStore, MemoryReplicatedLog, RaftClient, RaftConfig
from kraftlib.runtime.net.transport import Destination, Frame, FrameReceiver, Peer, Reply

HEAD = struct.Struct("<4sI")  # ours: a magic word, and the length in little endian
MAGIC = b"krft"
LARGEST_FRAME = 100 * 1024 * 1024


def write_frame(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Send one frame, soon."""
    writer.write(HEAD.pack(MAGIC, len(frame)) + frame)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next frame. Raises: EOFError at the end; ConnectionError, if this is not our protocol."""
    magic, size = HEAD.unpack(await reader.readexactly(HEAD.size))
    if magic != MAGIC or size > LARGEST_FRAME:
        raise ConnectionError(f"{magic!r} {size} is no frame of ours")
    return await reader.readexactly(size)


class UnixSocketTransport:
    """Listens on one file of a directory, and connects to the others there."""

    def __init__(self, directory: Path, endpoint: Endpoint) -> None:
        self._directory = directory
        self._endpoint = endpoint
        self._links: dict[int, Link] = {}
        self._accepted: set[asyncio.StreamWriter] = set()

    def path(self, endpoint: Endpoint) -> Path:
        """Return the file of an endpoint."""
        return self._directory / f"{endpoint.host}-{endpoint.port}.sock"

    async def start(self, receiver: FrameReceiver) -> Endpoint:
        """Listen."""
        self.receiver = receiver
        self._server = await asyncio.start_unix_server(self._accept, self.path(self._endpoint))
        return self._endpoint

    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        """Send a request, over the connection of this number; make one, if there is none."""
        link = self._links.get(destination.number)
        if link is not None and link.destination != destination:
            link.abandon()  # that replica has moved
            link = None
        if link is None:
            link = self._links[destination.number] = Link(self, destination)
        link.send(frame, reply)

    def disconnect(self, destination: Destination) -> None:
        """Drop the connection; nobody is told but those who wait for an answer."""
        link = self._links.get(destination.number)
        if link is not None and link.destination == destination:
            del self._links[destination.number]
            link.abandon()

    async def close(self) -> None:
        """Listen no more, drop everything. Calling it twice is allowed."""
        self._server.close()
        self.path(self._endpoint).unlink(missing_ok=True)
        for link in self._links.values():
            link.abandon()
        self._links.clear()
        for writer in list(self._accepted):
            writer.close()
        await asyncio.sleep(0)  # those who waited have their None before this returns

    def ended(self, link: Link, *, refused: bool) -> None:
        """A connection has ended, and not by our own wish: tell first who waits, then the replica."""
        if self._links.get(link.destination.number) is link:
            del self._links[link.destination.number]
        for reply in link.waiting:
            reply(None)
        self.receiver.connection_lost(link.destination, refused)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the requests of one connection."""
        self._accepted.add(writer)
        answers, peer = Answers(writer), Peer(f"unix socket of {self._endpoint}")
        try:
            while True:
                self.receiver.request_received(await read_frame(reader), answers.expect(), peer)
        except (EOFError, OSError):
            pass  # the other side has gone, and hears of it there
        finally:
            answers.drop()
            self._accepted.discard(writer)


class Link:
    """A connection that we made: requests leave in order, and answers come back in that order."""

    def __init__(self, owner: UnixSocketTransport, destination: Destination) -> None:
        self.destination = destination
        self.waiting: deque[Reply] = deque()
        self._owner = owner
        self._unsent: list[bytes] = []
        self._writer: asyncio.StreamWriter | None = None
        self._task = asyncio.create_task(self._run())

    def send(self, frame: bytes, reply: Reply) -> None:
        """Send now, or once connected."""
        self.waiting.append(reply)
        if self._writer is None:
            self._unsent.append(frame)
        else:
            write_frame(self._writer, frame)

    def abandon(self) -> None:
        """End it by our own wish."""
        self._task.cancel()
        for reply in self.waiting:
            asyncio.get_running_loop().call_soon(reply, None)

    async def _run(self) -> None:
        try:
            reader, self._writer = await asyncio.open_unix_connection(self._owner.path(self.destination.endpoint))
            for frame in self._unsent:
                write_frame(self._writer, frame)
            while True:
                answer = await read_frame(reader)
                self.waiting.popleft()(answer)
        except (EOFError, OSError):
            self._owner.ended(self, refused=self._writer is None)
        finally:
            if self._writer is not None:
                self._writer.close()


class Answers:
    """Keeps the answers of one connection in the order of its requests."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._slots: deque[list[Frame | None]] = deque()

    def expect(self) -> Reply:
        """Return what takes the answer to the next request."""
        slot: list[Frame | None] = []
        self._slots.append(slot)

        def reply(frame: Frame | None) -> None:
            slot.append(frame)
            self._send_what_is_next()

        return reply

    def drop(self) -> None:
        """Close; answers that are given later go nowhere."""
        self._slots.clear()
        self._writer.close()

    def _send_what_is_next(self) -> None:
        while self._slots and self._slots[0]:
            (frame,) = self._slots.popleft()
            if frame is None:
                self.drop()
            else:
                write_frame(self._writer, frame)


async def main() -> None:
    """Let three replicas elect a leader and agree on some records over Unix sockets."""
    with tempfile.TemporaryDirectory() as directory:
        voters = "1@replica:1,2@replica:2,3@replica:3"
        clients: dict[int, RaftClient[bytes]] = {}
        for number in (1, 2, 3):
            transport = UnixSocketTransport(Path(directory), Endpoint("replica", number))
            config = RaftConfig.from_mapping({"node_id": number, "voters": voters, "engine": "inline"})
            clients[number] = RaftClient(
                config, transport=transport, log=MemoryReplicatedLog(), elections=MemoryQuorumStateStore()
            )
        await asyncio.gather(*(client.start() for client in clients.values()))
        leader = await clients[1].wait_for_leader(timeout_ms=10_000)
        assert leader.leader_id is not None
        print(f"replica {leader.leader_id} leads epoch {leader.epoch}")
        appended = await clients[leader.leader_id].append([b"one", b"two", b"three"])
        print(f"three records committed at offsets {appended.base_offset} to {appended.last_offset}")
        for number, client in clients.items():
            await client.wait_for_offset(appended.last_offset, timeout_ms=10_000)
            print(f"replica {number} ends at offset {client.log_end_offset()}")

        await asyncio.gather(*(client.shutdown() for client in clients.values()))


if __name__ == "__main__":
    asyncio.run(main())
