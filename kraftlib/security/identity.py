"""Names in certificates, and the replicas that they stand for (security list, row 13).

A certificate of the right authority says that its holder belongs to the service, not which replica it is. One with
the URI

    kraft://CLUSTER-ID/NODE-ID

among its alternative names speaks for that replica, and for no other. All URIs count, so that a certificate may name
several; the subject never counts. The scheme is compared without case, as RFC 3986 (3.1) says. A certificate with
a URI of this scheme that cannot be read speaks for no replica at all, and one without any is that of a client. A
certificate without URIs has its whole subject as name, as Kafka has it: an authority that serves many people gives the
same common name to several of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kraftlib.types import UNIX, ReplicaId

SCHEME: Final = "kraft://"
CERTIFICATE: Final = "cert:"
"""Before the subject of a certificate without a URI."""
OTHER_KINDS: Final = ("User:", UNIX)
"""Before principals that no certificate has given."""

_NAME: Final = re.compile(r"(?i:kraft)://([A-Za-z0-9_.-]{1,255})/([0-9]{1,10})", re.ASCII)

_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The short names of the parts of a subject (RFC 2253)."""


class ReplicaName(NamedTuple):
    """The replica that a certificate names."""

    cluster_id: str
    replica_id: ReplicaId

    def __str__(self) -> str:
        return f"{SCHEME}{self.cluster_id}/{self.replica_id}"


def certificate_names(certificate: Any) -> tuple[str, ...]:
    """Return the names in a verified peer certificate: all its URIs, else its subject as `cert:CN=NAME,OU=...`.

    Without a subject it is `cert:DNS=HOST` for each host.

    `certificate` is what `ssl` makes of it, a dict; None or empty if there was none or it was not verified. A URI that
    looks like the principal of another kind of authentication is not taken for one.
    """
    if not certificate:
        return ()
    alternatives = certificate.get("subjectAltName", ())
    if uris := [str(value) for name, value in alternatives if name == "URI"]:
        others = tuple(kind.lower() for kind in (*OTHER_KINDS, CERTIFICATE))
        return tuple(CERTIFICATE + uri if uri.lower().startswith(others) else uri for uri in uris)
    if subject := subject_text(certificate.get("subject", ())):
        return (CERTIFICATE + subject,)
    return tuple(f"{CERTIFICATE}DNS={value}" for name, value in alternatives if name == "DNS") or (CERTIFICATE,)


def subject_text(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Write the subject of a certificate as RFC 2253 and Kafka do, the last part first: `CN=NAME,OU=...,C=DE`."""
    parts = ["+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part) for part in subject]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    return text[:-1] + "\\ " if len(text) > 1 and text.endswith(" ") else text


def replica_name(principal: str) -> ReplicaName | None:
    """Read a principal; None if it names no replica."""
    match = _NAME.fullmatch(principal)
    return None if match is None else ReplicaName(match[1], int(match[2]))


def is_replica_uri(principal: str) -> bool:
    """Whether a principal has the scheme of replicas, readable or not."""
    return principal[: len(SCHEME)].lower() == SCHEME


def of_certificate(principals: Iterable[str]) -> tuple[str, ...]:
    """Return those of a peer's principals that its certificate has given."""
    return tuple(name for name in principals if not name.startswith(OTHER_KINDS))


def why_not(
    principals: Iterable[str], replica_id: ReplicaId | None, *, cluster_id: str | None, unnamed: bool
) -> str | None:
    """Return why the holder of a certificate with these names is not that replica; None if it is.

    `replica_id` None: any replica. `cluster_id` None: of any cluster. `unnamed`: a certificate without a URI of a
    replica stands for every replica.
    """
    uris = [name for name in principals if is_replica_uri(name)]
    if not uris:
        return None if unnamed else "its certificate names no replica"
    names = [replica_name(uri) for uri in uris]
    if None in names:
        return f"its certificate names no replica: {uris[names.index(None)]!r} is not {SCHEME}CLUSTER-ID/NODE-ID"
    known = [name for name in names if name is not None and cluster_id in (None, name.cluster_id)]
    if not known:
        return (
            f"its certificate is of cluster {', '.join(sorted({n.cluster_id for n in names if n}))}, not {cluster_id}"
        )
    if replica_id is not None and replica_id not in {name.replica_id for name in known}:
        return f"its certificate is that of {', '.join(str(name.replica_id) for name in known)}"
    return None
