"""The accepting side of `TcpTransport`: it listens, and an unknown client may connect a thousand times.

`kraftlib.runtime.net.tcp_connection` has what it has accepted. One sweep over all connections looks at their deadlines.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib import forks
from kraftlib.runtime.net.acceptor import Acceptor
from kraftlib.runtime.net.frame_turns import FrameTurns
from kraftlib.runtime.net.freed_memory import FreedMemory, malloc_trim
from kraftlib.runtime.net.newcomer import FirstBytes, Newcomer
from kraftlib.runtime.net.newcomers import Newcomers
from kraftlib.runtime.net.notices import Notices
from kraftlib.runtime.net.sockets import address_text, bind, handshake_trouble, happens_within
from kraftlib.runtime.net.tcp_connection import ServerConnection, Shared
from kraftlib.runtime.net.transport import FrameReceiver, Peer, TellRefusal
from kraftlib.runtime.net.unix_sockets import bind_unix, remove
from kraftlib.security.addresses import VoterAddresses
from kraftlib.security.admission import Admission, Standing
from kraftlib.security.answers import AnswerBudget
from kraftlib.security.before_login import FRAME_MAX_BYTES as LOGIN_MAX_BYTES
from kraftlib.security.contexts import Trust
from kraftlib.security.handshakes import Handshakes
from kraftlib.security.limits import TcpLimits
from kraftlib.security.password_checks import PasswordChecks
from kraftlib.security.unix_users import replica_users, user_of
from kraftlib.types import Endpoint, socket_path

if TYPE_CHECKING:
    from kraftlib.security.sasl_server import SaslServer
    from kraftlib.security.sasl_users import SaslUsers


class FrameServer:
    """Listens, accepts and watches over what it has accepted."""

    def __init__(
        self,
        receiver: FrameReceiver,
        *,
        trust: Trust,
        frame_max_bytes: int,
        limits: TcpLimits,
        notices: Notices,
        sasl: SaslUsers | None = None,
        tell_refusal: TellRefusal = lambda peer, name, reason: None,
    ) -> None:
        tls = trust.contexts
        self._limits: Final = limits
        self._notices: Final = notices
        self._loop: Final = asyncio.get_running_loop()
        self._now: Final = self._loop.time
        log_in: Callable[[], SaslServer] | None = None
        if sasl is not None:
            from kraftlib.security.sasl_server import SaslServer  # now, and not when the first peer logs in

            log_in = partial(SaslServer, sasl)
        budget = AnswerBudget(limits.answers_max_bytes, self._now)
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
            log_in=log_in,
            tell_refusal=tell_refusal,
            passwords=PasswordChecks(self._loop, is_voter_host=lambda host: host in self.voter_addresses),
            budget=budget,
            freed_memory=FreedMemory(budget, self._loop, malloc_trim()),
            turns=FrameTurns(self._loop, time.perf_counter),
            handshakes=Handshakes(
                self._now, at_once=limits.connections_per_address_max, per_second=limits.handshakes_per_second
            ),
        )
        self._tls: Final = tls
        self.voter_addresses: Final = VoterAddresses()
        self._users: Final = replica_users(trust.replicas)
        self._newcomers: Final = Newcomers(
            self.shared,
            has_seat=self._has_seat,
            admit=self._admit,
            leave=self._leave,
            is_voter_host=self._is_voter_host,
        )
        self._admission: Final[Admission[Newcomer | ServerConnection]] = Admission(
            limits,
            is_voter_host=self._is_voter_host,
            authenticates=tls.server is not None or sasl is not None,
        )
        self._listeners: list[socket.socket] = []
        self._acceptors: list[Acceptor] = []
        self._numbers: Final = itertools.count(1)
        self._connections: set[ServerConnection] = set()
        self._by_address: dict[str, ServerConnection] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        newcomer_max_bytes = min(frame_max_bytes, limits.newcomer_frame_max_bytes)
        self._first_bytes: Final = FirstBytes(
            is_encrypted=tls.server is not None,
            asks_login=sasl is not None,
            frame_max_bytes=newcomer_max_bytes if sasl is None else min(newcomer_max_bytes, LOGIN_MAX_BYTES),
        )
        # A Unix socket needs neither TLS nor a login: the system tells which user is there.
        self._first_bytes_unix: Final = FirstBytes(
            is_encrypted=False, asks_login=False, frame_max_bytes=newcomer_max_bytes
        )
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    @property
    def connections(self) -> int:
        """Number of open connections, those that have sent nothing yet included."""
        return len(self._connections) + len(self._newcomers)

    async def start(self, places: Sequence[Endpoint], *, insecure: bool, socket_mode: int) -> Endpoint:
        """Listen at all `places`; return the first of them. Raises: ConfigError, as `bind` and `bind_unix` do."""
        # With SASL no peer is let in without a password, in the clear or not.
        is_guarded = self._tls.server is not None or self.shared.sasl is not None
        try:
            for place in places:
                if (path := socket_path(place.host)) is not None:
                    self._listeners.append(bind_unix(path, socket_mode))
                else:
                    self._listeners.append(await bind(place, encrypted=is_guarded, insecure=insecure))
        except BaseException:
            self._stop_listening()
            raise
        for listener in self._listeners:
            forks.keep_from_children(listener.fileno())
            arrive = self._arrive_unix if listener.family == socket.AF_UNIX else self._arrive
            self._acceptors.append(Acceptor(listener, arrive, loop=self._loop, notices=self._notices))
        first = places[0]
        is_unix = self._listeners[0].family == socket.AF_UNIX
        return first if is_unix else Endpoint(first.host, self._listeners[0].getsockname()[1])

    def _stop_listening(self) -> None:
        for acceptor in self._acceptors:
            acceptor.stop()
        for listener in self._listeners:
            path = listener.getsockname() if listener.family == socket.AF_UNIX else None
            forks.forget(listener.fileno())
            listener.close()
            if path is not None:
                remove(path)
        self._listeners.clear()

    def sweep(self) -> None:
        """Break off what has lasted too long, and give back the memory of requests and answers that are gone."""
        self.shared.freed_memory.look()
        self._newcomers.sweep()
        now = self._now()
        for connection in list(self._connections):
            if (found := connection.overdue(now)) is not None:
                self._refuse(connection, *found)

    def recognized(self, peer: Peer, *, is_voter: bool) -> None:
        """Take note that `peer` has sent a valid request of a replica, and whether that is a voter."""
        connection = self._by_address.get(peer.address)
        if connection is None or connection.standing is Standing.VOTER:
            return
        connection.take_large_frames()
        if is_voter and (peer.principals or connection.host in self.voter_addresses):
            connection.account.is_voter = True
            connection.peer = attrs.evolve(connection.peer, is_known_voter=True)
            self._close_for_others(self._admission.prove(connection, self._now()))

    def _refuse(self, seat: Newcomer | ServerConnection, kind: str, reason: str) -> None:
        """Count, tell the operator and break off."""
        if isinstance(seat, ServerConnection):
            seat.refuse(kind, reason)
            seat.abort()
        else:
            self._newcomers.refuse(seat, kind, reason)

    def _forget(self, connection: ServerConnection) -> None:
        """Take note that `connection` is gone."""
        self._admission.remove(connection)
        self._connections.discard(connection)
        if self._by_address.get(connection.peer.address) is connection:
            del self._by_address[connection.peer.address]
        self._look_if_all_gone()

    def _look_if_all_gone(self) -> None:
        if not self._connections and not self._newcomers:
            self._all_gone.set()

    async def close(self, patience_s: float) -> None:
        """Stop accepting; close every connection, and break those off that have not gone after `patience_s`."""
        self.voter_addresses.close()
        self._stop_listening()
        self.shared.passwords.close()
        self._newcomers.close()
        tasks = list(self._handshakes)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for connection in list(self._connections):
                connection.close()
        if not await happens_within(self._all_gone, patience_s):
            for connection in list(self._connections):
                connection.abort()
            await happens_within(self._all_gone, patience_s)

    def _arrive(self, accepted: socket.socket, address: Any) -> None:
        self._newcomers.arrive(accepted, lambda: (address[0], Peer(address_text(address))), self._first_bytes)

    def _arrive_unix(self, accepted: socket.socket, address: Any) -> None:
        self._newcomers.arrive(accepted, lambda: self._user(accepted), self._first_bytes_unix)

    def _user(self, accepted: socket.socket) -> tuple[str, Peer]:
        """Return who is on a Unix socket. Raises: OSError, if it is gone."""
        user = user_of(accepted)
        text = f"{user.principal} (process {user.process_id}, connection {next(self._numbers)})"
        return user.principal, Peer(text, (user.principal,))

    def _is_voter_host(self, host: str) -> bool:
        return host in self._users or host in self.voter_addresses

    def _has_seat(self, newcomer: Newcomer) -> bool:
        """Give a newcomer one of the slots, and return whether it has got one; close it if there is none."""
        limits, host = self._limits, newcomer.host
        place = self._admission.place_for(host, self._now())
        if place is None:
            self._notices.warn(
                "too_many",
                host,
                "refused a connection of %s: %d are open, %d of them from there (at most %d and %d)",
                newcomer.peer.address,
                len(self._admission),
                self._admission.held_by(host),
                limits.connections_max,
                limits.connections_per_address_max,
            )
            newcomer.close()
            return False
        self._close_for_others(place.instead_of)
        newcomer.of_voters = place.of_voters
        self._admission.add(newcomer)
        self._all_gone.clear()
        return True

    def _leave(self, newcomer: Newcomer) -> None:
        """Take note that a newcomer, which waits no more, is gone."""
        self._admission.remove(newcomer)
        newcomer.close()
        self._look_if_all_gone()

    def _admit(self, newcomer: Newcomer) -> None:
        """Make the connection in the slot of the newcomer."""
        connection = ServerConnection(self.shared, newcomer)
        self._admission.remove(newcomer)
        self._admission.add(connection)
        self._connections.add(connection)
        self._by_address[connection.peer.address] = connection
        accepted = newcomer.accepted
        task = self._loop.create_task(
            self._begin(connection, accepted), name=f"kraftlib-handshake {connection.peer.address}"
        )
        connection.handshake = task
        self._handshakes.add(task)
        task.add_done_callback(partial(self._handshake_over, connection, accepted))

    def _handshake_over(self, connection: ServerConnection, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        if not connection.begun:  # it was cancelled before its first step
            accepted.close()
            self._forget(connection)

    def _close_for_others(self, seat: Newcomer | ServerConnection | None) -> None:
        """Close a connection whose slot another one gets."""
        if seat is not None:
            self._admission.remove(seat)  # at once: its transport is gone a moment later
            self._refuse(seat, "made_room", "others want to connect, and it was idle or had shown least")

    async def _begin(self, connection: ServerConnection, accepted: socket.socket) -> None:
        """Make the transport of an accepted socket, with TLS if that is asked for."""
        connection.begun = True
        tls = self._tls.server if accepted.family != socket.AF_UNIX else None
        patience = {"ssl_handshake_timeout": self._limits.handshake_ms / 1000} if tls is not None else {}
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, ssl=tls, **patience)
        except asyncio.CancelledError:
            self._forget(connection)
            raise
        except Exception as error:  # noqa: BLE001 - of whatever a peer has sent: its only reader is the audit log
            address, trouble = connection.peer.address, handshake_trouble(error)
            self._notices.warn("handshake", connection.host, "no connection with %s: %s", address, trouble)
            if tls is not None:
                self.shared.tell_refusal(connection.peer, "TlsHandshake", trouble)
            self._forget(connection)
