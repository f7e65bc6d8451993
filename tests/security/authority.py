"""An authority for tests: certificates for loopback with any names and dates, revocation lists, files of `[tls]`."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kraftlib.security.contexts import client_context, server_context
from kraftlib.security.tls import TlsConfig

DAY = datetime.timedelta(days=1)
UNKNOWN = x509.ObjectIdentifier("1.3.6.1.4.1.55555.1")
"""An extension that nobody knows; always critical."""


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@attrs.frozen
class Issued:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes
    serial: int


@attrs.define
class Authority:
    """Issues certificates. The files of each holder are in a directory of its own, below `directory`."""

    directory: Path
    key: ec.EllipticCurvePrivateKey = attrs.Factory(lambda: ec.generate_private_key(ec.SECP256R1()))
    name: str = "an authority"
    parent: Authority | None = None
    """The authority that has issued the certificate of this one; None: it is a root."""
    path_length: int | None = 0
    begins: datetime.timedelta = -DAY
    ends: datetime.timedelta = DAY
    certificate: x509.Certificate = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        signer, subject = self.parent or self, self._subject(self.name)
        self.certificate = (
            signer._builder(subject, self.key.public_key(), begins=self.begins, ends=self.ends)
            .add_extension(x509.BasicConstraints(ca=True, path_length=self.path_length), critical=True)
            .add_extension(usage, critical=True)
            .sign(signer.key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        *uris: str,
        common_name: str = "a replica",
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = DAY,
        host: str = "127.0.0.1",
        password: bytes | None = None,
        hosts: Sequence[str] | None = None,
        usages: Sequence[x509.ObjectIdentifier] = (),
        extensions: Sequence[x509.ExtensionType] = (),
        key: Any = None,
    ) -> Issued:
        """Return a certificate with these URIs that is valid from `begins` to `ends`, as of now.

        `hosts` are DNS names in place of the address `host`; `extensions` take the place of all names.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        places: list[Any] = (
            [x509.IPAddress(ipaddress.ip_address(host))] if hosts is None else [*map(x509.DNSName, hosts)]
        )
        names = [*places, *map(x509.UniformResourceIdentifier, uris)]
        builder = self._builder(self._subject(common_name), key.public_key(), begins=begins, ends=ends)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if not extensions and names:
            extensions = [x509.SubjectAlternativeName(names)]
        for extension in extensions:
            builder = builder.add_extension(extension, critical=extension.oid == UNKNOWN)
        certificate = builder.sign(self.key, hashes.SHA256())
        hidden: Any = serialization.NoEncryption()
        if password is not None:
            hidden = serialization.BestAvailableEncryption(password)
        return Issued(
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden),
            certificate.serial_number,
        )

    def revoke(
        self, *serials: int, begins: datetime.timedelta = -DAY, ends: datetime.timedelta = DAY, key: Any = None
    ) -> bytes:
        """Return the revocation list with these serial numbers, as PEM."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now() + min(begins, ends - DAY))
            .next_update(now() + ends)
        )
        for serial in serials:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now() - DAY).build()
            builder = builder.add_revoked_certificate(revoked)
        return builder.sign(key or self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def files(self, holder: str, issued: Issued, **settings: Any) -> TlsConfig:
        """Write the files of a holder; return the options that name them. `crl=` is written, too."""
        home = self.directory / holder
        home.mkdir(exist_ok=True)
        ca, crl = settings.pop("ca", self.pem), settings.pop("crl", None)
        parts = {"cert": issued.certificate, "key": issued.key, "ca": ca, "crl": crl}
        paths = {}
        for name, data in parts.items():
            if data is not None:
                paths[name] = home / f"{name}.pem"
                replace(paths[name], data)
        return TlsConfig(**paths, **settings)

    def contexts(self, *uris: str, trusted: Sequence[Authority] = (), **how: Any) -> dict[str, ssl.SSLContext]:
        """Return contexts of a holder of these URIs that trusts the authorities `trusted`, or else this one."""
        files = self.files(f"holder-{x509.random_serial_number()}", self.issue(*uris, **how))
        if trusted and files.ca is not None:
            files.ca.write_bytes(b"".join(each.pem for each in trusted))
        return {"server_ssl": server_context(files), "client_ssl": client_context(files)}

    def _subject(self, name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def _builder(
        self, subject: x509.Name, key: Any, *, begins: datetime.timedelta = -DAY, ends: datetime.timedelta = DAY
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now() + min(begins, ends - DAY))
            .not_valid_after(now() + ends)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )


def replace(path: Path, data: bytes) -> None:
    """Put a new file in the place of another, as tools that renew certificates do."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.replace(path)
