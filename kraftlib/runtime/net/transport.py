"""The promises of a transport: it moves opaque frames, one request in, one reply out, and reports lost connections.

A frame is a whole Kafka request or response with its header, without the four length bytes. The transport never looks
inside. `TcpTransport` frames them on sockets, `MemoryTransport` hands them over inside a process, and
`examples/custom_transport.py` shows a user's own.

All calls are made, and all callbacks must be called, on the engine's event loop. No callback is called from inside
`send` or `disconnect`; every callback may call them.

`kraftlib.testing.transport_contract` holds the promises of this page as checks that a transport can be run against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import attrs

from kraftlib.consensus.outstanding import replica_at
from kraftlib.types import Endpoint, ReplicaId

Frame = bytes | memoryview
"""A whole request or response. A view is of bytes that never change."""

Reply = Callable[[Frame | None], None]
"""Takes the frame that answers a request, once. None: no answer will come, the connection is lost or to be closed."""


class Work(Protocol):
    """A task that serves a peer, or an object that stands for one."""

    def cancel(self) -> object:
        """End it: the peer is gone."""
        ...


@attrs.frozen
class Peer:
    """The sender of a request, as far as the transport knows it: for logs, limits and authorization."""

    address: str
    """Remote address as text."""

    principals: tuple[str, ...] = ()
    """Authenticated names, if the transport authenticates: every URI of a verified certificate as it stands there, or
    `cert:SUBJECT` if it has none; `User:NAME` after SASL, as Kafka writes it; `unix:UID` for a Unix socket."""

    is_observer: bool = False
    """Whether its roles do not let it speak as a voter. The request server says so of a Fetch, a transport does not."""

    is_admin: bool = False
    """Whether it has the role admin. The request server says so to an application, a transport does not."""

    forwarded_by: Peer | None = None
    """The broker that has sent the request in an envelope, and says who its sender is; None: it came from the peer."""

    is_known_voter: bool = attrs.field(default=False, eq=False)
    """Whether the transport knows that this is a voter, and need not be told (`KnowsVoters.recognized`)."""

    by_token: bool = False
    """Whether a broker says that it knows the sender by a delegation token."""

    client_id: str = attrs.field(default="", eq=False)
    """The client id in the header of the request. The request server says so to an application."""

    work: set[Work] = attrs.field(factory=set, eq=False, repr=False)
    """The tasks that serve it: a transport that knows when its connection is gone cancels them then."""

    @property
    def principal(self) -> str | None:
        """The first of the authenticated names, if there is one."""
        return self.principals[0] if self.principals else None


@attrs.frozen
class Destination:
    """The target of a connection. Destinations with different numbers never share one, even to the same endpoint.

    `number` is the replica id; -2, -3, ... for a bootstrap server whose id is not known (KIP-853); or a number far
    below for a further connection to a replica. A transport that authenticates checks that `replica_id` answers.
    """

    number: int
    endpoint: Endpoint

    @property
    def replica_id(self) -> ReplicaId | None:
        """The replica that is meant; None for a bootstrap server."""
        return replica_at(self.number)


@runtime_checkable
class FrameReceiver(Protocol):
    """The engine, as a transport sees it."""

    def request_received(self, frame: Frame, reply: Reply, peer: Peer) -> None:
        """Take a request. `reply` is called once, later or at once; answers leave in the order of their requests."""
        ...

    def connection_lost(self, destination: Destination, refused: bool) -> None:
        """Take note that the connection to `destination` is gone, or that the host has refused a new one (`refused`).

        A refused connection is taken for a dead process (ECONNREFUSED, and nothing else of TCP). An attempt that says
        nothing of the process (no answer in time, no such name, no way there, a failed handshake) is not told.

        Requests in flight on it have had `reply(None)` before. Not called for connections that `disconnect`, `close` or
        a `send` to another endpoint of the same number dropped.
        """
        ...


@runtime_checkable
class Transport(Protocol):
    """Moves frames between replicas."""

    async def start(self, receiver: FrameReceiver) -> Endpoint:
        """Begin to accept requests; return where others reach this replica."""
        ...

    def send(self, destination: Destination, frame: bytes, reply: Reply) -> None:
        """Send a request, connecting first if need be; return at once.

        `reply` gets the answer, or None if the connection is lost, refused or given up. Requests to one destination
        are answered in order. A connection of the same number to another endpoint is dropped.

        After the loss of a connection that has brought answers the next `send` makes a new one at once: whether that
        is refused is how followers tell a dead leader from a cut cable. After a failed attempt there may be a pause, in
        which requests fail at once and without a `connection_lost`.
        """
        ...

    def disconnect(self, destination: Destination) -> None:
        """Drop the connection, if there is one; requests in flight get None. The next `send` makes a new one."""
        ...

    async def close(self) -> None:
        """Stop accepting, drop all connections, release all resources."""
        ...


TellRefusal = Callable[[Peer, str, str], None]
"""Takes a peer that was not let in, the step that failed (such as `TlsHandshake`), and why."""


@runtime_checkable
class TellsRefusals(Protocol):
    """A transport that reports the peers it has not let in, for the audit log. A transport need not."""

    def tell_refusals(self, tell: TellRefusal) -> None:
        """Call `tell` for every peer whose handshake or login fails from now on. Called before `start`."""
        ...


@runtime_checkable
class KnowsVoters(Protocol):
    """A transport that prefers voters to strangers where room is short. A transport need not."""

    def voters_at(self, hosts: Iterable[str]) -> None:
        """Take these hosts (names or numeric addresses) for those of the other voters, in place of earlier ones."""
        ...

    def recognized(self, peer: Peer, *, is_voter: bool) -> None:
        """Take note that `peer` has sent a valid request of a replica, and whether that is a voter."""
        ...
