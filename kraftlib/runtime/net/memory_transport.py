"""A `Transport` inside one process: for tests, for quorums of examples, and as the shortest transport to read.

Frames pass from one replica to another through their event loops, one turn per hop, so a callback never runs inside
a call. The replicas may run in one loop or each in its own thread. A `MemoryHub` is the network: it knows the transport
at each endpoint, and can be cut and healed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kraftlib.errors import ClosedError, ConfigError, ensure
from kraftlib.runtime.net.answer_queue import AnswerQueue
from kraftlib.runtime.net.transport import Destination, Frame, FrameReceiver, Peer, Reply
from kraftlib.types import Endpoint


class MemoryHub:
    """The network of a process. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._listening: dict[Endpoint, MemoryTransport] = {}
        self._cut: set[frozenset[Endpoint]] = set()
        self._ports = itertools.count(1)

    def cut(self, a: Endpoint, b: Endpoint) -> None:
        """Cut `a` and `b` off from each other: connections between them are lost, new ones are refused."""
        self._cut.add(frozenset((a, b)))
        for here, there in ((a, b), (b, a)):
            if (transport := self._listening.get(here)) is not None:
                transport.post(transport.lose, there)

    def heal(self, a: Endpoint, b: Endpoint) -> None:
        """Undo `cut`."""
        self._cut.discard(frozenset((a, b)))

    def isolate(self, a: Endpoint) -> None:
        """Cut `a` off from every endpoint that listens now."""
        for b in list(self._listening):
            if b != a:
                self.cut(a, b)

    def heal_all(self) -> None:
        """Undo every `cut`."""
        self._cut.clear()

    def route(self, source: Endpoint, target: Endpoint) -> MemoryTransport | None:
        """Return the transport that listens at `target`, if `source` reaches it."""
        return None if frozenset((source, target)) in self._cut else self._listening.get(target)

    def join(self, transport: MemoryTransport, endpoint: Endpoint) -> Endpoint:
        """Let `transport` listen; port 0 takes a free one. Raises: ConfigError, if the endpoint is in use."""
        if endpoint.port == 0:
            ports = (Endpoint(endpoint.host, port) for port in self._ports)
            endpoint = next(candidate for candidate in ports if candidate not in self._listening)
        elif endpoint in self._listening:
            raise ConfigError(f"cannot listen on {endpoint}: the address is in use; take another port (0: a free one)")
        self._listening[endpoint] = transport
        return endpoint

    def leave(self, endpoint: Endpoint) -> None:
        """Stop listening at `endpoint`."""
        self._listening.pop(endpoint, None)


