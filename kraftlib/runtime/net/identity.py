"""Judges requests by the certificates of their senders: which replica a peer may speak for (security list, row 13).

`kraftlib.security.identity` says what a certificate names. A request that names a replica as its sender is served only
over a connection whose certificate names this replica; otherwise it closes the connection before any of its content is
used. Connections without one are judged by the authorizer alone (`kraftlib.security.authorizer`).
"""

from __future__ import annotations

from typing import Any

from kraftlib.consensus.extensions.misconfiguration import claimed_id
from kraftlib.frozen import immutable
from kraftlib.runtime.net.transport import Peer
from kraftlib.security.identity import of_certificate, why_not
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.unix_users import on_unix_socket


@immutable(kw_only=True)
class Identities:
    """Judges what peers claim, after `kraftlib.security.authorizer` has found that they may speak as replicas at all.

    A certificate that names no replica, a user that is bound to none, and a peer on a Unix socket are not judged here:
    whether it may speak as one, as any, is a matter of roles.
    """

    cluster_id: str | None
    sasl: SaslConfig | None = None
    """The users of SASL and the replicas that they are bound to; None: no SASL."""

    def complaint(self, peer: Peer, request: Any) -> str | None:
        """Return the reason to refuse a request of this peer; None if its claimed id is right."""
        if not peer.principals and self.sasl is None:
            return None
        claimed = claimed_id(request)
        if claimed is None:
            return None
        if (
            self.sasl is not None
            and not on_unix_socket(peer.principals)
            and (bound_to := self.sasl.complaint(peer.principals, claimed)) is not None
        ):
            return bound_to
        principals = of_certificate(peer.principals)
        reason = why_not(principals, claimed, cluster_id=self.cluster_id, unnamed=True)
        return None if reason is None else f"it speaks as replica {claimed}: {reason}"
