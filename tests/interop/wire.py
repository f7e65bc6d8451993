"""What goes over the connections of a quorum: recorded, and cut where a test wants it.

Every replica is told that the others are where a proxy of ours listens, so that each frame passes through here. Whoever
asks is known by the client id of its first request (`raft-client-3`).
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Final

import attrs

from kraftlib.types import Endpoint

CONNECT_TIMEOUT_S: Final = 5.0
FRAME_MAX: Final = 110_000_000


@attrs.frozen(kw_only=True)
class Pair:
    """A request and its answer, without the four bytes of the length; the answer is empty if none came."""

    asker: int
    """Node id, or -1: a tool."""
    asked: int
    request: bytes
    response: bytes

    @property
    def api_key(self) -> int:
        """Which API it is about."""
        return int.from_bytes(self.request[:2], "big")

    @property
    def client_id(self) -> str:
        """What the asker calls itself."""
        return client_id(self.request)

    @property
    def version(self) -> int:
        """In which version."""
        return int.from_bytes(self.request[2:4], "big")


def client_id(request: bytes) -> str:
    """Return what the header of a request names as its sender."""
    size = int.from_bytes(request[8:10], "big", signed=True)
    return request[10 : 10 + max(0, size)].decode("utf-8", "replace")


class Wire:
    """All proxies of a quorum."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self.keeps_pairs = True
        self.isolated: set[int] = set()
        """Who reaches nobody and is reached by nobody."""
        self._proxies: dict[int, _Proxy] = {}

    def place(self, node_id: int, *, front: Endpoint, behind: Endpoint) -> None:
        """Let `front` lead to `behind`, where this replica listens."""
        if node_id in self._proxies:
            self._proxies[node_id].behind = behind
        else:
            self._proxies[node_id] = _Proxy(self, node_id, front, behind)

    def isolate(self, *node_ids: int) -> None:
        """Cut all connections of these replicas, and let them make no new ones; of no others any more."""
        self.isolated = set(node_ids)
        for proxy in self._proxies.values():
            proxy.cut()

    def close(self) -> None:
        """End it all."""
        for proxy in self._proxies.values():
            proxy.close()


class _Proxy:
    def __init__(self, wire: Wire, node_id: int, front: Endpoint, behind: Endpoint) -> None:
        self.wire = wire
        self.node_id = node_id
        self.behind = behind
        self._open: dict[_Connection, None] = {}
        self._listener = socket.create_server((front.host, front.port), backlog=100)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.node_id in self.wire.isolated:
                client.close()
                continue
            try:
                server = socket.create_connection((self.behind.host, self.behind.port), timeout=CONNECT_TIMEOUT_S)
            except OSError:  # nobody there: as if there were no proxy
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
                continue
            connection = _Connection(self, client, server)
            self._open[connection] = None  # before it begins, so that whatever passes through it can be cut
            connection.begin()

    def cut(self) -> None:
        for connection in list(self._open):
            if self.node_id in self.wire.isolated or connection.asker in self.wire.isolated:
                connection.close()

    def forget(self, connection: _Connection) -> None:
        self._open.pop(connection, None)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            connection.close()


class _Connection:
    """Two directions of frames, a thread each. Answers come in the order of the questions: so Kafka has it."""

    def __init__(self, proxy: _Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.asker = -1
        self.client, self.server = client, server
        self._waiting: list[bytes] = []
        for one in (client, server):
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def begin(self) -> None:
        """Let frames pass."""
        for source, target, take in (
            (self.client, self.server, self._asked),
            (self.server, self.client, self._answered),
        ):
            threading.Thread(target=self._pump, args=(source, target, take), daemon=True).start()

    def _asked(self, frame: bytes) -> None:
        if self.asker == -1:
            found = re.fullmatch(r"(?:raft-client-)?([0-9]+)", client_id(frame))
            self.asker = int(found[1]) if found else -1
        if self.asker in self.proxy.wire.isolated:
            raise ConnectionAbortedError(f"replica {self.asker} is cut off")
        self._waiting.append(frame)

    def _answered(self, frame: bytes) -> None:
        request = self._waiting.pop(0)
        if self.proxy.wire.keeps_pairs:
            self.proxy.wire.pairs.append(
                Pair(asker=self.asker, asked=self.proxy.node_id, request=request, response=frame)
            )

    def _pump(self, source: socket.socket, target: socket.socket, take: object) -> None:
        try:
            for frame in frames(source):
                take(frame)  # type: ignore[operator]
                target.sendall(len(frame).to_bytes(4, "big") + frame)
        except (OSError, IndexError):
            pass
        self.close()

    def close(self) -> None:
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.proxy.forget(self)


def frames(source: socket.socket) -> Iterator[bytes]:
    """Yield the frames that come over a connection until it ends."""
    with source.makefile("rb") as file:
        while len(head := file.read(4)) == 4:
            size = int.from_bytes(head, "big", signed=True)
            if not 0 <= size <= FRAME_MAX or len(frame := file.read(size)) < size:
                return
            yield frame
