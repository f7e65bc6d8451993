"""TLS of a replica: the options of the table `[tls]`."""

from __future__ import annotations

from pathlib import Path

import attrs

from kraftlib.errors import ConfigError
from kraftlib.frozen import immutable
from kraftlib.validators import is_bool


@immutable(kw_only=True)
class TlsConfig:
    """Certificate, key and authority of a replica, for connections that it accepts and that it makes.

    The files are PEM. `cert`, `key` and `ca` are given together, or not at all by an application that hands contexts of
    its own to `RaftClient`; the other options apply to these, too. All certificates are verified, in both directions.
    """

    cert: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """The certificate chain of this replica, its own certificate first."""

    key: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """The private key of this certificate."""

    ca: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """The certificates of the authorities that issue the certificates of the quorum and its clients."""

    key_password_file: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """A file with the password of the key, in its first line. None: the key is not encrypted."""

    crl: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    """Certificate revocation lists, one for each authority that issues certificates of peers. None: none is checked."""

    check_hostname: bool = attrs.field(default=True, validator=is_bool)
    """Whether a server's certificate must name the host that was dialled, beside the replica that it names."""

    unnamed_replicas: bool = attrs.field(default=False, validator=is_bool)
    """Whether a certificate without a `kraft://` URI may speak as any replica. Kafka's own controllers have such
    certificates. Any certificate of `ca` then may do whatever a replica may."""

    def __attrs_post_init__(self) -> None:
        files = {"cert": self.cert, "key": self.key, "ca": self.ca}
        missing = [name for name, path in files.items() if path is None]
        if missing and (len(missing) < len(files) or self.key_password_file or self.crl):
            raise ConfigError(f"{missing[0]} is missing: cert, key and ca are given together")
        if self.unnamed_replicas and not self.check_hostname:
            raise ConfigError(
                "check_hostname=False with unnamed_replicas=True leaves the identity of servers unchecked: "
                "leave one of them out"
            )
