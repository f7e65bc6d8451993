"""The way to the leader, from whoever is named. More of it is in `test_quorum`, where its answer is used."""

from __future__ import annotations

import argparse

import pytest

from kraftlib.cli.usage import servers_of
from kraftlib.errors import ConfigError
from kraftlib.find_leader import find_leader
from kraftlib.types import Endpoint
from kraftlib.wire_client import UnreachableError
from tests.cli.canned import captured, controller, from_table


def test_the_leader_is_its_own_answer() -> None:
    with controller(from_table(captured(9402))) as endpoint:
        assert find_leader([Endpoint("127.0.0.1", 1), endpoint, endpoint], timeout_s=10) == endpoint


def test_nobody_is_an_error_that_tells_what_each_said() -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1 cannot be reached"):
        find_leader([Endpoint("127.0.0.1", 1)], timeout_s=10)


def test_servers_are_read_from_the_command_line() -> None:
    options = argparse.Namespace(bootstrap="a:1,b:2,", timeout_ms=1)
    assert servers_of(options) == [Endpoint("a", 1), Endpoint("b", 2)]


@pytest.mark.parametrize(("bootstrap", "timeout_ms"), [("", 1), ("a:1", 0), (",", 5)])
def test_nobody_to_ask_and_no_time_are_refused(bootstrap: str, timeout_ms: int) -> None:
    with pytest.raises(ConfigError, match="--bootstrap"):
        servers_of(argparse.Namespace(bootstrap=bootstrap, timeout_ms=timeout_ms))
