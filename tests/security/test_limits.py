"""Limits are checked when they are made."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError
from kraftlib.security.limits import TcpLimits


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(TcpLimits)])
def test_a_limit_that_lets_nobody_in_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        TcpLimits(**{name: -1})


def test_the_limits_of_a_replica_are_a_table_of_its_configuration() -> None:
    config = RaftConfig.from_mapping({"node_id": 1, "limits": {"connections_max": 12, "idle_ms": 500}})
    assert config.limits == TcpLimits(connections_max=12, idle_ms=500)
    with pytest.raises(ConfigError, match=r"\[limits\]: unknown key 'conections_max'; .*connections_max"):
        RaftConfig.from_mapping({"node_id": 1, "limits": {"conections_max": 12}})


def test_the_limits_of_a_kafka_controller_are_taken_over() -> None:
    properties = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9091",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "max.connections": "300",
        "max.connections.per.ip": "100",
        "connections.max.idle.ms": "-1",
        "socket.request.max.bytes": "5000000",
    }
    words: list[str] = []
    config = RaftConfig.from_properties(properties, tell=words.append)
    assert config.limits == TcpLimits(connections_max=300, connections_per_address_max=100, idle_max_ms=2**31 - 1)
    assert config.frame_max_bytes == 5_000_000
    assert words == []
