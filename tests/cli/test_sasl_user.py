from __future__ import annotations

import io
from pathlib import Path

import pytest

from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_users import load_users
from tests.cli.conftest import Command


def checked(path: Path, name: str, password: str) -> bool:
    config = SaslConfig(username="other", password="other", users_file=path)
    return load_users(config, 1, encrypted=True, insecure=False).is_password(name, password.encode())


@pytest.mark.parametrize("options", [[], ["--mechanism", "SCRAM-SHA-256"], ["--iterations", "5000"]])
def test_the_line_of_a_user_lets_it_in(kraftlib: Command, tmp_path: Path, options: list[str]) -> None:
    secret, users = tmp_path / "password", tmp_path / "users"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    result = kraftlib("sasl-user", "replica-1", "--password-file", str(secret), *options)
    users.write_text(result.out)
    users.chmod(0o600)

    assert result.status == 0
    assert "correct horse" not in result.out
    assert checked(users, "replica-1", "correct horse")
    assert not checked(users, "replica-1", "wrong horse")


def test_the_password_may_come_over_standard_input(
    kraftlib: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
    users = tmp_path / "users"
    users.write_text(kraftlib("sasl-user", "admin").out)
    users.chmod(0o600)
    assert checked(users, "admin", "correct horse")


@pytest.mark.parametrize(
    ("arguments", "password", "message"),
    [
        (["two words"], "x\n", "is no user name"),
        (["#comment"], "x\n", "is no user name"),
        (["x" * 256], "x\n", "is no user name"),
        (["one", "--iterations", "4095"], "x\n", "must be from 4096"),
        (["one"], "\n", "a password has 1 to 1024 bytes, and this one has 0"),
        (["one"], "x" * 1_025, "and this one has 1025"),
    ],
)
def test_what_is_no_user_is_refused(
    kraftlib: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str], password: str, message: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(password))
    result = kraftlib("sasl-user", *arguments)
    assert result.status == 2
    assert message in result.err
