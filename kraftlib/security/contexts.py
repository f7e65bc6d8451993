"""The `ssl.SSLContext` of each direction, built from the files of `[tls]`, and what must be true of a connection.

A context serves one handshake and is not looked at afterwards. So a renewed certificate takes the place of the old one
without a connection being lost: the next handshake uses it (`kraftlib.security.file_contexts`). When the authorities or
the revocation lists have changed, whom they exclude must go, and `trust` grows: connections that began under a smaller
one are made anew.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.frozen import define, immutable
from kraftlib.security.identity import certificate_names, why_not
from kraftlib.security.tls import TlsConfig
from kraftlib.types import ReplicaId, is_host, socket_path

if TYPE_CHECKING:
    from kraftlib.security.pem import Part

PASSWORD_MAX_BYTES: Final = 1_024


@define
class Contexts:
    """The contexts that the next handshakes use; None: plaintext. An application's own ones never change."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    trust: int = 0
    """Grows when the authorities or the revocation lists have changed."""
    days_left: float | None = None
    """The number of days for which the certificate of this replica is valid; None if that is unknown."""

    def look(self) -> str | None:
        """Use changed files, if there are any; return why they cannot be used, or which file ends soon."""
        return None

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the files by name; none without files."""
        return {}


@immutable(kw_only=True)
class Holder:
    """The replica that a certificate must name."""

    cluster_id: str | None
    node_id: ReplicaId
    is_voter: bool = True
    """An observer may do with a certificate that names no replica, where the others let it fetch."""
    replicas: frozenset[str] = frozenset()
    """The principals that may speak as any replica (`[access] replicas`)."""


@immutable(kw_only=True)
class Trust:
    """The contexts of a transport, and the servers that may be spoken to."""

    contexts: Contexts = attrs.Factory(Contexts)
    cluster_id: str | None = None
    """The cluster that a server's certificate must name; None: any."""
    unnamed: bool = False
    """Whether the certificate of a server need not name a replica."""
    replicas: frozenset[str] = frozenset()
    """The principals whose certificates need not (`[access] replicas`)."""
    socket_directories: frozenset[str] = frozenset()
    """The directories of the Unix sockets that may be dialled."""

    def undialled(self, host: str) -> str | None:
        """Return why nothing is dialled there; None for a host, or a socket in a directory that may be.

        It may come from a log that another program has written, or from a peer.
        """
        if is_host(host):
            return None
        path = socket_path(host)
        if path is None:
            return "no name or address of a host; UpdateRaftVoter with the right one corrects it"
        if os.path.dirname(path) in self.socket_directories:
            return None
        return "neither listen, unix_socket, voters, bootstrap_servers nor upstreams name a socket in its directory"

    def complaint(self, certificate: Any, replica_id: ReplicaId | None) -> str | None:
        """Return why the server with this certificate is not that replica (None: any replica of the cluster).

        `certificate` is what `ssl` makes of it; None or empty in plaintext, without a certificate.
        """
        if not certificate:
            return None
        names = certificate_names(certificate)
        unnamed = self.unnamed or not self.replicas.isdisjoint(names)
        return why_not(names, replica_id, cluster_id=self.cluster_id, unnamed=unnamed)


@immutable
class Validity:
    """The end of a connection: its certificate has one, and the authorities may change."""

    ends_at: float | None
    """When the certificate of the peer ends, in seconds since 1970."""
    trust: int
    """That of the contexts when it began."""

    def is_over(self, contexts: Contexts) -> str | None:
        """Return why the connection must end now."""
        if self.ends_at is not None and time.time() >= self.ends_at:
            return "its certificate has ended"
        if contexts.trust != self.trust:
            return "the authorities or the revocation lists have changed; it may connect anew"
        return None


def unverified(context: ssl.SSLContext | None, certificate: Any) -> str | None:
    """Return why a connection that this context has made must not be used; None if it may, or without TLS.

    Cipher suites without certificates (aNULL, PSK) get past CERT_REQUIRED.
    """
    if context is None or context.verify_mode is not ssl.CERT_REQUIRED or certificate:
        return None
    return "it has shown no certificate: the cipher suite asks for none"


def ends_at(certificate: Any) -> float | None:
    """Return when a verified certificate (as `ssl` makes it) ends, in seconds since 1970; None if there is none."""
    text = (certificate or {}).get("notAfter")
    return None if text is None else float(ssl.cert_time_to_seconds(text))


class TlsConnection(ssl.SSLObject):
    """One whose peer has a certificate that cannot be read fails as with any other bad one, not with a traceback."""

    def getpeercert(self, binary_form: bool = False) -> Any:
        """Return the certificate of the peer. Raises: ssl.SSLError for a name that is no UTF-8."""
        with _readable():
            return super().getpeercert(binary_form)


