"""kraftlib.security.tls: the table `[tls]`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError
from kraftlib.security.tls import TlsConfig


def test_paths_of_the_table_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text("node_id = 1\n[tls]\ncert = 'a.pem'\nkey = '/etc/a.key'\nca = 'ca.pem'\nunnamed_replicas = true")
    assert RaftConfig.from_toml(path).tls == TlsConfig(
        cert=tmp_path / "a.pem", key=Path("/etc/a.key"), ca=tmp_path / "ca.pem", unnamed_replicas=True
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cert = 'a.pem'", r"\[tls\]: key is missing: cert, key and ca are given together"),
        ("crl = 'a.crl'", r"\[tls\]: cert is missing"),
        ("cert = 3", r"\[tls\]: cert=3 must be a path"),
        ("certs = 'a'", r"\[tls\]: unknown key 'certs'; did you mean 'cert'"),
        ("unnamed_replicas = 1", r"\[tls\]: unnamed_replicas=1 must be of type bool"),
        ("unnamed_replicas = true\ncheck_hostname = false", "leaves the identity of servers unchecked"),
    ],
)
def test_a_wrong_table_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text(f"node_id = 1\n[tls]\n{text}")
    with pytest.raises(ConfigError, match=message):
        RaftConfig.from_toml(path)
