"""The `ssl.SSLContext` of each direction, built from the files of `[tls]`, and built anew when a file changes.

A context serves one handshake and is not looked at afterwards. So a renewed certificate takes the place of the old one
without a connection being lost: the next handshake uses it. When the authorities or the revocation lists have changed,
whom they exclude must go, and `trust` grows: connections that began under a smaller one are made anew.

New files must pass a handshake of this replica with itself before they are used. That shows in one go that certificate,
key, authority and revocation lists fit together, that the certificate is valid today and fit for both directions, and
what it names. Files that do not pass leave the old contexts in place.
"""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
import time
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import ConfigError
from kraftlib.security.identity import certificate_names, is_replica_uri, why_not
from kraftlib.security.tls import TlsConfig
from kraftlib.types import ReplicaId, is_host, socket_path

logger = logging.getLogger(__name__)

SECONDS_A_DAY: Final = 86_400
WARN_DAYS: Final = (0, 1, 7, 30)
"""A warning is logged once when the certificate of this replica is valid for fewer days than each of these."""
PASSWORD_MAX_BYTES: Final = 1_024

Signature = tuple[tuple[int, int, int] | None, ...]


@attrs.define
class Contexts:
    """The contexts that the next handshakes use; None: plaintext. An application's own ones never change."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    trust: int = 0
    """Grows when the authorities or the revocation lists have changed."""
    days_left: float | None = None
    """For how many days the certificate of this replica is valid; None if that is unknown."""

    def look(self) -> str | None:
        """Use changed files, if there are any; return why they cannot be used, or what is soon to end."""
        return None


@attrs.frozen(kw_only=True)
class Holder:
    """The replica that a certificate must name."""

    cluster_id: str | None
    node_id: ReplicaId
    is_voter: bool = True
    """An observer may do with a certificate that names no replica, where the others let it fetch."""
    replicas: frozenset[str] = frozenset()
    """The principals that may speak as any replica (`[access] replicas`)."""


@attrs.frozen(kw_only=True)
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

        It may come from a log that somebody else has written, or from a peer.
        """
        if is_host(host):
            return None
        path = socket_path(host)
        if path is None:
            return "no name or address of a host; UpdateRaftVoter with the right one corrects it"
        if os.path.dirname(path) in self.socket_directories:
            return None
        return "neither listen, unix_socket, voters nor bootstrap_servers name a socket in its directory"

    def complaint(self, certificate: Any, number: int) -> str | None:
        """Return why the server with this certificate is not the replica `number` (below 0: a replica of the cluster).

        `certificate` is what `ssl` makes of it; None or empty in plaintext, which is nobody's.
        """
        if not certificate:
            return None
        names = certificate_names(certificate)
        unnamed = self.unnamed or not self.replicas.isdisjoint(names)
        return why_not(names, number if number >= 0 else None, cluster_id=self.cluster_id, unnamed=unnamed)


@attrs.frozen
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


class FileContexts(Contexts):
    """Contexts from the files of `[tls]`. Raises: ConfigError, if they cannot be used."""

    def __init__(self, tls: TlsConfig, holder: Holder | None) -> None:
        super().__init__()
        self._tls: Final = tls
        self._holder: Final = holder
        self._seen = _signature(_files(tls))
        self._trusted = _contents(_authorities(tls))
        self._ends_at = 0.0
        self._warned: int | None = None
        self._use(*_built(tls, holder))

    def look(self) -> str | None:
        """Use changed files, if there are any; return why they cannot be used, or what is soon to end."""
        if (seen := _signature(_files(self._tls))) != self._seen:
            self._seen, trusted = seen, _contents(_authorities(self._tls))
            try:
                built = _built(self._tls, self._holder)
            except ConfigError as error:
                return f"the changed files of [tls] cannot be used, and the old ones stay in use: {error}"
            self.trust += trusted != self._trusted
            self._trusted = trusted
            self._use(*built)
            logger.info("the files of [tls] have changed and are in use; the certificate ends in %d days", self._days())
        return self._soon_to_end()

    def _use(self, server: ssl.SSLContext, client: ssl.SSLContext, certificate: dict[str, Any]) -> None:
        self.server, self.client = server, client
        self._ends_at = ends_at(certificate) or 0.0
        self._warned = None
        self._days()

    def _days(self) -> float:
        self.days_left = days = (self._ends_at - time.time()) / SECONDS_A_DAY
        return days

    def _soon_to_end(self) -> str | None:
        days = self._days()
        due = next((limit for limit in WARN_DAYS if days <= limit), None)
        if due is None or (self._warned is not None and due >= self._warned):
            return None
        self._warned = due
        word = f"ends in {days:.1f} days" if days > 0 else "has ended"
        return f"the certificate {self._tls.cert} of this replica {word}: put a new one in its place"


