"""A transport of your own: replicas that talk HTTP/1.1, through proxies and firewalls that let nothing else pass.

A transport moves opaque frames. It knows nothing of Kafka, elections or logs, and has four promises to keep
(`kraftlib.Transport` has them in full, `kraftlib.testing.transport_contract` checks them):

1. every `reply` is called once: with the answer, or with None when there will be none;
2. answers leave in the order of the requests of their connection, whatever the order in which they are given;
3. a connection that is lost, or cannot be made, is told: first None to whoever waits, then `connection_lost`;
4. nobody is called back from inside `send` or `disconnect`.

HTTP fits: a frame is the body of a POST, its answer the body of the response, and HTTP keeps pipelined responses in
order. Without arguments this program starts three replicas as processes, kills the leader, and lets the others go on.
`python examples/custom_transport.py 1 8001,8002,8003` runs one of them.

    python examples/custom_transport.py
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections import deque

from kraftlib import (
    Endpoint,
    MemoryQuorumStateStore,
    MemoryReplicatedLog,
    OutcomeUnknownError,
    RaftClient,
    RaftConfig,
)
from kraftlib.runtime.net.transport import Destination, Frame, FrameReceiver, Peer, Reply

REQUEST = (
    "POST /raft HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n"
)
RESPONSE = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n"
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LARGEST_FRAME = 100 * 1024 * 1024


class NotOursError(ConnectionError):
    """The other side speaks HTTP, and is no replica."""


async def read_message(reader: asyncio.StreamReader, first_line: str) -> bytes:
    """Return the body of the next HTTP message. Raises: EOFError at the end; NotOursError."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")  # the reader bounds it to 64 KiB
    except asyncio.LimitOverrunError as error:
        raise NotOursError("the head of a message has no end") from error
    line, *fields = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    size = headers.get("content-length", "")
    if not line.startswith(first_line) or not size.isdecimal() or int(size) > LARGEST_FRAME:
        raise NotOursError(f"{line[:80]!r} with Content-Length {size[:20]!r} is no message of ours")
    return await reader.readexactly(int(size))


class HttpTransport:
    """Serves POST at one endpoint, and sends POST to the others."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._links: dict[int, Link] = {}
        self._accepted: set[asyncio.StreamWriter] = set()

    async def start(self, receiver: FrameReceiver) -> Endpoint:
        """Listen."""
        self.receiver = receiver
        self._server = await asyncio.start_server(self._accept, self._endpoint.host, self._endpoint.port)
        host, port = self._server.sockets[0].getsockname()[:2]
        return Endpoint(host, port)

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
        answers, peer = Answers(writer), Peer(":".join(map(str, writer.get_extra_info("peername")[:2])))
        try:
            while True:
                self.receiver.request_received(await read_message(reader, "POST /raft "), answers.expect(), peer)
        except NotOursError:
            writer.write(BAD_REQUEST)
        except (EOFError, OSError):
            pass  # the other side has gone, and hears of it there
        finally:
            answers.drop()
            self._accepted.discard(writer)


class Link:
    """A connection that we made: requests leave in order, and answers come back in that order."""

    def __init__(self, owner: HttpTransport, destination: Destination) -> None:
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
            self._post(frame)

    def _post(self, frame: bytes) -> None:
        assert self._writer is not None
        self._writer.write(REQUEST.format(host=self.destination.endpoint, size=len(frame)).encode() + frame)

    def abandon(self) -> None:
        """End it by our own wish."""
        self._task.cancel()
        for reply in self.waiting:
            asyncio.get_running_loop().call_soon(reply, None)

    async def _run(self) -> None:
        try:
            place = self.destination.endpoint
            reader, self._writer = await asyncio.open_connection(place.host, place.port)
            for frame in self._unsent:
                self._post(frame)
            while True:
                answer = await read_message(reader, "HTTP/1.1 200 ")
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
                self._writer.write(RESPONSE.format(size=len(frame)).encode() + frame)


async def replica(number: int, ports: str) -> None:
    """Run one replica, and append a record ten times a second: where another one leads, forwarded to it by HTTP."""
    voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(ports.split(","), 1))
    config = RaftConfig.from_mapping({"node_id": number, "cluster_id": "http", "voters": voters})
    client: RaftClient[bytes] = RaftClient(
        config,
        transport=HttpTransport(config.voters[number - 1].endpoint),
        log=MemoryReplicatedLog(),
        elections=MemoryQuorumStateStore(),
    )
    async with client:
        while True:
            with contextlib.suppress(OutcomeUnknownError):  # the leader was lost on the way
                appended = await client.append_one(b"a record", timeout_ms=30_000)
                print(client.leader_and_epoch().leader_id, appended.last_offset, flush=True)
            await asyncio.sleep(0.1)


def main() -> None:
    """Start three replicas, kill the leader, and see that the other two go on."""
    ports = ",".join(str(port) for port in free_ports(3))
    replicas = {
        number: subprocess.Popen([sys.executable, __file__, str(number), ports], stdout=subprocess.PIPE)
        for number in (1, 2, 3)
    }
    try:
        first, offset = said(replicas[1])
        print(f"replica {first} leads and has committed offset {offset}: kill -9")
        replicas[first].kill()
        leader, survivor = first, replicas[first % 3 + 1]
        while leader == first:
            leader, offset = said(survivor)
        print(f"another replica leads, and the log goes on with offset {offset}")
    finally:
        for process in replicas.values():
            process.kill()
            process.communicate()


def said(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Return the leader and the offset that a replica prints next."""
    assert process.stdout is not None
    leader, offset = process.stdout.readline().split()
    return int(leader), int(offset)


def free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(replica(int(sys.argv[1]), sys.argv[2]))
    else:
        main()
