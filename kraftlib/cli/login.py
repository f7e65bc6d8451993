"""`--tls-...` and `--sasl-...`: TLS and password of commands that connect to a quorum.

Servers are known by their authority and the host that is named on the command line; one whose certificate names a
replica must be that replica where the command knows which one it dials.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kraftlib.errors import ConfigError
from kraftlib.security.sasl import MECHANISMS, SaslConfig
from kraftlib.security.tls import TlsConfig
from kraftlib.wire_client import Login


def add_login_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files of TLS, and user and password of SASL."""
    group = parser.add_argument_group("TLS", "PEM files, given together; without them the connection is in plaintext")
    group.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate of this command, as a client")
    group.add_argument("--tls-key", metavar="FILE", type=Path, help="key of this certificate")
    group.add_argument("--tls-ca", metavar="FILE", type=Path, help="authorities of the quorum")
    group = parser.add_argument_group("SASL", "user and password; without them there is no login")
    group.add_argument("--sasl-user", metavar="NAME", help="user to log in as")
    group.add_argument(
        "--sasl-password-file", metavar="FILE", type=Path, help="file with the password, or the secret of the quorum"
    )
    group.add_argument("--sasl-mechanism", choices=MECHANISMS, default=MECHANISMS[0], help="default: %(default)s")


def login_of(options: argparse.Namespace) -> Login | None:
    """Return TLS and password of the command line; None: neither. Raises: ConfigError, if one of a pair is missing."""
    tls, user, file = _tls_of(options), options.sasl_user, options.sasl_password_file
    if (user is None) != (file is None):
        raise ConfigError("--sasl-user and --sasl-password-file are given together")
    sasl = SaslConfig(username=user, password_file=file, mechanism=options.sasl_mechanism) if file else None
    return None if tls is None and sasl is None else Login(tls=tls, sasl=sasl)


def _tls_of(options: argparse.Namespace) -> TlsConfig | None:
    """Return the TLS of the command line; None: plaintext. Raises: ConfigError, if a file is missing."""
    cert, key, ca = options.tls_cert, options.tls_key, options.tls_ca
    if cert is key is ca is None:
        return None
    # Kafka's own controllers have certificates without the name of a replica.
    return TlsConfig(cert=cert, key=key, ca=ca, unnamed_replicas=True)
