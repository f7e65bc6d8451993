"""The accepting side of `TcpTransport`: it listens, and an unknown client may connect a thousand times.

`kraftlib.runtime.net.tcp_connection` has what it has accepted. One sweep over all connections looks at their deadlines.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any, Final

from kraftlib import forks
from kraftlib.runtime.net.notices import Notices
from kraftlib.runtime.net.sockets import bind, handshake_trouble, happens_within, tune
from kraftlib.runtime.net.tcp_connection import ServerConnection, Shared
from kraftlib.runtime.net.transport import FrameReceiver
from kraftlib.security.contexts import Contexts
from kraftlib.security.limits import TcpLimits
from kraftlib.security.sasl_users import SaslUsers
from kraftlib.types import Endpoint

ACCEPT_PAUSE_S: Final = 0.1
"""Pause before the next connection is accepted after the system had no descriptor left."""


class FrameServer:
    """Listens, accepts and watches over what it has accepted."""

    def __init__(
        self,
        receiver: FrameReceiver,
        *,
        tls: Contexts,
        frame_max_bytes: int,
        limits: TcpLimits,
        notices: Notices,
        sasl: SaslUsers | None = None,
    ) -> None:
        self._limits: Final = limits
        self._notices: Final = notices
        self._loop: Final = asyncio.get_running_loop()
        self._now: Final = self._loop.time
        self.shared: Final = Shared(
            receiver=receiver,
            frame_max_bytes=frame_max_bytes,
            limits=limits,
            notices=notices,
            loop=self._loop,
            now=self._now,
            forget=self._forget,
            tls=tls,
            sasl=sasl,
        )
        self._tls: Final = tls
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._connections: set[ServerConnection] = set()
        self._per_host: Counter[str] = Counter()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    @property
    def connections(self) -> int:
        """Number of open connections, those in a handshake included."""
        return len(self._connections)

    async def start(self, listen: Endpoint, *, insecure: bool) -> Endpoint:
        """Listen; return where. Raises: ConfigError, as `bind` does."""
        # With SASL nobody is let in without a password, in the clear or not.
        is_guarded = self._tls.server is not None or self.shared.sasl is not None
        self._listener = await bind(listen, encrypted=is_guarded, insecure=insecure)
        forks.keep_from_children(self._listener.fileno())
        self._accepting = self._loop.create_task(self._accept(self._listener), name="kraftlib-accept")
        return Endpoint(listen.host, self._listener.getsockname()[1])

    def sweep(self) -> None:
        """Break off what has lasted too long."""
        now = self._now()
        for connection in list(self._connections):
            if (found := connection.overdue(now)) is not None:
                connection.refuse(*found)
                connection.abort()

    def _forget(self, connection: ServerConnection) -> None:
        """Take note that `connection` is gone."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._per_host[connection.host] -= 1
            if not self._per_host[connection.host]:
                del self._per_host[connection.host]
            if not self._connections:
                self._all_gone.set()

    async def close(self, patience_s: float) -> None:
        """Stop accepting; close every connection, and break those off that have not gone after `patience_s`."""
        tasks = [task for task in (self._accepting, *self._handshakes) if task is not None]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            if self._listener is not None:
                forks.forget(self._listener.fileno())
                self._listener.close()
            for connection in list(self._connections):
                connection.close()
        if not await happens_within(self._all_gone, patience_s):
            for connection in list(self._connections):
                connection.abort()
            await happens_within(self._all_gone, patience_s)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(listener)
            except ConnectionAbortedError:
                continue  # it was gone before we came to it
            except OSError as error:
                # No descriptors or memory left: who is connected goes on, who is not waits in the backlog.
                self._notices.warn("accept", "", "cannot accept connections for now: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            self._admit(accepted, address)

    def _admit(self, accepted: socket.socket, address: Any) -> None:
        connection = ServerConnection(self.shared, address)
        limits, host = self._limits, connection.host
        if self._is_full(host) and not self._make_room(host):
            self._notices.warn(
                "too_many",
                host,
                "refused a connection of %s: %d are open, %d of them from there (at most %d and %d)",
                connection.peer.address,
                len(self._connections),
                self._per_host[host],
                limits.connections_max,
                limits.connections_per_address_max,
            )
            accepted.close()
            return
        self._connections.add(connection)
        self._all_gone.clear()
        self._per_host[host] += 1
        tune(accepted)
        task = self._loop.create_task(
            self._begin(connection, accepted), name=f"kraftlib-handshake {connection.peer.address}"
        )
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    def _is_full(self, host: str) -> bool:
        return (
            len(self._connections) >= self._limits.connections_max
            or self._per_host[host] >= self._limits.connections_per_address_max
        )

    def _make_room(self, host: str) -> bool:
        """Close the connection that has been idle for longest, of this host if that has too many; say if there is one.

        A newcomer may be a replica, and so may a connection that rests: but that one connects again when it asks.
        """
        is_host_full = self._per_host[host] >= self._limits.connections_per_address_max
        now = self._now()
        candidates = [each for each in self._connections if not is_host_full or each.host == host]
        longest = max(candidates, key=lambda each: each.idle_s(now), default=None)
        if longest is None or longest.idle_s(now) < self._limits.idle_ms / 1000:
            return False
        longest.refuse("made_room", "it was idle, and others want to connect")
        return True

    async def _begin(self, connection: ServerConnection, accepted: socket.socket) -> None:
        """Make the transport of an accepted socket, with TLS if that is asked for."""
        tls = self._tls.server
        patience = {"ssl_handshake_timeout": self._limits.handshake_ms / 1000} if tls is not None else {}
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, ssl=tls, **patience)
        except OSError as error:
            self._notices.warn(
                "handshake",
                connection.host,
                "no connection with %s: %s",
                connection.peer.address,
                handshake_trouble(error),
            )
            self._forget(connection)
        except asyncio.CancelledError:
            self._forget(connection)
            raise
