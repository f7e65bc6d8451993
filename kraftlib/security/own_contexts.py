"""Contexts that an application makes itself: refused at the start if a stranger could get past them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from kraftlib.errors import ConfigError
from kraftlib.frozen import immutable
from kraftlib.security.contexts import Contexts, Holder
from kraftlib.security.tls import TlsConfig

OLDEST: Final = ssl.TLSVersion.TLSv1_2
WEAKEST_BITS: Final = 112
ANONYMOUS: Final = "auth-null"


@immutable(kw_only=True)
class Use:
    """The purpose of the contexts of a replica."""

    holder: Holder | None = None
    """The replica that its own certificate must name; None: not checked."""
    connects: bool = True
    """Whether it connects to other replicas."""
    is_connected_to: bool = True
    """Whether other replicas connect to it."""
    strict: bool = False
    password: bool = False
    """Whether its peers show who they are by a password (SASL), so that they need no certificate."""
    insecure: bool = False


def contexts_of(
    tls: TlsConfig | None, server: ssl.SSLContext | None, client: ssl.SSLContext | None, use: Use
) -> Contexts:
    """Return the contexts of a replica: from the files of `[tls]`, or those that were handed in.

    Raises: ConfigError that names the value and a remedy, if they cannot be used or do not verify the other side.
    """
    if tls is not None and tls.cert is not None:
        if server is not None or client is not None:
            raise ConfigError("server_ssl= and client_ssl= beside tls.cert: give one or the other")
        from kraftlib.security.file_contexts import FileContexts  # most replicas have no files of TLS

        return FileContexts(tls, use.holder)
    if tls is not None and server is None and client is None:
        raise ConfigError(
            "[tls] names no files, and neither server_ssl= nor client_ssl= is given, so that all would be in plaintext:"
            " give tls.cert, tls.key and tls.ca, or leave [tls] out"
        )
    _check_both(server, client, use)
    if server is not None:
        _check_server(server, use)
    if client is not None:
        _check_client(client, tls or TlsConfig(), use)
    return Contexts(server, client)


def _check_both(server: ssl.SSLContext | None, client: ssl.SSLContext | None, use: Use) -> None:
    if server is not None and client is None and use.connects:
        raise ConfigError(
            "server_ssl= without client_ssl=: this replica would send its own requests in plaintext; give both, or"
            " let tls.cert, tls.key and tls.ca make them"
        )
    if client is not None and server is None and use.is_connected_to:
        raise ConfigError(
            "client_ssl= without server_ssl=: other voters would connect to this one in plaintext; give both, or let"
            " tls.cert, tls.key and tls.ca make them"
        )


def _check_server(context: ssl.SSLContext, use: Use) -> None:
    _check_strength("server_ssl", context)
    if context.verify_mode is ssl.CERT_REQUIRED:
        return
    if use.strict or not (use.password or use.insecure):
        raise ConfigError(
            f"server_ssl.verify_mode={context.verify_mode.name} lets peers in without a certificate: set it to"
            " ssl.CERT_REQUIRED" + ("" if use.strict else ", or insecure=True if every peer may do everything")
        )


def _check_client(context: ssl.SSLContext, tls: TlsConfig, use: Use) -> None:
    _check_strength("client_ssl", context)
    if context.verify_mode is not ssl.CERT_REQUIRED and (use.strict or not use.insecure):
        raise ConfigError(
            f"client_ssl.verify_mode={context.verify_mode.name} trusts any server: set it to ssl.CERT_REQUIRED"
        )
    if tls.unnamed_replicas and not context.check_hostname and (use.strict or not use.insecure):
        raise ConfigError(
            "client_ssl.check_hostname=False with tls.unnamed_replicas=True leaves the identity of servers unchecked:"
            " leave one of them out"
        )


def _check_strength(name: str, context: ssl.SSLContext) -> None:
    if context.minimum_version < OLDEST:
        raise ConfigError(
            f"{name}.minimum_version={context.minimum_version.name} takes versions of TLS with known holes: set it to"
            " ssl.TLSVersion.TLSv1_2"
        )
    for suite in context.get_ciphers():
        known: Mapping[str, Any] = suite
        if known["auth"] == ANONYMOUS or known["strength_bits"] < WEAKEST_BITS:
            raise ConfigError(
                f"{name} takes the cipher suite {known['name']}, which works without a certificate or can be"
                f" broken: set_ciphers('HIGH:!aNULL:!eNULL')"
            )
