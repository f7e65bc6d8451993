"""A certificate that all replicas of a bench share."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(home: Path, host: str) -> dict[str, str | int]:
    """Make a certificate for the IP `host` that is its own authority; return the settings of replicas that use it."""
    words = "openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 2 -subj /CN=bench -addext"
    cert, key = str(home.absolute() / "cert.pem"), str(home.absolute() / "key.pem")
    files = (f"subjectAltName=IP:{host}", "-keyout", key, "-out", cert)
    subprocess.run([*words.split(), *files], check=True, capture_output=True)
    return {"tls.cert": cert, "tls.key": key, "tls.ca": cert, "tls.unnamed_replicas": True}
