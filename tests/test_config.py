"""kraftlib.config: what is wrong is said before anything is opened, with its value and the remedy."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ConfigError
from kraftlib.types import Endpoint


def test_a_node_id_is_all_that_must_be_given() -> None:
    config = RaftConfig(node_id=1)
    assert config.listen.host == "127.0.0.1", "loopback, unless asked otherwise"
    assert config.directory is None


def test_a_toml_file_fills_every_kind_of_field(tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text(
        """
        [kraftlib]
        node_id = 2
        directory = "data"
        voters = ["1@localhost:9091", "2@[::1]:9092"]
        bootstrap_servers = "localhost:9091,localhost:9092"
        listen = "127.0.0.1:0"
        advertised = "db.example:9092"
        insecure = true
        fetch_timeout_ms = 900
        file_mode = "0640"
        """
    )
    assert RaftConfig.from_toml(path) == RaftConfig(
        node_id=2,
        directory=tmp_path / "data",
        voters=(StaticVoter(1, Endpoint("localhost", 9091)), StaticVoter(2, Endpoint("::1", 9092))),
        bootstrap_servers=(Endpoint("localhost", 9091), Endpoint("localhost", 9092)),
        listen=Endpoint("127.0.0.1", 0),
        advertised=Endpoint("db.example", 9092),
        insecure=True,
        fetch_timeout_ms=900,
        file_mode=0o640,
    )


def test_fields_may_stand_at_the_top_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("node_id = 3")
    assert RaftConfig.from_toml(tmp_path / "c.toml") == RaftConfig(node_id=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node_id = ", "is no TOML"),
        ("kraftlib = 3", "must be a table"),
        ("", "node_id is missing"),
        ("node_id = 1\nfetch_timeout = 3", "unknown key 'fetch_timeout'; did you mean 'fetch_timeout_ms'\\?"),
        ("node_id = '1'", "node_id='1' must be of type int"),
        ("node_id = true", "node_id=True must be of type int"),
        ("node_id = -1", "node_id=-1 must be an integer from 0 to 2147483647"),
        ("node_id = 2147483648", "node_id=2147483648 must be an integer from 0 to 2147483647"),
        ("node_id = 1\ncluster_id = 3", "cluster_id=3 must be of type str"),
        ("node_id = 1\ndirectory = 3", "directory=3 must be a path"),
        ("node_id = 1\nlisten = 9092", "listen=9092 must be text"),
        ("node_id = 1\nlisten = ':0'", "':0' is no endpoint"),
        ("node_id = 1\nlisten = 'local host:0'", "'local host:0' is no endpoint"),
        ("node_id = 1\nadvertised = 'host:0'", "'host:0' is no endpoint"),
        ("node_id = 1\nvoters = 3", "voters=3 must be a list"),
        ("node_id = 1\nvoters = ['localhost:9092']", "is no voter: expected id@host:port"),
        ("node_id = 1\nvoters = ['1@0.0.0.0:9092']", "no replica can connect to 0.0.0.0"),
        ("node_id = 1\nvoters = ['1@a:1', '1@b:2']", "an id may stand there once only"),
        ("node_id = 1\nfetch_timeout_ms = 500", "fetch_max_wait_ms=500 must be below fetch_timeout_ms=500"),
        ("node_id = 1\nrequest_timeout_ms = 499", "request_timeout_ms=499 must not be below"),
        # Without these pauses a replica would stop itself, or ask and be refused as fast as the others answer.
        ("node_id = 1\nelection_timeout_ms = 0", "election_timeout_ms=0 must be an integer of at least 1"),
        ("node_id = 1\nretry_backoff_ms = 0", "retry_backoff_ms=0 must be an integer of at least 1"),
        ("node_id = 1\nfetch_max_wait_ms = 0", "fetch_max_wait_ms=0 must be an integer of at least 1"),
        (
            "node_id = 1\nfetch_max_wait_ms = 1\nfetch_timeout_ms = 1",
            "fetch_timeout_ms=1 must be an integer of at least 2",
        ),
        ("node_id = 1\nengine = 'fork'", "engine='fork' must be one of thread, inline"),
        ("node_id = 1\nfile_mode = 'rw'", "file_mode='rw' must be an integer"),
        ("node_id = 1\nunix_socket = '" + "a" * 107 + "'", "unix_socket: .*at most 107 fit: take a shorter one"),
        ("node_id = 1\nunix_socket_mode = '1777'", "unix_socket_mode='1777' must be an integer, or an octal mode"),
        ("node_id = 1\nunix_socket = 'unix:/run/1.sock'", "must be a path, without 'unix:' before it"),
        ("node_id = 1\ntls = 'cert.pem'", r"tls='cert.pem' must be a table \[tls\]"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        RaftConfig.from_toml(path)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*none\.toml: No such file"):
        RaftConfig.from_toml(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary\.toml is no TOML"):
        RaftConfig.from_toml(tmp_path / "binary.toml")


UNITS = {
    "bytes": {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3},
    "milliseconds": {"hour": 3_600_000, "hours": 3_600_000, "day": 86_400_000, "days": 86_400_000},
}


def told(text: str, unit: str) -> object:
    """Return the value of a default as the help writes it."""
    if match := re.fullmatch(r"([0-9]+) (\w+)", text):
        return int(match[1]) * UNITS[unit.removesuffix(" per second")][match[2]]
    if text == "empty":
        return ()
    if match := re.fullmatch(r"([0-9.]+):([0-9]+)", text):
        return Endpoint(match[1], int(match[2]))
    return ast.literal_eval(text)


def test_the_help_tells_each_option_with_its_unit_and_its_default_in_groups() -> None:
    help_text = inspect.getdoc(RaftConfig) or ""
    entries = re.findall(r"^(\w+) \((.+), (?:default (.+)|required)\)\n    \S", help_text, re.MULTILINE)

    fields = attrs.fields_dict(RaftConfig)
    assert [name for name, _, _ in entries] == list(fields)
    for name, unit, default in entries:
        assert (told(default, unit) if default else attrs.NOTHING) == fields[name].default, name
        for suffix, wanted in (("_ms", "milliseconds"), ("_bytes", "bytes"), ("_bytes_per_s", "bytes per second")):
            assert not name.endswith(suffix) or unit.startswith(wanted), name
    assert len(re.findall(r"^\*\*.+\*\*$", help_text, re.MULTILINE)) >= 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RaftConfig(node_id=1, fetch_timout_ms=3), "no option 'fetch_timout_ms'; did you mean 'fetch_timeout_"),
        (lambda: attrs.evolve(RaftConfig(node_id=1), listne="x"), "no option 'listne'; did you mean 'listen'"),
        (lambda: RaftConfig.from_mapping({"node_id": 1, "voter": ""}), "unknown key 'voter'; did you mean 'voters'"),
        (
            lambda: RaftConfig.from_mapping({"node_id": 1, "quux": 1}),
            "unknown key 'quux'; known are access, advertised, append",
        ),
    ],
)
def test_an_unknown_option_suggests_the_nearest(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text("\ufeffnode_id = 2\n", encoding="utf-8")
    assert RaftConfig.from_toml(path).node_id == 2


def test_a_path_with_a_null_character_is_named() -> None:
    with pytest.raises(ConfigError, match=r"directory='a\\x00b' must be a path"):
        RaftConfig.from_mapping({"node_id": 1, "directory": "a\0b"})
