"""Certificates and replica ids: which certificate may speak for which replica (security list, row 13).

A certificate of the right authority says that its holder belongs to the service, not which replica it is. One with
the URI

    kraft://CLUSTER-ID/NODE-ID

among its alternative names names the replica, and speaks for that replica only: a request with another id closes its
connection before any of its content is used. Certificates without such a name are bound to no replica; in strict mode
their holders may not speak as one at all.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import attrs

from kraftlib.consensus.extensions.misconfiguration import claimed_id
from kraftlib.runtime.net.transport import Peer
from kraftlib.types import ReplicaId

SCHEME: Final = "kraft://"

_NAME: Final = re.compile(r"kraft://([A-Za-z0-9_.-]{1,255})/([0-9]{1,10})", re.ASCII)


class ReplicaName(NamedTuple):
    """The replica that a certificate names."""

    cluster_id: str
    replica_id: ReplicaId


def replica_name(principal: str | None) -> ReplicaName | None:
    """Read a principal; None if it names no replica."""
    match = _NAME.fullmatch(principal or "")
    return None if match is None else ReplicaName(match[1], int(match[2]))


@attrs.frozen(kw_only=True)
class Identities:
    """Judges what peers claim. `required`: an authenticated peer that is named as no replica may not speak as one."""

    cluster_id: str | None
    required: bool = False

    def complaint(self, peer: Peer, request: Any) -> str | None:
        """Return the reason to refuse a request of this peer; None if its claimed id is right."""
        if peer.principal is None:
            return None  # without certificates nobody is anybody
        claimed = claimed_id(request)
        if claimed is None:
            return None
        name = replica_name(peer.principal)
        if name is None:
            if self.required or peer.principal.startswith(SCHEME):
                return f"it speaks as replica {claimed}, and its certificate names no replica"
            return None
        if self.cluster_id is not None and name.cluster_id != self.cluster_id:
            return f"its certificate is of cluster {name.cluster_id}, not {self.cluster_id}"
        if name.replica_id != claimed:
            return f"it speaks as replica {claimed}, and its certificate is that of {name.replica_id}"
        return None
