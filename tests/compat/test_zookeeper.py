"""A ZooKeeper that is read. tests/interop/test_zookeeper.py and test_zookeeper_mode.py have a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.compat.zookeeper import reader
from kraftlib.errors import ConfigError, TimedOutError
from tests.migration.tree import source, write_files


def test_files_are_read_each_time(tmp_path: Path) -> None:
    write_files(source(), tmp_path / "data")
    with reader("", "/brokers", files=[str(tmp_path / "data")], timeout_ms=1) as read:
        first = read()
        assert "/brokers/topics/orders" in first.nodes
        assert "/feature" not in first.nodes
        assert read() == first


def test_a_server_that_is_not_there_and_a_file_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(TimedOutError, match=r"no server of ZooKeeper at 127\.0\.0\.1:2 within 300 ms"):
        reader("127.0.0.1:2", "/", timeout_ms=300).__enter__()
    with pytest.raises(ConfigError, match=r"--auth-file .*nobody"):
        reader("127.0.0.1:2", "/", auth_file=str(tmp_path / "nobody"), timeout_ms=300).__enter__()


@pytest.mark.parametrize("hosts", ["", "10.0.0.9:x", "[::1"])
def test_addresses_that_are_none_are_refused(hosts: str) -> None:
    with pytest.raises(ConfigError, match=r"must name the servers of ZooKeeper, HOST:PORT"):
        reader(hosts, "/", timeout_ms=300).__enter__()
