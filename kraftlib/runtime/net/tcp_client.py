"""One connection that `TcpTransport` makes, when there is something to send to a destination.

    idle --send--> connecting --made--> open --lost--> idle          connection_lost(refused=False)
                       |--refused--> idle, pausing                   connection_lost(refused=True)
                       |--failed---> idle, pausing                   nothing is told

`kraftlib.runtime.net.tcp_routes` decides when the next one is made.

Only an attempt that the other host itself has refused is called so (`is_refusal`): no process listens there. One that
ran out of time, a name that was not found, no way to the host, no descriptor left in this process, or TLS that does not
agree say nothing of whether the peer lives: its requests fail, and that is all.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING, Final, cast

import attrs

from kraftlib import forks
from kraftlib.runtime.net.framing import BadFrameError, FrameReader, FrameWriter, framed
from kraftlib.runtime.net.sockets import handshake_trouble, is_refusal, reach, tune
from kraftlib.runtime.net.transport import Frame, Reply
from kraftlib.runtime.net.unix_sockets import StrangerError, dial
from kraftlib.security.before_login import FRAME_MAX_BYTES, SaslError
from kraftlib.security.contexts import Validity, ends_at, unverified
from kraftlib.security.own_thread import in_own_thread
from kraftlib.types import Endpoint, socket_path
from kraftlib.wire.frames import describe_foreign_bytes

if TYPE_CHECKING:
    from kraftlib.runtime.net.tcp_routes import Route
    from kraftlib.security.sasl_client import SaslClient


class ClientConnection(asyncio.Protocol):
    """One attempt to connect, and the connection that came of it."""

    def __init__(self, route: Route) -> None:
        self._route: Final = route
        self._path: Final = socket_path(route.destination.endpoint.host)
        log_in = route.client.log_in if self._path is None else None  # on a Unix socket the system says who we are
        self._sasl = None if log_in is None else log_in()
        self._reader = FrameReader(route.client.frame_max_bytes if self._sasl is None else FRAME_MAX_BYTES)
        self._token: asyncio.Future[Frame] | None = None
        """The answer of SASL that is waited for."""
        self._writer = FrameWriter()
        self._replies: deque[Reply] = deque()
        self._transport: asyncio.Transport | None = None
        self._ended = False
        self._descriptor = -1
        self._valid = Validity(None, route.client.trust.contexts.trust)
        self._attempt = route.client.loop.create_task(self._connect(), name=f"kraftlib-connect {route.destination}")
        route.client.keep(self._attempt)

    def send(self, frame: bytes, reply: Reply) -> None:
        """Send now, or as soon as there is a connection."""
        loop, replies, writer = self._route.client.loop, self._replies, self._writer
        if len(replies) >= self._route.client.limits.queue_max:
            loop.call_soon(reply, None)
            return
        if replies and not writer.gathering:
            writer.gather()
            loop.call_soon(writer.flush)
        replies.append(reply)
        writer.write(frame)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what has waited."""
        self._transport = cast(asyncio.Transport, transport)
        self._descriptor = transport.get_extra_info("socket").fileno()
        forks.keep_from_children(self._descriptor)
        self._route.client.opened(self)
        if self._ended:
            self._transport.abort()
            return
        certificate = transport.get_extra_info("peercert")
        self._valid = attrs.evolve(self._valid, ends_at=ends_at(certificate))
        trust = self._route.client.trust
        reason = (
            unverified(transport.get_extra_info("sslcontext"), certificate)
            or self._valid.is_over(trust.contexts)
            or trust.complaint(certificate, self._route.destination.replica_id)
        )
        if reason is not None:
            # Nothing was sent yet, and nothing must be. It says nothing of the replica that was meant.
            self._break_off("identity", f"this is not the replica that was meant: {reason}")
            self._end(refused=None)
            return
        tune(transport.get_extra_info("socket"))
        if self._sasl is None:
            self._writer.attach(self._transport)

    def data_received(self, data: bytes) -> None:
        """Hand out the answers that are whole with these bytes."""
        reader, replies = self._reader, self._replies
        if replies and self._sasl is None and not self._ended and (only := reader.only_frame(data)) is not None:
            self._route.failures = 0
            replies.popleft()(only)
            return
        reader.feed(data)
        try:
            while not self._ended and (frame := reader.next_frame()) is not None:
                if self._token is not None and not self._token.done():
                    self._token.set_result(frame)
                    continue
                if not replies or self._sasl is not None:
                    self._break_off("unasked", "it sent an answer to no question")
                    return
                self._route.failures = 0
                replies.popleft()(frame)
        except BadFrameError as error:
            foreign = describe_foreign_bytes(error.first_bytes)
            sent = f"; it sent {foreign}" if foreign else ""
            self._break_off("bad_frame", f"it announced an answer of {error.length} bytes{sent}")

    def connection_lost(self, error: Exception | None) -> None:
        """Tell everybody who waits."""
        forks.forget(self._descriptor)
        self._route.client.closed(self)
        if self._token is not None and not self._token.done():
            self._token.set_exception(SaslError("it closed the connection: are SASL and TLS on at its listener?"))
        self._end(refused=False)

    def look(self) -> None:
        """End the connection if it may last no longer."""
        reason = self._valid.is_over(self._route.client.trust.contexts)
        if reason is not None and not self._ended:
            self._break_off("certificate", reason)

    def abandon(self) -> None:
        """Drop the connection at our own wish: pending requests get None, soon, and no loss of a connection is
        reported."""
        self._ended = True
        self._attempt.cancel()
        self._writer.detach()
        if self._transport is not None:
            self._transport.abort()
        replies, self._replies = self._replies, deque()
        for reply in replies:
            self._route.client.loop.call_soon(reply, None)

    async def _connect(self) -> None:
        client, endpoint = self._route.client, self._route.destination.endpoint
        if (reason := client.trust.undialled(endpoint.host)) is not None:
            self._warn("no_host", reason)
            self._end(refused=None)
            return
        try:
            async with asyncio.timeout(client.limits.connect_ms / 1000):
                await self._make(endpoint)
                if self._sasl is not None and not self._ended:
                    await self._authenticate(self._sasl)
        except SaslError as error:
            self._end(refused=None)
            self._break_off("sasl", f"no authentication: {error}")
        except (OSError, ValueError, OverflowError) as error:
            # The last two: a host or a port, told by a peer, that no system takes.
            if isinstance(error, StrangerError):
                self._warn("identity", f"this is not the replica that was meant: {error}")
            elif isinstance(error, ssl.SSLError | ConnectionAbortedError | PermissionError):
                self._warn("handshake", handshake_trouble(error))
            # One that is reset amid the handshake was made, and is lost: a dying process may accept one more.
            is_lost = isinstance(error, ConnectionResetError)
            self._end(refused=True if is_refusal(error) else False if is_lost else None)
            if self._transport is not None:  # it was made, and has not authenticated in time
                self._break_off("sasl", f"no authentication within {client.limits.connect_ms} ms")

    async def _make(self, endpoint: Endpoint) -> None:
        """Make the connection, over TLS if that is asked for. Raises: OSError; ValueError and OverflowError."""
        client = self._route.client
        if self._path is not None:
            made = await dial(self._path, client.trust.replicas)
            await client.loop.create_unix_connection(lambda: self, sock=made)
            return
        tls = client.trust.contexts.client
        name = endpoint.host if tls is not None else None
        where = await reach(endpoint, client.limits.connect_ms / 1000)
        await client.loop.create_connection(lambda: self, **where, ssl=tls, server_hostname=name)

    async def _authenticate(self, sasl: SaslClient) -> None:
        """Let the peer know who we are, and then send what has waited. Raises: SaslError."""
        client = self._route.client
        frame: bytes | None = sasl.start()
        while frame is not None and self._transport is not None and not self._ended:
            self._token = client.loop.create_future()
            self._transport.write(framed(frame))
            answer = await self._token
            frame = await in_own_thread(sasl.receive, answer)
        self._sasl = None
        self._reader.allow(client.frame_max_bytes)
        if self._transport is not None and not self._ended:
            self._writer.attach(self._transport)

    def _break_off(self, kind: str, reason: str) -> None:
        self._warn(kind, reason)
        if self._transport is not None:
            self._transport.abort()

    def _warn(self, kind: str, reason: str) -> None:
        destination = self._route.destination
        self._route.client.notices.warn(
            kind, destination, "broke off with %s (%d): %s", destination.endpoint, destination.number, reason
        )

    def _end(self, *, refused: bool | None) -> None:
        """Tell everybody who waits; and the receiver, unless nothing (None) is known of the peer."""
        if self._ended:
            return
        self._ended = True
        self._writer.detach()
        route = self._route
        route.ended(self)
        replies, self._replies = self._replies, deque()
        for reply in replies:
            reply(None)
        if refused is not None:
            route.client.receiver.connection_lost(route.destination, refused)
