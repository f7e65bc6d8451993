"""Contexts from the files of `[tls]`, built anew when a file changes, and warnings of files that end soon.

New files must pass a handshake of this replica with itself before they are used. That shows in one go that certificate,
key, authority and revocation lists fit together, that the certificate is valid today and fit for both directions, and
which names it bears. Files that do not pass leave the old contexts in place, and are tried again: the fault may lie in
the clock, or in another file.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kraftlib.errors import ConfigError
from kraftlib.frozen import define, immutable
from kraftlib.security.contexts import (
    Contexts,
    Holder,
    client_context,
    error_text,
    handshake_with_itself,
    parts_of,
    server_context,
)
from kraftlib.security.identity import certificate_names, is_replica_uri, why_not
from kraftlib.security.pem import Part
from kraftlib.security.signature import signature
from kraftlib.security.tls import TlsConfig

logger = logging.getLogger(__name__)

SECONDS_A_DAY: Final = 86_400
WARN_DAYS: Final = 30
WARN_SHARE: Final = 3
"""A warning is due once less than this part of a lifetime is left, and less than `WARN_DAYS`."""
RETRY_S: Final = 10.0
"""Pause between attempts to use changed files that were refused."""


@immutable
class Ending:
    """A certificate or a revocation list, and its end in seconds since 1970."""

    what: str
    warn_at: float
    ends_at: float

    @property
    def days_left(self) -> float:
        """Return for how many days it is valid."""
        return (self.ends_at - time.time()) / SECONDS_A_DAY

    def is_soon(self) -> bool:
        """Whether it is time to renew it."""
        return time.time() >= self.warn_at

    def __str__(self) -> str:
        days = self.days_left
        word = f"ends in {days:.1f} days" if days > 0 else "has ended"
        return f"{self.what} {word}: put a new one in its place"


@define
class _Reminder:
    """Says one thing when it is new, and then once a day."""

    now: Callable[[], float]
    _subject: str | None = None
    _said_at: float = 0.0

    def is_due(self, subject: str) -> bool:
        now = self.now()
        if subject == self._subject and now - self._said_at < SECONDS_A_DAY:
            return False
        self._subject, self._said_at = subject, now
        return True

    def forget(self) -> None:
        self._subject = None


class FileContexts(Contexts):
    """Contexts from the files of `[tls]`. `now` is a monotonic clock in s. Raises: ConfigError."""

    def __init__(self, tls: TlsConfig, holder: Holder | None, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._tls: Final = tls
        self._holder: Final = holder
        self._now: Final = now
        self._refusal: Final = _Reminder(now)
        self._expiry: Final = _Reminder(now)
        self._retry_at: float | None = None
        self._seen = signature(_files(tls))
        self._trusted = _contents(_authorities(tls))
        self._use(_built(tls, holder))

    @property
    def first_to_end(self) -> Ending:
        """The ending that comes first: the certificate, one of its chain, an authority, or a revocation list."""
        return min(self._endings, key=lambda ending: ending.ends_at)

    @property
    def soon_to_end(self) -> list[Ending]:
        """Return the files that it is time to renew."""
        return [ending for ending in self._endings if ending.is_soon()]

    def look(self) -> str | None:
        """Use changed files, if there are any; return why they cannot be used, or which file ends soon."""
        return self._renew() or self._soon_to_end()

    def metrics(self) -> dict[str, float]:
        """Return the days for which the certificate, and the file that ends first, are valid, and whether new files are
        refused."""
        return {
            "certificate-days-left": self._endings[0].days_left,
            "tls-days-left": self.first_to_end.days_left,
            "tls-files-refused": int(self._retry_at is not None),
        }

    def _renew(self) -> str | None:
        seen = signature(_files(self._tls))
        if seen == self._seen and (self._retry_at is None or self._now() < self._retry_at):
            return None
        self._seen, trusted = seen, _contents(_authorities(self._tls))
        try:
            built = _built(self._tls, self._holder)
        except ConfigError as error:
            self._retry_at = self._now() + RETRY_S
            reason = f"the changed files of [tls] cannot be used, and the old ones stay in use: {error}"
            return reason if self._refusal.is_due(reason) else None
        self._retry_at = None
        self._refusal.forget()
        self._expiry.forget()
        self.trust += trusted != self._trusted
        self._trusted = trusted
        self._use(built)
        logger.info("the files of [tls] have changed and are in use; first to end: %s", self.first_to_end)
        return None

    def _use(self, built: _Built) -> None:
        self.server, self.client, self._endings = built.server, built.client, built.endings
        self.days_left = self._endings[0].days_left

    def _soon_to_end(self) -> str | None:
        self.days_left = self._endings[0].days_left
        soon = self.soon_to_end
        if not soon or not self._expiry.is_due("".join(ending.what for ending in soon)):
            return None
        return "; ".join(map(str, soon))


@immutable
class _Built:
    """Contexts of both directions, and the endings of their files, that of our own certificate first."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    endings: list[Ending]


