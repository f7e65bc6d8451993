"""Nodes below a chroot; tests/migration/test_records.py reads all kinds of them, whole and damaged."""

from __future__ import annotations

import pytest

from kraftlib.compat.kazoo.source import SourceNode
from kraftlib.errors import ConfigError
from kraftlib.migration.nodes import Nodes
from tests.migration.tree import source


@pytest.mark.parametrize("top", ["", "/", "/kafka"])
def test_paths_begin_at_the_chroot(top: str) -> None:
    nodes = Nodes(source(top=top.rstrip("/")), top)
    assert nodes.children("/brokers/topics") == ["clicks.x", "orders"]
    assert nodes.children("/none") == []
    assert nodes.version("/brokers/topics/orders") == 4
    assert (nodes.is_empty("/brokers/ids"), nodes.is_empty("/none"), nodes.is_empty("/feature")) == (True, True, False)
    with nodes.reading("/feature") as found:
        assert found["features"] == {}


def test_only_sessions_below_a_path_count() -> None:
    found = source(top="/kafka")
    found.ephemeral_paths |= {"/kafka/brokers/ids/3", "/kafka/brokers/idsx/4", "/brokers/ids/5", "/kafka/controller"}
    assert Nodes(found, "/kafka").sessions("/brokers/ids") == ["3"]


def test_what_is_found_wrong_while_a_node_is_read_is_told_with_its_path_and_its_beginning() -> None:
    found = source()
    found.nodes["/feature"] = SourceNode(data=b'{"a": ' + b"1" * 200 + b"}")
    nodes = Nodes(found, "")
    wrong = pytest.raises(ConfigError, match=r"/feature is not as Kafka writes it: b'\{\"a\": 1{74}' \(KeyError")
    with wrong, nodes.reading("/feature") as read:
        assert read["features"]
    with pytest.raises(ZeroDivisionError), nodes.reading("/feature") as read:
        read["a"] //= 0


def test_progress_counts_nodes_that_are_read() -> None:
    told: list[int] = []
    nodes = Nodes(source(), "", told.append)
    for path in ("/feature", "/cluster/id"):
        with nodes.reading(path):
            pass
    assert told == [1, 1]
