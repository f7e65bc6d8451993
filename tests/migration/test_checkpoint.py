"""The checkpoint of an import: a controller begins with it, and nothing is left of an import that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlib.compat.kazoo.source import Source, SourceNode
from kraftlib.config import RaftConfig
from kraftlib.controller import MetadataController
from kraftlib.errors import ConfigError
from kraftlib.migration.checkpoint import Imported, import_nodes
from kraftlib.offline.restoring import restore_backup
from kraftlib.storage.bootstrap import InitialController
from kraftlib.types import Endpoint, new_uuid, parse_uuid
from tests.migration.tree import CLICKS, ORDERS, source
from tests.ports import free_port


def imported(directory: Path, nodes: Source | None = None, again: Source | None = None) -> Imported:
    nodes = source() if nodes is None else nodes
    return import_nodes(nodes, "/", directory, read_again=lambda: nodes if again is None else again)


def test_what_was_imported_is_counted_as_it_is_read_again(tmp_path: Path) -> None:
    found = imported(tmp_path / "new")
    assert found.checkpoint.name == "00000000000000000019-0000000001.checkpoint"
    assert [path.name for path in (tmp_path / "new").iterdir()] == [found.checkpoint.name]
    assert (found.records["TopicRecord"], found.records["PartitionRecord"], sum(found.records.values())) == (2, 3, 19)
    assert found.brokers == [1, 2, 3]
    assert "no controller may have one of these ids" in str(found)
    assert "left out: /config/brokers/2" in str(found)
    assert json.loads(found.to_json())["records"] == dict(found.records)


async def test_a_controller_begins_with_it(tmp_path: Path) -> None:
    found = imported(tmp_path / "new")
    place = Endpoint("127.0.0.1", free_port())
    restore_backup(
        found.checkpoint, tmp_path / "1", node_id=101, cluster_id=found.cluster_id,
        controllers=[InitialController(101, place, new_uuid())],
    )  # fmt: skip
    config = RaftConfig(node_id=101, directory=tmp_path / "1", listen=place, bootstrap_servers=(place,))
    async with MetadataController(config) as controller:
        await controller.wait_until_active(timeout_ms=30_000)
        state = controller.state
        assert state.features.metadata_version == 21
        topic = state.topics.named("orders")
        assert topic is not None
        assert (topic.topic_id, topic.partition_count) == (parse_uuid(ORDERS), 2)
        assert [one.leader for one in state.topics.leaderless()] == [-1, -1, -1]
        assert state.keyed.next_producer_id == 2_000


def changes() -> Iterator[Any]:
    nodes = source()
    nodes.nodes["/config/clients/c3"] = SourceNode(data=b"{}")
    yield pytest.param(None, nodes, "changed while they were read", id="changed")
    yield pytest.param(source({"/feature": b"x"}), None, "not as Kafka writes it", id="damaged")
    yield pytest.param(Source(nodes={"/": SourceNode()}), None, "name Kafka's chroot", id="no Kafka")
    enormous = source({"/brokers/topics/clicks.x": {"partitions": {"0": [1 << 40]}, "topic_id": CLICKS}})
    yield pytest.param(enormous, None, str(1 << 40), id="a number that no record holds")


@pytest.mark.parametrize(("nodes", "again", "reason"), list(changes()))
def test_nothing_is_left_of_an_import_that_fails(
    tmp_path: Path, nodes: Source | None, again: Source | None, reason: str
) -> None:
    with pytest.raises(Exception, match=reason):
        imported(tmp_path / "new", nodes, again)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_directory_that_has_a_checkpoint_is_not_taken(tmp_path: Path) -> None:
    first = imported(tmp_path)
    with pytest.raises(ConfigError, match="has a checkpoint already"):
        imported(tmp_path)
    assert list(tmp_path.iterdir()) == [first.checkpoint]
