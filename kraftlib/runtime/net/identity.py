"""Judges requests by the certificates of their senders: which replica a peer may speak for (security list, row 13).

`kraftlib.security.identity` says what a certificate names. A request that names a replica as its sender is served only
over a connection whose certificate names this replica; otherwise it closes the connection before any of its content is
used. Connections without a certificate are judged by the authorizer alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from kraftlib.consensus.extensions.misconfiguration import claimed_id
from kraftlib.runtime.net.transport import Peer
from kraftlib.security.identity import is_replica_uri, of_certificate, why_not
from kraftlib.types import ReplicaId
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest


@attrs.frozen(kw_only=True)
class Identities:
    """Judges what peers claim.

    `unnamed`: a certificate without a URI of a replica may speak as any replica. `is_admin` says whether a peer may
    change voters other than itself.
    """

    cluster_id: str | None
    unnamed: bool = False
    is_admin: Callable[[Peer], bool] = lambda peer: False

    def complaint(self, peer: Peer, request: Any) -> str | None:
        """Return the reason to refuse a request of this peer; None if its claimed id is right."""
        claimed = claimed_id(request)
        reason = None if claimed is None else self._why_not(peer, claimed)
        return None if reason is None else f"it speaks as replica {claimed}: {reason}"

    def oversteps(self, peer: Peer, request: Any) -> bool:
        """Whether the holder of a replica's certificate adds or removes another voter, and is no administrator."""
        if not isinstance(request, AddRaftVoterRequest | RemoveRaftVoterRequest):
            return False
        if not any(map(is_replica_uri, of_certificate(peer.principals))):
            return False  # of a client: the authorizer decides
        return self._why_not(peer, request.voter_id) is not None and not self.is_admin(peer)

    def _why_not(self, peer: Peer, replica_id: ReplicaId) -> str | None:
        principals = of_certificate(peer.principals)
        if not principals:
            return None  # no certificate was asked for
        return why_not(principals, replica_id, cluster_id=self.cluster_id, unnamed=self.unnamed)
