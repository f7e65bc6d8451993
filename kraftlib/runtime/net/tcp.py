"""Frames over TCP in Kafka's framing, with TLS if asked for. Kafka's own replicas and tools connect to this.

Two sides that know nothing of each other: `tcp_server` accepts connections, each a `tcp_connection` that answers in
order; `tcp_routes` makes one connection for each destination, a `tcp_client`. This module joins them into the
`Transport` of a replica.

Protocol objects instead of streams (81 against 91 us a round trip, 115,000 against 85,000 round trips a second on 16
connections), one write for all frames of a turn, no timer and no task per frame.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kraftlib.errors import ClosedError, ensure
from kraftlib.runtime.net.notices import Notices
from kraftlib.runtime.net.tcp_routes import FrameClient
from kraftlib.runtime.net.tcp_server import FrameServer
from kraftlib.runtime.net.transport import Destination, FrameReceiver, Peer, Reply, TellRefusal
from kraftlib.security.contexts import Contexts, Trust
from kraftlib.security.limits import FRAME_MAX_BYTES, TcpLimits
from kraftlib.types import Endpoint

if TYPE_CHECKING:
    from kraftlib.security.sasl_users import SaslUsers

logger = logging.getLogger(__name__)

CLOSE_PATIENCE_S: Final = 1.0
"""Time that `close` leaves the last answers to travel."""


class TcpTransport:
    """The default `Transport`.

    `server_ssl` encrypts what is accepted, `client_ssl` what is connected to; both sides check of the other what their
    context tells them to (for mutual TLS: `verify_mode = CERT_REQUIRED` and the same authority on both). `trust` takes
    the place of both, and says which servers may be spoken to. Without TLS it listens on loopback only, unless
    `insecure=True`. `also` are Unix sockets beside `listen`, which may be one itself; their files have `socket_mode`.
    """

    def __init__(
        self,
        listen: Endpoint,
        *,
        server_ssl: ssl.SSLContext | None = None,
        client_ssl: ssl.SSLContext | None = None,
        insecure: bool = False,
        frame_max_bytes: int = FRAME_MAX_BYTES,
        limits: TcpLimits | None = None,
        trust: Trust | None = None,
        sasl: SaslUsers | None = None,
        also: Iterable[Endpoint] = (),
        socket_mode: int = 0o600,
    ) -> None:
        self._places = (listen, *also)
        self._socket_mode = socket_mode
        self._trust = trust or Trust(contexts=Contexts(server_ssl, client_ssl))
        self._insecure = insecure
        self._frame_max_bytes = frame_max_bytes
        self._limits = limits or TcpLimits()
        self._sasl = sasl
        self._tell_refusal: TellRefusal = lambda peer, name, reason: None
        self._notices: Notices | None = None
        self._server: FrameServer | None = None
        self._client: FrameClient | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def trouble(self) -> Mapping[str, int]:
        """Number of peers refused or broken off with since the start, by kind."""
        return {} if self._notices is None else self._notices.counts

    @property
    def tls_metrics(self) -> Mapping[str, float]:
        """Metrics of the files of `[tls]`, by name."""
        return self._trust.contexts.metrics()

    @property
    def accepted_connections(self) -> int:
        """Number of open connections that peers have made."""
        return 0 if self._server is None else self._server.connections

    def tell_refusals(self, tell: TellRefusal) -> None:
        """Call `tell` for every peer whose handshake or login fails from now on."""
        self._tell_refusal = tell

    async def start(self, receiver: FrameReceiver) -> Endpoint:
        """Listen. Raises: ConfigError, if that would let others in without TLS, or the address cannot be had."""
        ensure(self._client is None, "a transport is started once")
        loop = asyncio.get_running_loop()
        self._notices = Notices(logger, loop.time)
        server = FrameServer(
            receiver,
            trust=self._trust,
            frame_max_bytes=self._frame_max_bytes,
            limits=self._limits,
            notices=self._notices,
            sasl=self._sasl,
            tell_refusal=self._tell_refusal,
        )
        endpoint = await server.start(self._places, insecure=self._insecure, socket_mode=self._socket_mode)
        self._server = server
        self._client = FrameClient(
            receiver,
            trust=self._trust,
            frame_max_bytes=self._frame_max_bytes,
            limits=self._limits,
            notices=self._notices,
            sasl=self._sasl,
        )
        self._sweep()
        return endpoint

    def voters_at(self, hosts: Iterable[str]) -> None:
        """Take these hosts for those of the voters: their connections have slots that strangers never get."""
        if self._server is not None:
            self._server.voter_addresses.learn(hosts)

    def recognized(self, peer: Peer, *, is_voter: bool) -> None:
        """Take note that `peer` has sent a valid request of a replica, and whether that is a voter."""
        if self._server is not None:
            self._server.recognized(peer, is_voter=is_voter)

    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        """Send a request; `reply` is never called before this returns."""
        if self._client is None:
            raise ClosedError("the transport is not started, or closed")
        self._client.send(destination, frame, reply)

    def disconnect(self, destination: Destination) -> None:
        """Drop the connection; requests in flight get None, soon, and `connection_lost` is not called."""
        if self._client is not None:
            self._client.disconnect(destination)

    async def close(self) -> None:
        """Stop accepting, give the last answers a moment to leave, drop all connections."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        client, self._client = self._client, None
        server, self._server = self._server, None
        if self._notices is not None:
            self._notices.summarize(now=True)
        try:
            if client is not None:
                await client.close(CLOSE_PATIENCE_S)
        finally:  # also where this call is cancelled: the address must be free
            if server is not None:
                await server.close(CLOSE_PATIENCE_S)

    def _sweep(self) -> None:
        limits = self._limits
        shortest_ms = min(limits.first_frame_ms, limits.frame_ms, limits.stall_ms, limits.idle_max_ms)
        if self._server is not None:
            self._sweeping = asyncio.get_running_loop().call_later(min(1.0, shortest_ms / 4000), self._sweep)
            if self._notices is not None:
                if (trouble := self._trust.contexts.look()) is not None:
                    self._notices.warn("certificate", trouble, "%s", trouble)
                if self._sasl is not None and (trouble := self._sasl.look()) is not None:
                    self._notices.warn("sasl", trouble, "%s", trouble)
                self._notices.summarize()
            self._server.sweep()
            if self._client is not None:
                self._client.sweep()
