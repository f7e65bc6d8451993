"""`--tls-cert`, `--tls-key` and `--tls-ca`: the TLS of commands that connect to a quorum.

Servers are known by their authority and the host that is named on the command line; one whose certificate names a
replica must be that replica where the command knows which one it dials.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kraftlib.security.tls import TlsConfig


def add_tls_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files of TLS."""
    group = parser.add_argument_group("TLS", "PEM files, given together; without them the connection is in plaintext")
    group.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate of this command, as a client")
    group.add_argument("--tls-key", metavar="FILE", type=Path, help="key of this certificate")
    group.add_argument("--tls-ca", metavar="FILE", type=Path, help="authorities of the quorum")


def tls_of(options: argparse.Namespace) -> TlsConfig | None:
    """Return the TLS of the command line; None: plaintext. Raises: ConfigError, if a file is missing."""
    files = (options.tls_cert, options.tls_key, options.tls_ca)
    if files == (None, None, None):
        return None
    cert, key, ca = files
    # Kafka's own controllers have certificates without the name of a replica.
    return TlsConfig(cert=cert, key=key, ca=ca, unnamed_replicas=True)
