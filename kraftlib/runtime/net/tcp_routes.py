"""The routes of `TcpTransport`: one connection for each destination, and how patient to be about the next one.

`kraftlib.runtime.net.tcp_client` has the connections.

A connection that has brought an answer was a good one: after its loss the next attempt is made at once, and whether it
is refused is the news by which followers tell a dead leader from a cut cable. After an attempt that failed, or a
connection that ended before its first answer, there is a pause, doubling up to a limit; requests sent meanwhile fail
without a word to the receiver, which has had the news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kraftlib.runtime.net.notices import Notices
from kraftlib.runtime.net.sockets import happens_within
from kraftlib.runtime.net.tcp_client import ClientConnection
from kraftlib.runtime.net.transport import Destination, FrameReceiver, Reply
from kraftlib.security.contexts import Trust
from kraftlib.security.limits import TcpLimits

if TYPE_CHECKING:
    from kraftlib.security.sasl_client import SaslClient
    from kraftlib.security.sasl_users import SaslUsers

CLIENT_ID: Final = "kraftlib"
"""The client id of the requests with which a connection authenticates."""


class Route:
    """The way to one destination: the present connection, and how patient to be about the next."""

    def __init__(self, client: FrameClient, destination: Destination) -> None:
        self.client: Final = client
        self.destination: Final = destination
        self.failures = 0
        """Attempts, and connections without an answer, since the last answer."""
        self.connection: ClientConnection | None = None
        """The present connection, or the attempt to make one."""
        self._not_before = 0.0

    def connect_and_send(self, frame: bytes, reply: Reply) -> None:
        """Send over a new connection; fail soon while it is too early for that."""
        if self.failures and self.client.loop.time() < self._not_before:
            self.client.loop.call_soon(reply, None)
            return
        self.failures += 1  # until an answer comes
        self.connection = ClientConnection(self)
        self.connection.send(frame, reply)

    def ended(self, connection: ClientConnection) -> None:
        """Take note that `connection` is no more, so that the next `send` makes another."""
        if self.connection is connection:
            self.connection = None
        self._not_before = self.client.loop.time() + pause_ms(self.failures, self.client.limits) / 1000

    def abandon(self) -> None:
        """Drop the present connection, if there is one."""
        if self.connection is not None:
            self.connection.abandon()
            self.connection = None


def pause_ms(failures: int, limits: TcpLimits) -> int:
    """Return how long to wait with the next attempt after so many failures in a row."""
    return min(limits.backoff_ms * 2 ** min(failures - 1, 20), limits.backoff_max_ms) if failures else 0


class FrameClient:
    """Connects to whomever something is sent to."""

    def __init__(
        self,
        receiver: FrameReceiver,
        *,
        trust: Trust,
        frame_max_bytes: int,
        limits: TcpLimits,
        notices: Notices,
        sasl: SaslUsers | None = None,
    ) -> None:
        self.receiver: Final = receiver
        self.trust: Final = trust
        self.frame_max_bytes: Final = frame_max_bytes
        self.limits: Final = limits
        self.notices: Final = notices
        self.log_in: Callable[[], SaslClient] | None = None
        """Begins the login of a connection; None: no SASL."""
        if sasl is not None:
            from kraftlib.security.sasl_client import SaslClient  # now, and not when the first connection is made

            self.log_in = partial(SaslClient, sasl, client_id=CLIENT_ID)
        self.loop: Final = asyncio.get_running_loop()
        self._routes: dict[int, Route] = {}
        self._open: set[ClientConnection] = set()
        self._attempts: set[asyncio.Task[None]] = set()
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        """Send; the connection of this number to another endpoint is dropped first."""
        route = self._routes.get(destination.number)
        if route is None or (route.destination is not destination and route.destination != destination):
            if route is not None:
                route.abandon()
            route = self._routes[destination.number] = Route(self, destination)
        if (connection := route.connection) is not None:
            connection.send(frame, reply)
        else:
            route.connect_and_send(frame, reply)

    def disconnect(self, destination: Destination) -> None:
        """Drop the connection to `destination`, if there is one."""
        route = self._routes.get(destination.number)
        if route is not None and route.destination == destination:
            route.abandon()

    def sweep(self) -> None:
        """End the connections that may last no longer."""
        for connection in list(self._open):
            connection.look()

    def opened(self, connection: ClientConnection) -> None:
        """Take note that `connection` has a socket."""
        self._open.add(connection)
        self._all_gone.clear()

    def closed(self, connection: ClientConnection) -> None:
        """Take note that `connection` has none any more."""
        self._open.discard(connection)
        if not self._open:
            self._all_gone.set()

    def keep(self, attempt: asyncio.Task[None]) -> None:
        """Keep `attempt` alive until it is over."""
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)

    async def close(self, patience_s: float) -> None:
        """Drop all connections; wait at most `patience_s` until their sockets are closed."""
        for route in self._routes.values():
            route.abandon()
        self._routes.clear()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        await happens_within(self._all_gone, patience_s)
