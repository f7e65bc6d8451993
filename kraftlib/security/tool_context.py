"""TLS of clients that are no replicas: tools, and `kraftlib.connect`."""

from __future__ import annotations

import ssl
from typing import Any

from kraftlib.security.contexts import TlsConnection, TlsSocket, client_context
from kraftlib.security.identity import certificate_names, why_not
from kraftlib.security.tls import TlsConfig


def tool_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return a context whose handshake fails unless the server is a replica, of any cluster and id.

    Its certificate must name one; that of a client would do otherwise wherever the host name is not checked, or may be
    chosen. With `unnamed_replicas` a certificate without such a name does, and then the host name is always checked.
    Raises: ConfigError.
    """
    context = client_context(tls)

    def check(certificate: Any) -> None:
        reason = why_not(certificate_names(certificate), None, cluster_id=None, unnamed=tls.unnamed_replicas)
        if reason is not None:
            raise ssl.SSLCertVerificationError(1, f"this is no replica: {reason}")

    class CheckedConnection(TlsConnection):
        def do_handshake(self) -> None:
            super().do_handshake()
            check(self.getpeercert())

    class CheckedSocket(TlsSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            check(self.getpeercert())

    context.sslobject_class, context.sslsocket_class = CheckedConnection, CheckedSocket
    return context