def _built(tls: TlsConfig, holder: Holder | None) -> _Built:
    """Return contexts of both directions, all of it tried. Raises: ConfigError."""
    server, client, probe = server_context(tls), client_context(tls), client_context(tls)
    probe.check_hostname = False
    try:
        certificate = handshake_with_itself(server, probe)
    except ssl.SSLError as error:
        raise ConfigError(
            f"cert={str(tls.cert)!r} does not pass ca={str(tls.ca)!r}"
            f"{'' if tls.crl is None else f' and crl={str(tls.crl)!r}'}: {error_text(error)}; take a certificate of"
            " this authority that is valid now, for servers and clients"
        ) from error
    if holder is not None:
        _check_holder(tls, holder, certificate)
    return _Built(server, client, _endings(tls))


def _check_holder(tls: TlsConfig, holder: Holder, certificate: dict[str, Any]) -> None:
    names = certificate_names(certificate)
    unnamed = tls.unnamed_replicas or not holder.is_voter or not holder.replicas.isdisjoint(names)
    reason = why_not(names, holder.node_id, cluster_id=holder.cluster_id, unnamed=unnamed)
    if reason is not None:
        raise ConfigError(
            f"cert={str(tls.cert)!r} is not for replica {holder.node_id}: {reason}; take one with the alternative"
            f" name URI:kraft://{holder.cluster_id or 'CLUSTER-ID'}/{holder.node_id}"
            + ("" if any(map(is_replica_uri, names)) else ", or set unnamed_replicas = true")
        )


def _endings(tls: TlsConfig) -> list[Ending]:
    own, *chain = parts_of("cert", tls.cert)
    others = [
        *((f"a certificate of the chain in {tls.cert}", part) for part in chain),
        *((f"an authority of {tls.ca}", part) for part in parts_of("ca", tls.ca)),
        *((f"a revocation list of {tls.crl}", part) for part in parts_of("crl", tls.crl)),
    ]
    found = [_ending(what, part) for what, part in [(f"the certificate {tls.cert} of this replica", own), *others]]
    return [ending for ending in found if ending is not None]


def _ending(what: str, part: Part) -> Ending | None:
    if part.ends_at is None:
        return None
    reserve = min(WARN_DAYS * SECONDS_A_DAY, (part.ends_at - part.begins_at) / WARN_SHARE)
    return Ending(what, part.ends_at - reserve, part.ends_at)


def _files(tls: TlsConfig) -> tuple[Path | None, ...]:
    return (tls.cert, tls.key, tls.key_password_file, *_authorities(tls))


def _authorities(tls: TlsConfig) -> tuple[Path | None, ...]:
    return (tls.ca, tls.crl)


def _contents(paths: tuple[Path | None, ...]) -> tuple[bytes, ...]:
    """Return what tells the contents of files apart: tools that renew a certificate often write all files anew."""
    try:
        return tuple(b"" if path is None else hashlib.sha256(path.read_bytes()).digest() for path in paths)
    except OSError:
        return ()  # the next read of them says so
