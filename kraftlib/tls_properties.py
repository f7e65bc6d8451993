"""Kafka's `ssl.*` keys of a controller listener, as options of `[tls]`.

| key, also with `listener.name.NAME.` before it | becomes |
|---|---|
| `ssl.keystore.location` of type PEM | `cert` and `key`: the file holds both |
| `ssl.truststore.location` of type PEM | `ca` |
| `ssl.client.auth` | nothing: a certificate is always required |

Kafka's controllers know each other by principals, not by `kraft://` URIs, so certificates without one may speak as any
replica. Stores that only a JVM reads, and passwords in the file, are errors with a remedy. Source: KIP-651 (PEM).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kraftlib.errors import ConfigError

PEM: Final = "PEM"
JVM_DEFAULT: Final = "JKS"
KEYS: Final = frozenset(
    "ssl.keystore.type ssl.keystore.location ssl.truststore.type ssl.truststore.location ssl.client.auth "
    "ssl.endpoint.identification.algorithm".split()
)
"""Keys that are read here."""
INLINE: Final = ("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.truststore.certificates")
PASSWORD: Final = "ssl.key.password"
UNNAMED: Final = (
    "certificates without a kraft:// URI may speak as any replica, as Kafka's do: let ssl.truststore.location trust an"
    " authority of replicas only"
)

MISSING: Final = (
    "missing for a listener with SSL: name a PEM file with certificate and key, and one with authorities in"
    " ssl.truststore.location, or give server_ssl= and client_ssl= to RaftClient, which does not start without either"
)


@attrs.define
class TlsProperties:
    """The table `[tls]` of a listener, and what must be said of its keys."""

    table: dict[str, object] = attrs.Factory(dict)
    words: dict[str, str] = attrs.Factory(dict)
    """By key."""
    read: set[str] = attrs.Factory(set)
    """The keys as they stand in the file."""


def tls_properties(properties: Mapping[str, str], listener: str) -> TlsProperties:
    """Return the TLS of the listener with this name. Without stores the table names no files: it is never plaintext.

    Raises: ConfigError for stores that are not PEM files, and for passwords in the file.
    """
    found = TlsProperties()
    keys = {key: _spelled(properties, key, listener) for key in (*KEYS, *INLINE, PASSWORD)}
    values = {key: properties[spelled].strip() for key, spelled in keys.items() if spelled is not None}
    if not any(key in values for key in ("ssl.keystore.location", "ssl.truststore.location", *INLINE)):
        found.table = {"unnamed_replicas": True}
        found.words["ssl.keystore.location"] = MISSING
        return found
    for key in INLINE:
        if key in values:
            raise ConfigError(f"{key}: write it into a PEM file, and name that in {_place(key)}, with type PEM")
    if PASSWORD in values:
        raise ConfigError(
            f"{PASSWORD}: kraftlib reads passwords from files only: use a TOML file with tls.key_password_file, or a"
            " key without a password"
        )
    store = _pem(values, "ssl.keystore")
    found.table = {"cert": store, "key": store, "ca": _pem(values, "ssl.truststore"), "unnamed_replicas": True}
    found.words["ssl.truststore.location"] = UNNAMED
    if values.get("ssl.endpoint.identification.algorithm", "https") == "":
        raise ConfigError(
            "ssl.endpoint.identification.algorithm is empty: nothing would say which server is reached; leave it out,"
            " or use a TOML file, certificates with kraft:// URIs and tls.check_hostname = false"
        )
    if values.get("ssl.client.auth", "required") != "required":
        found.words["ssl.client.auth"] = "kraftlib takes no peer without a certificate"
    found.read = {spelled for key, spelled in keys.items() if spelled is not None and key in KEYS}
    return found


def _spelled(properties: Mapping[str, str], key: str, listener: str) -> str | None:
    """Return the key as it stands in the file: that of the listener counts before the general one."""
    own = f"listener.name.{listener.lower()}.{key}"
    return own if own in properties else key if key in properties else None


def _place(key: str) -> str:
    return key.rpartition(".")[0].removesuffix(".certificate") + ".location"


def _pem(values: Mapping[str, str], store: str) -> str:
    kind = values.get(f"{store}.type", JVM_DEFAULT).upper()
    place = values.get(f"{store}.location", "")
    if not place:
        raise ConfigError(f"{store}.location is missing: name a PEM file")
    if kind != PEM:
        raise ConfigError(
            f"{store}.type={kind}: kraftlib reads PEM files only. Make one of {place} with `keytool -importkeystore"
            f" -srckeystore {place} -destkeystore store.p12 -deststoretype PKCS12` and `openssl pkcs12 -in store.p12"
            f" -nodes -out store.pem`, and set {store}.type=PEM"
        )
    return place
