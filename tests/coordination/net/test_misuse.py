"""`kraftlib.open` and `kraftlib.connect`, for tasks and for threads, refuse what they cannot work with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kraftlib
import kraftlib.blocking
from kraftlib.config import RaftConfig
from kraftlib.errors import ConfigError
from tests.coordination.test_arguments import refuses, refuses_threads
from tests.ports import free_ports

WAYS = pytest.mark.parametrize("faces", [kraftlib, kraftlib.blocking], ids=["tasks", "threads"])


def alone() -> RaftConfig:
    """The configuration of a replica that is the only voter."""
    port = free_ports(1)[0]
    return RaftConfig.from_mapping(
        {"node_id": 1, "cluster_id": "alone", "voters": f"1@127.0.0.1:{port}", "listen": f"127.0.0.1:{port}"}
    )


async def test_a_replica_and_its_client_refuse_what_no_access_takes() -> None:
    config = alone()
    async with kraftlib.open(config) as kraft, kraftlib.connect(str(config.listen)) as client:
        assert await kraft.counter("n").add() == 1
        end_offset = kraft.replica.log_end_offset()
        await refuses(kraft)
        await refuses(client)
        assert kraft.replica.log_end_offset() == end_offset


def test_a_replica_and_its_client_refuse_it_in_threads() -> None:
    config = alone()
    with kraftlib.blocking.open(config) as kraft, kraftlib.blocking.connect(str(config.listen)) as client:
        assert kraft.counter("n").add() == 1
        refuses_threads(kraft)
        refuses_threads(client)
        assert kraft.counter("n").value() == 1


@WAYS
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"owner": 5}, "owner=5 must be text"),
        ({"owner": None}, "owner=None"),
        ({"ttl_ms": "5"}, "ttl_ms='5'"),
        ({"ttl_ms": True}, "ttl_ms=True"),
        ({"ttl_ms": 1}, "ttl_ms=1 must be .* at least 100"),
        ({"timeout_ms": -1}, "timeout_ms=-1"),
        ({"timeout_ms": 1.5}, "timeout_ms=1.5"),
    ],
)
def test_what_cannot_be_opened_or_connected_is_refused(faces: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        faces.open(alone(), **options)
    with pytest.raises(ConfigError, match=said):
        faces.connect("127.0.0.1:1", **options)


@WAYS
@pytest.mark.parametrize("servers", [None, 5, b"127.0.0.1:1", {}, [5], ["127.0.0.1:1"], "nonsense"])
def test_servers_that_are_none_are_refused(faces: Any, servers: Any) -> None:
    with pytest.raises(ConfigError, match=r"servers=|nonsense"):
        faces.connect(servers)


@WAYS
@pytest.mark.parametrize("value", [{}, {"certificate": "x"}, "x", True])
def test_tables_in_place_of_configurations_are_refused(faces: Any, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"tls=.* must be a TlsConfig"):
        faces.connect("127.0.0.1:1", tls=value)
    with pytest.raises(ConfigError, match=r"sasl=.* must be a SaslConfig"):
        faces.connect("127.0.0.1:1", sasl=value)


@WAYS
@pytest.mark.parametrize("config", [5, None, b"replica.toml", {"node_id": 1}, Path, RaftConfig])
def test_configurations_that_are_none_are_refused(faces: Any, config: Any) -> None:
    with pytest.raises(ConfigError, match="config is"):
        faces.open(config)