def ends_at(certificate: Any) -> float | None:
    """Return when a verified certificate (as `ssl` makes it) ends, in seconds since 1970; None if there is none."""
    text = (certificate or {}).get("notAfter")
    return None if text is None else float(ssl.cert_time_to_seconds(text))


def server_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return a context for accepting: every peer must have a certificate of `tls.ca`. Raises: ConfigError."""
    context = _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tls)
    # A resumed session would bring a certificate along that was verified long ago.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    return context


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return a context for connecting: every server must have a certificate of `tls.ca`. Raises: ConfigError."""
    context = _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), tls)
    context.check_hostname = tls.check_hostname
    return context


def _loaded(context: ssl.SSLContext, tls: TlsConfig) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    cert, key, ca = map(str, (tls.cert, tls.key, tls.ca))
    for name, file in (("cert", cert), ("key", key)):  # OpenSSL does not say which of the two is missing
        try:
            open(file, "rb").close()
        except OSError as error:
            raise ConfigError(
                f"{name}={file!r} cannot be read: {_text(error)}; name a PEM file that this user may read"
            ) from error
    try:
        context.load_cert_chain(cert, key, password=lambda: _password(tls))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cert={cert!r} and key={key!r} cannot be used: {_text(error)}; they must be PEM files that fit together"
        ) from error
    for name, path in (("ca", ca), ("crl", tls.crl)):
        if path is not None:
            try:
                context.load_verify_locations(path)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"{name}={str(path)!r} cannot be used: {_text(error)}; it must be a PEM file"
                ) from error
    if tls.crl is not None:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


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
        raise ConfigError(f"key_password_file={str(tls.key_password_file)!r} cannot be read: {_text(error)}") from error


def _built(tls: TlsConfig, holder: Holder | None) -> tuple[ssl.SSLContext, ssl.SSLContext, dict[str, Any]]:
    """Return contexts of both directions and our own certificate, all of it tried. Raises: ConfigError."""
    server, client, probe = server_context(tls), client_context(tls), client_context(tls)
    probe.check_hostname = False
    try:
        certificate = handshake_with_itself(server, probe)
    except ssl.SSLError as error:
        raise ConfigError(
            f"cert={str(tls.cert)!r} does not pass ca={str(tls.ca)!r}"
            f"{'' if tls.crl is None else f' and crl={str(tls.crl)!r}'}: {_text(error)}; take a certificate of this"
            " authority that is valid now, for servers and clients"
        ) from error
    if holder is not None:
        names = certificate_names(certificate)
        unnamed = tls.unnamed_replicas or not holder.is_voter or not holder.replicas.isdisjoint(names)
        reason = why_not(names, holder.node_id, cluster_id=holder.cluster_id, unnamed=unnamed)
        if reason is not None:
            raise ConfigError(
                f"cert={str(tls.cert)!r} is not for replica {holder.node_id}: {reason}; take one with the alternative"
                f" name URI:kraft://{holder.cluster_id or 'CLUSTER-ID'}/{holder.node_id}"
                + ("" if any(map(is_replica_uri, names)) else ", or set unnamed_replicas = true")
            )
    return server, client, certificate


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


def _files(tls: TlsConfig) -> tuple[Path | None, ...]:
    return (tls.cert, tls.key, tls.key_password_file, *_authorities(tls))


def _authorities(tls: TlsConfig) -> tuple[Path | None, ...]:
    return (tls.ca, tls.crl)


def _signature(paths: tuple[Path | None, ...]) -> Signature:
    """Return what changes when a file is written or another takes its place. Cheap enough for once a second."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = None if path is None else os.stat(path)
        except OSError:
            status = None
        found.append(None if status is None else (status.st_mtime_ns, status.st_ino, status.st_size))
    return tuple(found)


def _contents(paths: tuple[Path | None, ...]) -> tuple[bytes, ...]:
    """Return what tells the contents of files apart: tools that renew a certificate often write all files anew."""
    try:
        return tuple(b"" if path is None else hashlib.sha256(path.read_bytes()).digest() for path in paths)
    except OSError:
        return ()  # whoever reads them next will say so


def _text(error: Exception) -> str:
    """Return the reason of an error of `ssl` or of a file. It may hold a name of a peer, but never the key."""
    if isinstance(error, ssl.SSLError):
        return getattr(error, "verify_message", None) or error.reason or str(error)
    return getattr(error, "strerror", None) or str(error)
