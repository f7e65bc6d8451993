"""The accepting side of `TcpTransport`: a client is unknown until its frames identify it.

An unknown client may connect a thousand times, send a byte a minute, announce a gigabyte, speak HTTP, or never read.
None of it costs more than `TcpLimits` says, and none of it reaches the engine: only whole frames do.

Deadlines are looked at by one sweep over all connections, so that a frame costs no timer and no look at the clock.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, cast

import attrs

from kraftlib import forks
from kraftlib.runtime.net.answer_queue import AnswerQueue
from kraftlib.runtime.net.framing import BadFrameError, FrameReader, FrameWriter
from kraftlib.runtime.net.notices import Notices
from kraftlib.runtime.net.sockets import address_text, bind, certificate_name, handshake_trouble, happens_within, tune
from kraftlib.runtime.net.tcp_limits import TcpLimits
from kraftlib.runtime.net.transport import Frame, FrameReceiver, Peer
from kraftlib.types import Endpoint
from kraftlib.wire.frames import describe_foreign_bytes

ACCEPT_PAUSE_S: Final = 0.1
"""Pause before the next connection is accepted after the system had no descriptor left."""

PACE_S: Final = 0.2
"""Over this long the rate of requests is taken."""


class ServerConnection(asyncio.Protocol):
    """One accepted connection."""

    def __init__(self, server: FrameServer, address: Any) -> None:
        self.host: Final = str(address[0]) if isinstance(address, tuple) else str(address)
        self.peer = Peer(address_text(address))
        self._server = server
        self._limits: Final = server.limits
        self._reader = FrameReader(server.frame_max_bytes)
        self._writer = FrameWriter()
        self._answers = AnswerQueue(self._send, self.close)
        self._transport: asyncio.Transport | None = None
        self._held = False  # nothing is read or served, whatever the peer has sent
        self._frames = 0
        self._frames_allowed = 0
        self._pace_ends = 0.0
        self._unfinished_bytes = 0
        self._watched = (0, server.now())
        self._rests = (0, server.now())
        self._stalled_since: float | None = None
        self._descriptor = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, after the handshake if there is one."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.send_buffer_max_bytes)
        self._writer.attach(self._transport)
        self._descriptor = transport.get_extra_info("socket").fileno()
        forks.keep_from_children(self._descriptor)
        self.peer = attrs.evolve(self.peer, principal=certificate_name(transport.get_extra_info("peercert")))
        self._watched = (0, self._server.now())

    def data_received(self, data: bytes) -> None:
        """Take bytes, and serve the frames that are whole with them."""
        self._reader.feed(data)
        if not self._held:
            self._serve()

    def pause_writing(self) -> None:
        """Note that the peer does not read."""
        self._stalled_since = self._server.now()

    def resume_writing(self) -> None:
        """Note that the peer has read."""
        self._stalled_since = None
        self._resume_soon()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget everything."""
        forks.forget(self._descriptor)
        self._transport = None
        self._writer.detach()
        self._answers.drop()
        self._account_for(0)
        self._server.forget(self)

    def close(self) -> None:
        """Serve nothing more; close once what was answered has left."""
        self._held = True
        self._writer.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close, whatever is left to send."""
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, kind: str, reason: str) -> None:
        """Count, tell the operator and break off. What was answered may still leave."""
        self._server.notices.warn(kind, self.host, "closed the connection of %s: %s", self.peer.address, reason)
        self.close()

    def overdue(self, now: float) -> tuple[str, str] | None:
        """Return the kind and the text of what has lasted too long. Called by the sweep."""
        limits = self._limits
        if self._frames != self._rests[0] or len(self._answers):
            self._rests = (self._frames, now)
        if self._stalled_since is not None and now - self._stalled_since > limits.stall_ms / 1000:
            return "slow_reader", f"it has not read its answers for {limits.stall_ms} ms"
        frames, since = self._watched
        waits = self._transport is not None and not self._held and (not self._frames or self._reader.held_bytes)
        if not waits or frames != self._frames:
            self._watched = (self._frames, now)
            return None
        if not frames:
            late = now - since > limits.first_frame_ms / 1000
            return ("no_first_frame", f"no request came within {limits.first_frame_ms} ms") if late else None
        late = now - since > limits.frame_ms / 1000
        return ("slow_sender", f"a request was not whole after {limits.frame_ms} ms") if late else None

    def idle_s(self, now: float) -> float:
        """Return for how long the peer has asked nothing, as of the last sweep; 0 while anything is under way."""
        frames, since = self._rests
        rests = self._transport is not None and not self._held and not self._reader.held_bytes and frames > 0
        return now - since if rests and frames == self._frames and not len(self._answers) else 0.0

    def _has_room(self) -> bool:
        """Whether another request may be taken."""
        answers, limits = self._answers, self._limits
        return (
            len(answers) < limits.pipeline_max
            and answers.waiting_bytes <= limits.send_buffer_max_bytes
            and self._stalled_since is None
        )

    def _serve(self) -> None:
        """Hand on the frames that are whole, as far as the limits allow, and hold the rest."""
        self._writer.gather()  # answers that are given at once leave together
        try:
            all_taken = self._take()
        except BadFrameError as error:
            self.refuse("bad_frame", _describe(error, self._server.frame_max_bytes))
            return
        finally:
            self._writer.flush()
        if not all_taken:
            self._hold()
        if self._reader.held_bytes != self._unfinished_bytes:
            self._account_for(self._reader.held_bytes)

    def _take(self) -> bool:
        """Hand on the frames of one turn; return whether all that are whole were taken."""
        answers, reader, peer = self._answers, self._reader, self.peer
        receive = self._server.receiver.request_received
        room = self._limits.pipeline_max - len(answers) if self._has_room() else 0
        for _ in range(min(room, self._pace())):
            frame = reader.next_frame()
            if frame is None:
                return True
            self._frames += 1
            self._frames_allowed -= 1
            receive(frame, answers.expect(), peer)
            if self._held or not self._has_room():
                break
        return False

    def _pace(self) -> int:
        """Return how many requests may be taken now."""
        if self._frames_allowed <= 0 and (now := self._server.now()) >= self._pace_ends:
            self._pace_ends = now + PACE_S
            self._frames_allowed = max(1, int(self._limits.requests_per_second * PACE_S))
        return self._frames_allowed

    def _hold(self) -> None:
        """Read and take nothing until there is room; see to it that somebody notices when there is."""
        if self._transport is None or self._held:
            return
        self._held = True
        self._transport.pause_reading()
        if self._frames_allowed <= 0:
            self._server.notices.counts["paced"] += 1
            self._server.loop.call_at(self._pace_ends, self._resume)
        elif self._has_room():
            self._resume_soon()  # it had its share of this turn: now the other connections

    def _resume_soon(self) -> None:
        # Never at once: whoever gives an answer must not be handed the next request while it does so.
        if self._held:
            self._server.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._transport is None or self._transport.is_closing() or not self._held:
            return
        self._held = False
        self._serve()
        if not self._held and not self._transport.is_closing():
            self._transport.resume_reading()

    def _account_for(self, unfinished_bytes: int) -> None:
        """Tell the server how much of an unfinished frame is kept here, and break off if all of it is too much."""
        server = self._server
        server.unfinished_bytes += unfinished_bytes - self._unfinished_bytes
        self._unfinished_bytes = unfinished_bytes
        alone = server.unfinished_bytes == unfinished_bytes
        if server.unfinished_bytes > self._limits.unfinished_max_bytes and not alone and unfinished_bytes:
            self.refuse("unfinished", f"unfinished requests take {server.unfinished_bytes} bytes of memory")

    def _send(self, frames: Sequence[Frame]) -> None:
        writer = self._writer
        if not writer.gathering and len(self._answers):
            # Requests were pipelined: their answers often come in one turn, too.
            writer.gather()
            self._server.loop.call_soon(writer.flush)
        for frame in frames:
            writer.write(frame)
        if self._held:
            self._resume_soon()


class FrameServer:
    """Listens, accepts and watches over what it has accepted."""

    def __init__(
        self,
        receiver: FrameReceiver,
        *,
        tls: ssl.SSLContext | None,
        frame_max_bytes: int,
        limits: TcpLimits,
        notices: Notices,
    ) -> None:
        self.receiver: Final = receiver
        self.frame_max_bytes: Final = frame_max_bytes
        self.limits: Final = limits
        self.notices: Final = notices
        self.loop: Final = asyncio.get_running_loop()
        self.now: Final = self.loop.time
        self.unfinished_bytes = 0
        self._tls = tls
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
        self._listener = await bind(listen, encrypted=self._tls is not None, insecure=insecure)
        forks.keep_from_children(self._listener.fileno())
        self._accepting = self.loop.create_task(self._accept(self._listener), name="kraftlib-accept")
        return Endpoint(listen.host, self._listener.getsockname()[1])

    def sweep(self) -> None:
        """Break off what has lasted too long."""
        now = self.now()
        for connection in list(self._connections):
            if (found := connection.overdue(now)) is not None:
                connection.refuse(*found)
                connection.abort()

    def forget(self, connection: ServerConnection) -> None:
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
                accepted, address = await self.loop.sock_accept(listener)
            except ConnectionAbortedError:
                continue  # it was gone before we came to it
            except OSError as error:
                # No descriptors or memory left: who is connected goes on, who is not waits in the backlog.
                self.notices.warn("accept", "", "cannot accept connections for now: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            self._admit(accepted, address)

    def _admit(self, accepted: socket.socket, address: Any) -> None:
        connection = ServerConnection(self, address)
        limits, host = self.limits, connection.host
        if self._is_full(host) and not self._make_room(host):
            self.notices.warn(
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
        task = self.loop.create_task(
            self._begin(connection, accepted), name=f"kraftlib-handshake {connection.peer.address}"
        )
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    def _is_full(self, host: str) -> bool:
        return (
            len(self._connections) >= self.limits.connections_max
            or self._per_host[host] >= self.limits.connections_per_address_max
        )

    def _make_room(self, host: str) -> bool:
        """Close the connection that has been idle for longest, of this host if that has too many; say if there is one.

        A newcomer may be a replica, and so may a connection that rests: but that one connects again when it asks.
        """
        is_host_full = self._per_host[host] >= self.limits.connections_per_address_max
        now = self.now()
        candidates = [each for each in self._connections if not is_host_full or each.host == host]
        longest = max(candidates, key=lambda each: each.idle_s(now), default=None)
        if longest is None or longest.idle_s(now) < self.limits.idle_ms / 1000:
            return False
        longest.refuse("made_room", "it was idle, and others want to connect")
        return True

    async def _begin(self, connection: ServerConnection, accepted: socket.socket) -> None:
        """Make the transport of an accepted socket, with TLS if that is asked for."""
        patience = {"ssl_handshake_timeout": self.limits.handshake_ms / 1000} if self._tls is not None else {}
        try:
            await self.loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._tls, **patience)
        except OSError as error:
            self.notices.warn(
                "handshake",
                connection.host,
                "no connection with %s: %s",
                connection.peer.address,
                handshake_trouble(error),
            )
            self.forget(connection)
        except asyncio.CancelledError:
            self.forget(connection)
            raise


def _describe(error: BadFrameError, max_bytes: int) -> str:
    foreign = describe_foreign_bytes(error.first_bytes)
    size = f"it announced a frame of {error.length} bytes (allowed are 1 to {max_bytes})"
    return f"{size}; it sent {foreign}" if foreign else size