class TlsSocket(ssl.SSLSocket):
    """As `TlsConnection`, for code that waits."""

    def getpeercert(self, binary_form: bool = False) -> Any:
        """Return the certificate of the peer. Raises: ssl.SSLError for a name that is no UTF-8."""
        with _readable():
            return super().getpeercert(binary_form)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise ssl.SSLError(1, f"its certificate has a name that is no UTF-8: {error.object!r:.80}") from error


def server_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return a context for accepting: every peer must have a certificate of `tls.ca`. Raises: ConfigError."""
    context = _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tls)
    # A resumed session brings a certificate along that was verified long ago. TLS 1.2 can resume by session id all the
    # same, which `ssl` cannot switch off: connections look at their `Validity` when they are made.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    return context


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return a context for connecting: every server must have a certificate of `tls.ca`. Raises: ConfigError."""
    context = _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), tls)
    context.check_hostname = tls.check_hostname
    return context


def _loaded(context: ssl.SSLContext, tls: TlsConfig) -> ssl.SSLContext:
    if tls.cert is None:
        raise ConfigError("[tls] names no files: give tls.cert, tls.key and tls.ca, or leave [tls] out")
    context.sslobject_class, context.sslsocket_class = TlsConnection, TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    cert, key, ca = map(str, (tls.cert, tls.key, tls.ca))
    for name, file in (("cert", cert), ("key", key)):  # OpenSSL does not say which of the two is missing
        try:
            open(file, "rb").close()
        except OSError as error:
            raise ConfigError(
                f"{name}={file!r} cannot be read: {error_text(error)}; name a PEM file that this user may read"
            ) from error
    try:
        context.load_cert_chain(cert, key, password=lambda: _password(tls))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cert={cert!r} and key={key!r} cannot be used: {error_text(error)}; they must be PEM files that fit"
            " together"
        ) from error
    for name, path in (("ca", ca), ("crl", tls.crl)):
        if path is not None:
            try:
                context.load_verify_locations(path)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"{name}={str(path)!r} cannot be used: {error_text(error)}; it must be a PEM file"
                ) from error
    if tls.crl is not None:
        context.verify_flags |= (
            ssl.VERIFY_CRL_CHECK_CHAIN if lists_cover_authorities(tls) else ssl.VERIFY_CRL_CHECK_LEAF
        )
    return context


def lists_cover_authorities(tls: TlsConfig) -> bool:
    """Return whether `crl` has a list of each authority of `ca`, so that certificates of authorities are checked, too.

    OpenSSL checks all of a chain or its end, and all of it needs a list of each issuer. Raises: ConfigError.
    """
    lists = {part.name for part in parts_of("crl", tls.crl) if part.is_list}
    return all(part.name in lists for part in parts_of("ca", tls.ca) if not part.is_list)


def parts_of(name: str, path: Path | None) -> list[Part]:
    """Return the certificates and revocation lists of the file of an option. Raises: ConfigError."""
    from kraftlib.security.pem import parts  # most replicas have no files of TLS

    try:
        return [] if path is None else parts(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}={str(path)!r} cannot be used: {error_text(error)}; it must be a PEM file") from error


def _password(tls: TlsConfig) -> bytes:
    """Return the password of the key. Without one OpenSSL would ask at the terminal."""
    if tls.key_password_file is None:
        raise ConfigError(
            f"key={str(tls.key)!r} is encrypted: name key_password_file, or take a key without a password"
        )
    try:
        with tls.key_password_file.open("rb") as file:
            return file.read(PASSWORD_MAX_BYTES).partition(b"\n")[0].rstrip(b"\r")
    except OSError as error:
        raise ConfigError(
            f"key_password_file={str(tls.key_password_file)!r} cannot be read: {error_text(error)}"
        ) from error


def handshake_with_itself(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Let two contexts shake hands in memory; return the server's certificate. Raises: ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    connecting = client.wrap_bio(to_client, to_server)
    for _ in range(8):  # more than the flights of any version
        finished = True
        for side in (connecting, accepting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                finished = False
        if finished:
            return dict(connecting.getpeercert() or {})
    raise ssl.SSLError(1, "the handshake does not end")


def error_text(error: Exception) -> str:
    """Return the reason of an error of `ssl` or of a file. It may hold a name of a peer, but never the key."""
    if isinstance(error, ssl.SSLError):
        return getattr(error, "verify_message", None) or error.reason or str(error)
    return getattr(error, "strerror", None) or str(error)
