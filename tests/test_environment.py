"""Options of `[tls]` and `[sasl]` from the environment: one rule for what counts, and no variable without effect."""

from __future__ import annotations

import os
import re
from pathlib import Path

import attrs
import pytest

from kraftlib import RaftConfig
from kraftlib.cli.login import login_of
from kraftlib.environment import table_from_environment
from kraftlib.errors import ConfigError
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.tls import TlsConfig
from tests.cli.test_login import parsed

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "configuration.md"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("KRAFTLIB_"):
            monkeypatch.delenv(name)


def test_each_variable_of_the_page_is_an_option_and_each_option_but_tables_is_on_the_page() -> None:
    names = set(re.findall(r"`(KRAFTLIB_[A-Z_]+)`", PAGE.read_text(encoding="utf-8")))
    wanted = {f"KRAFTLIB_TLS_{each.upper()}" for each in attrs.fields_dict(TlsConfig)}
    wanted |= {f"KRAFTLIB_SASL_{each.upper()}" for each in attrs.fields_dict(SaslConfig)}
    assert names == wanted - {"KRAFTLIB_SASL_USERS", "KRAFTLIB_SASL_REPLICAS"}


def test_the_environment_counts_before_a_file_and_option_by_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = tmp_path / "replica.toml"
    toml.write_text('node_id = 1\n[tls]\ncert = "1.pem"\nkey = "1.key"\nca = "ca.pem"\n')
    monkeypatch.setenv("KRAFTLIB_TLS_KEY", "other.key")
    monkeypatch.setenv("KRAFTLIB_TLS_UNNAMED_REPLICAS", "True")
    monkeypatch.setenv("KRAFTLIB_SASL_SECRET_FILE", "/run/secret")
    monkeypatch.setenv("KRAFTLIB_SASL_ACCEPT", "SCRAM-SHA-256,SCRAM-SHA-512")
    monkeypatch.chdir(tmp_path.parent)
    config = RaftConfig.from_toml(toml)
    assert config.tls == TlsConfig(
        cert=tmp_path / "1.pem", key=tmp_path.parent / "other.key", ca=tmp_path / "ca.pem", unnamed_replicas=True
    )
    assert config.sasl == SaslConfig(secret_file=Path("/run/secret"), accept=("SCRAM-SHA-256", "SCRAM-SHA-512"))
    assert RaftConfig(node_id=1).tls is RaftConfig.from_mapping({"node_id": 1}).sasl is None


def test_the_environment_counts_before_kafkas_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {
        "process.roles": "controller",
        "node.id": "3",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "listener.security.protocol.map": "CONTROLLER:SSL",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9091",
        **{f"ssl.{store}.{key}": value for store in ("keystore", "truststore") for key, value in PEM.items()},
    }
    monkeypatch.setenv("KRAFTLIB_TLS_CRL", "/run/revoked.pem")
    tls = RaftConfig.from_properties(properties).tls
    assert tls is not None
    assert (tls.cert, tls.crl) == (Path("/stores/store.pem"), Path("/run/revoked.pem"))


PEM = {"type": "PEM", "location": "/stores/store.pem"}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("KRAFTLIB_TLS_CERTIFICATE", "1.pem", "KRAFTLIB_TLS_CERTIFICATE in the environment is no option .*_TLS_CERT,"),
        ("KRAFTLIB_SASL_USERS", "ann", "KRAFTLIB_SASL_USERS in the environment is no option"),
        (
            "KRAFTLIB_TLS_CHECK_HOSTNAME",
            "1",
            "KRAFTLIB_TLS_CHECK_HOSTNAME='1' in the environment must be true or false",
        ),
        ("KRAFTLIB_TLS_CERT", "", "KRAFTLIB_TLS_CERT in the environment is empty: give it a value, or unset it"),
        ("KRAFTLIB_ACCESS_ANONYMOUS", "nothing", "KRAFTLIB_ACCESS_ANONYMOUS in the environment has no effect: .* file"),
        ("KRAFTLIB_INSECURE", "false", "KRAFTLIB_INSECURE in the environment has no effect"),
        ("KRAFTLIB_TLS_CERT", "1.pem", r"key is missing: .* \(set in the environment: KRAFTLIB_TLS_CERT\)"),
        ("KRAFTLIB_SASL_MECHANISM", "PLAN", r"mechanism='PLAN' must be one of SCRAM.*KRAFTLIB_SASL_MECHANISM\)"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(
    name: str, value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "replica.toml").write_text("node_id = 1\n")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=said) as caught:
        RaftConfig.from_toml(tmp_path / "replica.toml")
    assert "\n" not in str(caught.value)


def test_a_variable_that_means_nothing_to_kraftlib_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "replica.toml").write_text("node_id = 1\n")
    monkeypatch.setenv("KRAFTLIB_SSL_CERT", "1.pem")
    assert RaftConfig.from_toml(tmp_path / "replica.toml").tls is None
    assert "KRAFTLIB_SSL_CERT in the environment has no effect" in caplog.text


def test_the_variable_of_the_form_is_not_taken_for_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "replica.toml").write_text("node_id = 1\n")
    monkeypatch.setenv("KRAFTLIB_PURE", "1")
    assert RaftConfig.from_toml(tmp_path / "replica.toml").node_id == 1
    assert caplog.text == ""


def test_a_command_takes_what_is_not_on_its_line_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CERT": "/env.pem", "KEY": "/env.key", "CA": "/ca.pem"}.items():
        monkeypatch.setenv(f"KRAFTLIB_TLS_{name}", value)
    monkeypatch.setenv("KRAFTLIB_SASL_SECRET_FILE", "/secret")
    with pytest.raises(ConfigError, match="KRAFTLIB_SASL_USERNAME"):
        login_of(parsed())
    login = login_of(parsed("--tls-cert", "ann.pem", "--tls-key", "ann.key", "--sasl-user", "ann"))
    assert login is not None
    assert login.tls == TlsConfig(cert="ann.pem", key="ann.key", ca="/ca.pem", unnamed_replicas=True)
    assert login.sasl == SaslConfig(username="ann", password_file="/secret")


def test_no_password_stands_in_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "replica.toml").write_text("node_id = 1\n[sasl]\nsecret_file = 'secret'\n")
    monkeypatch.setenv("KRAFTLIB_SASL_PASSWORD", "swordfish")
    with pytest.raises(ConfigError, match="secret_file and password given") as caught:
        RaftConfig.from_toml(tmp_path / "replica.toml")
    assert "swordfish" not in str(caught.value)
    assert table_from_environment("sasl", SaslConfig, {}) == {}
