"""The forms that a file and a keyword may give options in, and what is said of another one."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError
from kraftlib.plain_values import StaticVoter, parse_voter, parse_voters
from kraftlib.types import Endpoint


def test_voters_are_written_as_kafka_writes_them() -> None:
    text = "1@localhost:9091,2@[::1]:9092,3@unix:/run/kraft/3.sock"
    assert ",".join(map(str, parse_voters(text))) == text
    assert parse_voters("") == ()
    assert parse_voter(" 7@h:1 ").id == 7


@pytest.mark.parametrize("value", [[2, 3], ["2", "3"], "2,3", "2, 3"])
def test_replicas_to_yield_to_are_numbers(value: object) -> None:
    assert RaftConfig.from_mapping({"node_id": 1, "yield_to": value}).yield_to == (2, 3)


@pytest.mark.parametrize("value", [[1, 2], "two", [True], 3, ["-1"]])
def test_whom_nobody_can_yield_to_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="yield_to"):
        RaftConfig.from_mapping({"node_id": 1, "yield_to": value})


def test_keywords_take_the_forms_of_a_file() -> None:
    config = RaftConfig(
        node_id=1,
        voters="1@localhost:9091,2@[::1]:9092",  # type: ignore[arg-type]
        listen="127.0.0.1:0",  # type: ignore[arg-type]
        bootstrap_servers=("localhost:9091",),  # type: ignore[arg-type]
        limits={"idle_ms": 5},  # type: ignore[arg-type]
    )
    assert config.voters == (StaticVoter(1, Endpoint("localhost", 9091)), StaticVoter(2, Endpoint("::1", 9092)))
    assert (config.listen, config.bootstrap_servers) == (Endpoint("127.0.0.1", 0), (Endpoint("localhost", 9091),))
    assert config.limits is not None
    assert config.limits.idle_ms == 5
    assert RaftConfig(node_id=1, voters=list(config.voters)).voters == config.voters  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"voters": "1"}, "'1' is no voter: expected id@host:port"),
        ({"voters": None}, "voters=None must be a list of text"),
        ({"voters": [Endpoint("a", 1)]}, "voters=.* must be a list of text"),
        ({"listen": 9091}, "listen=9091 must be text of the form host:port"),
        ({"listen": None}, "listen=None must be text of the form host:port"),
        ({"tls": Endpoint("a", 1)}, r"tls=.* must be a table \[tls\]"),
        ({"limits": {"idle": 5}}, "unknown key 'idle'; did you mean 'idle_ms'"),
    ],
)
def test_keywords_of_another_kind_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RaftConfig(node_id=1, **options)
