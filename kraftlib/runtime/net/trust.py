"""The trust of one replica: its TLS, the servers that it may speak to, and the users of SASL."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kraftlib.config import RaftConfig
from kraftlib.runtime.opening import Opened
from kraftlib.security.contexts import Holder, Trust
from kraftlib.security.own_contexts import Use, contexts_of
from kraftlib.types import socket_path

if TYPE_CHECKING:
    from kraftlib.security.sasl_users import SaslUsers


def trust_of(
    config: RaftConfig, opened: Opened, *, server: ssl.SSLContext | None, client: ssl.SSLContext | None
) -> Trust:
    """Return the TLS of a replica that was opened. Raises: ConfigError, if a stranger could get past it."""
    others = opened.view.voters.latest.others(opened.key)
    is_voter = opened.key in opened.view.voters.latest
    replicas = frozenset(config.access.replicas if config.access is not None else ())
    use = Use(
        holder=Holder(cluster_id=opened.cluster_id, node_id=config.node_id, is_voter=is_voter, replicas=replicas),
        connects=bool(others or config.bootstrap_servers or config.upstreams),
        is_connected_to=bool(is_voter and others) or config.auto_join,
        strict=config.strict,
        password=config.sasl is not None,
        insecure=config.insecure,
    )
    return Trust(
        contexts=contexts_of(config.tls, server, client, use),
        cluster_id=opened.cluster_id,
        unnamed=config.tls is not None and config.tls.unnamed_replicas,
        replicas=replicas,
        socket_directories=frozenset(os.path.dirname(path) for path in _sockets_named_by(config)),
    )


def _sockets_named_by(config: RaftConfig) -> Iterator[str]:
    """Yield the paths of all Unix sockets of a configuration."""
    own = (config.listen, config.unix_endpoint, config.advertised)
    others = (*(voter.endpoint for voter in config.voters), *config.bootstrap_servers, *config.upstreams)
    for endpoint in (*own, *others):
        if endpoint is not None and (path := socket_path(endpoint.host)) is not None:
            yield path


def users_of(config: RaftConfig, trust: Trust) -> SaslUsers | None:
    """Return the users of `[sasl]`, read from their files; None without SASL. Raises: ConfigError for the files."""
    if config.sasl is None:
        return None
    from kraftlib.security.sasl_users import load_users  # most replicas have no SASL

    encrypted = trust.contexts.server is not None and trust.contexts.client is not None
    return load_users(config.sasl, config.node_id, encrypted=encrypted, insecure=config.insecure)