class MemoryTransport:
    """Where one replica is reached on a hub."""

    def __init__(self, hub: MemoryHub, endpoint: Endpoint) -> None:
        self._hub: Final = hub
        self._endpoint = endpoint
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receiver: FrameReceiver | None = None
        self._made: dict[int, _Connection] = {}
        self._accepted: set[_Accepted] = set()

    async def start(self, receiver: FrameReceiver) -> Endpoint:
        """Listen. Raises: ConfigError, if the endpoint is in use."""
        ensure(self._loop is None, "a transport is started once")
        self._loop, self._receiver = asyncio.get_running_loop(), receiver
        self._endpoint = self._hub.join(self, self._endpoint)
        return self._endpoint

    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        """Hand `frame` over in a later turn."""
        if self._receiver is None:
            raise ClosedError("the transport is not started, or closed")
        connection = self._made.get(destination.number)
        if connection is not None and connection.destination != destination:
            connection.abandon()
            connection = None
        if connection is None:
            connection = self._made[destination.number] = _Connection(self, destination)
        connection.send(frame, reply)

    def disconnect(self, destination: Destination) -> None:
        """Drop the connection; requests in flight get None, soon, and `connection_lost` is not called."""
        connection = self._made.get(destination.number)
        if connection is not None and connection.destination == destination:
            connection.abandon()
            del self._made[destination.number]

    async def close(self) -> None:
        """Stop listening; every connected peer loses its connection."""
        if self._receiver is None:
            return
        self._hub.leave(self._endpoint)
        for connection in self._made.values():
            connection.abandon()
        for accepted in list(self._accepted):
            accepted.hang_up()
        self._made.clear()
        self._receiver = None
        await asyncio.sleep(0)  # those who wait have their None before this returns

    # The rest is for the hub and for the other end of a connection.

    def post(self, function: Callable[..., None], *args: Any) -> bool:
        """Call `function` in a later turn of this transport's loop; False, if that loop is no more."""
        if self._loop is None:
            return False
        try:
            # Also right in the loop itself, where plain call_soon would save a wake-up.
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            return False  # the replica is gone, and its loop with it
        return True

    def lose(self, there: Endpoint) -> None:
        """Lose every connection with `there`."""
        for connection in [made for made in self._made.values() if made.reaches(there)]:
            connection.end(False)
        for accepted in [one for one in self._accepted if one.source == there]:
            self.forget(accepted)

    def connect(self, connection: _Connection) -> _Accepted | None:
        """Find the other end for `connection`; None, if it is refused."""
        target = self._hub.route(self._endpoint, connection.destination.endpoint)
        return None if target is None else _Accepted(target, connection, self._endpoint)

    def take(self, accepted: _Accepted, frame: Frame) -> None:
        """Receive a request."""
        if self._receiver is None:
            accepted.hang_up()
        elif accepted.open:
            self._accepted.add(accepted)
            self._receiver.request_received(frame, accepted.answers.expect(), accepted.peer)

    def forget(self, accepted: _Accepted) -> None:
        """Drop a connection that was made to us; its answers go nowhere."""
        accepted.open = False
        accepted.answers.drop()
        self._accepted.discard(accepted)

    def ended(self, connection: _Connection, replies: Sequence[Reply], refused: bool) -> None:
        """Note that a connection of ours is gone, and tell the engine."""
        if self._made.get(connection.destination.number) is connection:
            del self._made[connection.destination.number]
        for reply in replies:
            reply(None)
        if self._receiver is not None:
            self._receiver.connection_lost(connection.destination, refused)


class _Connection:
    """The end of a connection at the replica that made it. Lives in that replica's loop."""

    def __init__(self, owner: MemoryTransport, destination: Destination) -> None:
        self.destination: Final = destination
        self.owner: Final = owner
        self._replies: deque[Reply] = deque()
        self._ended = False
        self._other = owner.connect(self)
        if self._other is None:
            owner.post(self.end, True)

    def send(self, frame: bytes, reply: Reply) -> None:
        """Send, and wait for the answer."""
        self._replies.append(reply)
        if self._other is not None and not self._other.owner.post(self._other.owner.take, self._other, frame):
            self.owner.post(self.end, False)

    def reaches(self, there: Endpoint) -> bool:
        """Whether this is a connection with `there`, and not one that is about to be refused."""
        return self._other is not None and self.destination.endpoint == there

    def answered(self, frames: Sequence[Frame]) -> None:
        """Hand out answers."""
        for frame in frames:
            if not self._ended:
                self._replies.popleft()(bytes(frame))

    def end(self, refused: bool) -> None:
        """Tell everybody who waits."""
        if not self._ended:
            self.owner.ended(self, self._finish(), refused)

    def abandon(self) -> None:
        """End at our own wish."""
        for reply in self._finish():
            self.owner.post(reply, None)

    def _finish(self) -> Sequence[Reply]:
        self._ended = True
        if self._other is not None:
            self._other.owner.post(self._other.owner.forget, self._other)
        replies, self._replies = self._replies, deque()
        return replies


class _Accepted:
    """The end of a connection at the replica that it was made to. Lives in that replica's loop."""

    def __init__(self, owner: MemoryTransport, connection: _Connection, source: Endpoint) -> None:
        self.owner: Final = owner
        self.source: Final = source
        self.peer: Final = Peer(str(source))
        self.open = True
        self.answers: Final = AnswerQueue(self._send, self.hang_up)
        self._connection: Final = connection

    def hang_up(self) -> None:
        """Close from this end."""
        self.owner.forget(self)
        self._connection.owner.post(self._connection.end, False)

    def _send(self, frames: Sequence[Frame]) -> None:
        self._connection.owner.post(self._connection.answered, frames)
