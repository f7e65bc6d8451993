"""Commands that connect do so over TLS and with a password when they are told to."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

import pytest

from kraftlib import RaftClient, RaftConfig
from kraftlib.cli import main
from kraftlib.cli.login import add_login_arguments, login_of
from kraftlib.config import StaticVoter
from kraftlib.errors import ConfigError
from kraftlib.security.access import AccessConfig
from kraftlib.security.sasl import SaslConfig
from kraftlib.types import Endpoint
from tests.ports import free_port
from tests.security.authority import Authority


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_login_arguments(parser)
    return parser.parse_args(arguments)


def test_the_files_are_given_together_or_not_at_all() -> None:
    assert login_of(parsed()) is None
    with pytest.raises(ConfigError, match="ca is missing: cert, key and ca are given together"):
        login_of(parsed("--tls-cert", "a.pem", "--tls-key", "a.key"))


@pytest.mark.parametrize("command", ["status", "backup"])
async def test_a_quorum_with_tls_is_asked_with_the_files_and_not_without(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    voter = StaticVoter(1, Endpoint("127.0.0.1", free_port()))
    tls = authority.files("1", authority.issue("kraft://blue/1"))
    mine = authority.files("operator", authority.issue(common_name="an operator"))
    words = ["quorum", "status"] if command == "status" else ["backup", str(tmp_path / "backup")]
    words += ["--bootstrap", str(voter.endpoint), "--output", "json", "--timeout-ms", "3000"]
    files = ["--tls-cert", str(mine.cert), "--tls-key", str(mine.key), "--tls-ca", str(mine.ca)]
    access = AccessConfig(observers=("cert:CN=an operator",))
    config = RaftConfig(node_id=1, voters=(voter,), cluster_id="blue", tls=tls, access=access)
    async with RaftClient(config) as client:
        await client.wait_for_leader()
        await client.append_one(b"x")

        assert await asyncio.to_thread(main, words) == 1
        assert "no leader found" in capsys.readouterr().err
        assert await asyncio.to_thread(main, [*words, *files]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer.get("leader_id", 1) == 1


def test_user_and_password_are_given_together() -> None:
    with pytest.raises(ConfigError, match="--sasl-user and --sasl-password-file are given together"):
        login_of(parsed("--sasl-user", "ann"))


@pytest.mark.parametrize("command", ["status", "backup"])
async def test_a_quorum_with_a_secret_is_asked_with_it_and_not_without(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, wrong = tmp_path / "secret", tmp_path / "wrong"
    for path, text in ((secret, "correct horse battery"), (wrong, "another horse battery")):
        path.write_text(text)
        path.chmod(0o600)
    voter = StaticVoter(1, Endpoint("127.0.0.1", free_port()))
    words = ["quorum", "status"] if command == "status" else ["backup", str(tmp_path / "backup")]
    words += ["--bootstrap", str(voter.endpoint), "--output", "json", "--timeout-ms", "3000"]
    config = RaftConfig(
        node_id=1,
        voters=(voter,),
        cluster_id="blue",
        sasl=SaslConfig(secret_file=secret),
        access=AccessConfig(observers=("User:ann",)),
    )
    async with RaftClient(config) as client:
        await client.wait_for_leader()
        await client.append_one(b"x")

        for login in ([], ["--sasl-user", "ann", "--sasl-password-file", str(wrong)]):
            assert await asyncio.to_thread(main, [*words, *login]) == 1
            assert "no leader found" in capsys.readouterr().err
        login = ["--sasl-user", "ann", "--sasl-password-file", str(secret)]
        assert await asyncio.to_thread(main, [*words, *login]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer.get("leader_id", 1) == 1


async def test_an_archive_follows_a_quorum_with_a_secret(tmp_path: Path) -> None:
    """In a process of its own, since it takes the signals."""
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery")
    secret.chmod(0o600)
    voter = StaticVoter(1, Endpoint("127.0.0.1", free_port()))
    sasl, access = SaslConfig(secret_file=secret), AccessConfig(observers=("User:ann",))
    config = RaftConfig(node_id=1, voters=(voter,), cluster_id="blue", sasl=sasl, access=access)
    words = [
        "archive",
        "follow",
        "--once",
        "--bootstrap",
        str(voter.endpoint),
        "--directory",
        str(tmp_path / "archive"),
    ]
    login = ["--sasl-user", "ann", "--sasl-password-file", str(secret)]
    async with RaftClient(config) as client:
        await client.wait_for_leader()
        await client.append_one(b"x")
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "kraftlib.cli", *words, *login)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    assert list((tmp_path / "archive").rglob("*.log"))
