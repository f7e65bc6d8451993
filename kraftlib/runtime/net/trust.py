"""The TLS of one replica: its contexts, whom its own certificate must name, and the servers that it may speak to."""

from __future__ import annotations

import ssl

from kraftlib.config import RaftConfig
from kraftlib.runtime.opening import Opened
from kraftlib.security.contexts import Holder, Trust
from kraftlib.security.own_contexts import Use, contexts_of


def trust_of(
    config: RaftConfig, opened: Opened, *, server: ssl.SSLContext | None, client: ssl.SSLContext | None
) -> Trust:
    """Return the TLS of a replica that was opened. Raises: ConfigError, if a stranger could get past it."""
    others = opened.view.voters.latest.others(opened.key)
    is_voter = opened.key in opened.view.voters.latest
    use = Use(
        holder=Holder(cluster_id=opened.cluster_id, node_id=config.node_id, is_voter=is_voter),
        connects=bool(others or config.bootstrap_servers),
        is_connected_to=bool(is_voter and others) or config.auto_join,
        strict=config.strict,
        insecure=config.insecure,
    )
    return Trust(
        contexts=contexts_of(config.tls, server, client, use),
        cluster_id=opened.cluster_id,
        unnamed=config.tls is not None and config.tls.unnamed_replicas,
    )
