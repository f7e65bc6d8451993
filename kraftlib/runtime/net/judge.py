"""Whether a request of a peer is taken: its roles, what the application says, and the replica id that it gives.

A request in an envelope is judged by the client that the broker names, and never allows more than that broker may vouch
for (`kraftlib.security.authorizer`).
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

import attrs

from kraftlib.errors import InvariantError
from kraftlib.frozen import immutable
from kraftlib.runtime.net.identity import Identities
from kraftlib.runtime.net.transport import Peer
from kraftlib.security.authorizer import OF_REPLICAS, Authorizer

Authorize = Callable[[Peer, int], bool]
"""Whether a peer may send requests of this API key, if the built-in authorizer allows it."""

NOT_BY_THE_APPLICATION: Final = "the application does not allow it"


@immutable
class Refusal:
    """Why a request is not taken."""

    reason: str
    closes: bool
    """Whether the connection is closed instead of an answer: an error code would stop a replica of Kafka."""
    is_identity: bool = False
    """Whether the peer may speak as a replica, and gives the id of another one."""


@immutable(kw_only=True)
class Judge:
    """Judges requests. `handled` are the APIs that the application of this replica answers."""

    authorizer: Authorizer
    identities: Identities
    authorize: Authorize | None = None
    handled: Container[int] = ()

    def refusal(self, peer: Peer, request: Any) -> Refusal | None:
        """Return why a request is not taken; None if it is."""
        is_direct = peer.forwarded_by is None
        reason = self.authorizer.complaint(peer.principals, request) if is_direct else self._of_forwarded(peer, request)
        if reason is not None:
            return Refusal(reason, closes=request.api_key in OF_REPLICAS and is_direct)
        if self.authorize is not None and not self.authorize(peer, request.api_key):
            return Refusal(NOT_BY_THE_APPLICATION, closes=False)
        is_named = bool(peer.principals) or self.identities.sasl is not None
        if is_named and (reason := self.identities.complaint(peer, request)) is not None:
            return Refusal(reason, closes=True, is_identity=True)
        return None

    def may_ask_much(self, peer: Peer) -> bool:
        """Whether a peer may send the application large requests, and many: of others it only refuses them."""
        broker = peer.forwarded_by
        if broker is None:
            return self.authorizer.may_ask_much(peer.principals)
        return self.authorizer.is_admin(peer.principals, broker=broker.principals)

    def is_up_to_rules(self, peer: Peer, api_key: int) -> bool:
        """Whether a broker forwards this for a client that rules of the application judge: it may have every right."""
        return peer.forwarded_by is not None and api_key in self.authorizer.judged

    def as_sender(self, peer: Peer, request: Any) -> Peer:
        """Return the peer with the rights of its roles, for the handler of the request."""
        if self.authorizer.observes(peer.principals, request):
            return attrs.evolve(peer, is_observer=True)
        return peer

    def as_client(self, peer: Peer) -> Peer:
        """Return the peer, and its broker, with the rights of their roles, for an application that serves them."""
        broker = peer.forwarded_by
        if broker is None:
            return attrs.evolve(peer, is_admin=self.authorizer.is_admin(peer.principals))
        is_admin = self.authorizer.is_admin(peer.principals, broker=broker.principals)
        return attrs.evolve(peer, is_admin=is_admin, forwarded_by=self.as_client(broker))

    def _of_forwarded(self, peer: Peer, request: Any) -> str | None:
        """Return why a request in an envelope is not allowed."""
        broker = peer.forwarded_by
        if broker is None:
            raise InvariantError(f"no broker has forwarded a request of {peer}")
        # Requests that the replica answers itself concern voters and features: there the broker must have the right,
        # too.
        if request.api_key not in self.handled:
            reason = self.authorizer.complaint(broker.principals, request)
            if reason is not None:
                return f"its broker may not forward it: {reason}"
        return self.authorizer.complaint_of_forwarded(peer.principals[0], request, broker=broker.principals)
