"""`--tls-...` and `--sasl-...`: TLS and password of commands that connect to a quorum.

Servers are known by their authority and the host that is named on the command line; one whose certificate names a
replica must be that replica where the command knows which one it dials. Options that are not given may stand in the
environment (`kraftlib.environment`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kraftlib.environment import table_from_environment
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
    group.add_argument("--sasl-mechanism", choices=MECHANISMS, help=f"default: {MECHANISMS[0]}")


def login_of(options: argparse.Namespace) -> Login | None:
    """Return TLS and password of the command line and the environment (`kraftlib.environment`); None: neither.

    Raises: ConfigError, if one of those that are given together is missing.
    """
    tls, sasl = _tls_of(options), _sasl_of(options)
    return None if tls is None and sasl is None else Login(tls=tls, sasl=sasl)


def _tls_of(options: argparse.Namespace) -> TlsConfig | None:
    """Return the TLS of a command; None: plaintext. Raises: ConfigError, if a file is missing."""
    given = {"cert": options.tls_cert, "key": options.tls_key, "ca": options.tls_ca}
    table: dict[str, Any] = table_from_environment("tls", TlsConfig)
    table |= {name: path for name, path in given.items() if path is not None}
    if not table:
        return None
    # Kafka's own controllers have certificates without the name of a replica.
    return TlsConfig(**{**table, "unnamed_replicas": True})


def _sasl_of(options: argparse.Namespace) -> SaslConfig | None:
    """Return the password of a command; None: no login. Raises: ConfigError, if user or password is missing."""
    table: dict[str, Any] = table_from_environment("sasl", SaslConfig)
    user = options.sasl_user or table.get("username")
    # The secret of a quorum is the password of every user.
    file = options.sasl_password_file or table.get("password_file") or table.get("secret_file")
    password = table.get("password") if file is None else None
    if user is file is password is None:
        return None
    if user is None or file is password is None:
        raise ConfigError(
            "--sasl-user and --sasl-password-file are given together; or set KRAFTLIB_SASL_USERNAME and"
            " KRAFTLIB_SASL_PASSWORD_FILE in the environment"
        )
    mechanism = options.sasl_mechanism or table.get("mechanism") or MECHANISMS[0]
    return SaslConfig(username=user, password_file=file, password=password, mechanism=mechanism)
