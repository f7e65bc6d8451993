"""The state of a log that real replicas wrote boots as a replica: compacted, put down or restored, started, served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftlib.blocking import RaftClient
from kraftlib.config import RaftConfig
from kraftlib.metadata import TopicRecord, encode_record
from kraftlib.plain_values import parse_voters
from kraftlib.records.serde import BytesSerde
from kraftlib.runtime.listener import StateMachine
from kraftlib.storage.bootstrap import InitialController
from kraftlib.storage.directory import format_directory
from kraftlib.storage.meta_properties import read_meta_properties
from kraftlib.types import Endpoint, new_uuid
from tests.cli.conftest import Command
from tests.ports import free_port

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

EPOCHS = 4


class Values(StateMachine):
    """All values, in no order."""

    def __init__(self) -> None:
        self.values: set[bytes] = set()

    def apply(self, record: Any) -> None:
        self.values.add(bytes(record.value))

    def snapshot(self) -> list[bytes]:
        return sorted(self.values)

    def restore(self, values: Any) -> None:
        self.values = {bytes(value) for value in values}


@contextmanager
def replica(directory: Path, **settings: Any) -> Iterator[tuple[RaftClient[Any], Values]]:
    machine = Values()
    config = RaftConfig(node_id=1, directory=directory, **settings)
    with RaftClient(config, state_machine=machine, serde=BytesSerde()) as client:
        client.wait_for_leader(timeout_ms=20_000)
        client.read_barrier()
        yield client, machine


def topic(number: int) -> bytes:
    return encode_record(TopicRecord(name=f"t{number}", topic_id=new_uuid()), 0)


def write_history(directory: Path, **settings: Any) -> set[bytes]:
    """Write a log in several epochs, and return what it comes to."""
    for number in range(EPOCHS):
        with replica(directory, **settings) as (client, machine):
            client.append([topic(2 * number), topic(2 * number + 1)], wait="applied")
            if number == 1:
                client.create_snapshot()
    return machine.values


def compact(kraftlib: Command, source: Path, out: Path, *more: str) -> tuple[Path, int]:
    result = kraftlib("spark", "compact", "--local", "--metadata", source, out, "--output", "json", *more)
    assert result.status == 0, result.err
    told = json.loads(result.out)
    return Path(told["path"]), told["epoch"]


def check_serves(directory: Path, values: set[bytes], epoch: int, **settings: Any) -> None:
    """Check that the directory starts, has this state, and goes on, twice: what it makes itself starts, too."""
    values = set(values)
    for number in (100, 101):
        with replica(directory, **settings) as (client, machine):
            assert machine.values == values
            assert client.leader_and_epoch().epoch > epoch
            client.append([topic(number)], wait="applied")
            values = set(machine.values)
            assert len(values) == 2 * EPOCHS + number - 99


@pytest.fixture
def static(tmp_path: Path) -> tuple[Path, dict[str, Any], set[bytes]]:
    settings = {"voters": parse_voters(f"1@127.0.0.1:{free_port()}")}
    format_directory(tmp_path / "old", node_id=1, cluster_id="old", static_voters=[1])
    return tmp_path / "old", settings, write_history(tmp_path / "old", **settings)


@pytest.fixture
def dynamic(tmp_path: Path) -> tuple[Path, Endpoint, set[bytes]]:
    endpoint = Endpoint("127.0.0.1", free_port())
    format_directory(tmp_path / "old", node_id=1, cluster_id="old", standalone=endpoint)
    return tmp_path / "old", endpoint, write_history(tmp_path / "old", listen=endpoint)


@pytest.mark.parametrize(("options", "named"), [((), EPOCHS), (("--epoch", "0"), 0)], ids=["its own", "named"])
def test_a_static_log_compacted_into_a_fresh_directory_starts_in_the_epoch_of_its_checkpoint(
    kraftlib: Command,
    tmp_path: Path,
    static: tuple[Path, dict[str, Any], set[bytes]],
    options: tuple[str, ...],
    named: int,
) -> None:
    source, settings, values = static
    made = format_directory(tmp_path / "new", node_id=1, cluster_id="new", static_voters=[1])
    path, epoch = compact(kraftlib, source, made.partition, *options)
    assert epoch == named
    assert path.name.endswith(f"-{named:010}.checkpoint")
    check_serves(tmp_path / "new", values, epoch, **settings)


def test_a_static_log_becomes_a_dynamic_quorum_with_the_voters_that_are_named(
    kraftlib: Command, tmp_path: Path, static: tuple[Path, dict[str, Any], set[bytes]]
) -> None:
    source, _, values = static
    endpoint = Endpoint("127.0.0.1", free_port())
    made = format_directory(tmp_path / "new", node_id=1, cluster_id="new", standalone=endpoint)
    result = kraftlib("spark", "compact", "--local", "--metadata", source, made.partition)
    assert result.status == 1
    assert made.meta.directory_id is not None
    voters = str(InitialController(1, endpoint, made.meta.directory_id))
    assert f"voters={voters}" in result.err  # the remedy, to be pasted
    _, epoch = compact(kraftlib, source, made.partition, "--voters", voters)
    check_serves(tmp_path / "new", values, epoch, listen=endpoint)


def test_a_dynamic_log_keeps_its_version_and_voters(
    kraftlib: Command, tmp_path: Path, dynamic: tuple[Path, Endpoint, set[bytes]]
) -> None:
    source, endpoint, values = dynamic
    meta = read_meta_properties(source)
    assert meta is not None
    made = format_directory(
        tmp_path / "new", node_id=1, cluster_id="new", directory_id=meta.directory_id, no_initial_controllers=True
    )
    _, epoch = compact(kraftlib, source, made.partition)
    assert epoch == EPOCHS
    check_serves(tmp_path / "new", values, epoch, listen=endpoint)


@pytest.mark.parametrize("way", ["--voters", "--standalone"])
def test_a_checkpoint_is_restored_as_a_new_quorum(
    kraftlib: Command, tmp_path: Path, static: tuple[Path, dict[str, Any], set[bytes]], way: str
) -> None:
    source, _, values = static
    path, epoch = compact(kraftlib, source, tmp_path / "out" / "deeper")
    endpoint = Endpoint("127.0.0.1", free_port())
    named = f"1@{endpoint}" if way == "--voters" else str(endpoint)
    result = kraftlib("restore", path, tmp_path / "new", "--node-id", 1, "-t", "new", way, named)
    assert result.status == 0, result.err
    settings: dict[str, Any] = {"voters": parse_voters(named)} if way == "--voters" else {"listen": endpoint}
    check_serves(tmp_path / "new", values, epoch, **settings)
    assert kraftlib("verify-dir", tmp_path / "new", "--quiet").status == 0


def test_a_checkpoint_with_voters_is_restored_with_others(
    kraftlib: Command, tmp_path: Path, dynamic: tuple[Path, Endpoint, set[bytes]]
) -> None:
    source, _, values = dynamic
    path, epoch = compact(kraftlib, source, tmp_path / "out")
    new = Endpoint("127.0.0.1", free_port())
    refused = kraftlib("restore", path, tmp_path / "new", "--node-id", 1, "-t", "new", "--voters", f"1@{new}")
    assert "so those of the new cluster must, too" in refused.err
    assert kraftlib("restore", path, tmp_path / "new", "--node-id", 1, "-t", "new", "-s", new).status == 0
    check_serves(tmp_path / "new", values, epoch, listen=new)
