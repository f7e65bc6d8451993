"""The reading of a tree, through kazoo's interface."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib.compat.kazoo import KazooClient
from kraftlib.compat.kazoo.source import Source, SourceNode, read_source
from kraftlib.errors import ConfigError, TimedOutError
from tests.compat.kazoo_suite import Cluster


def test_kinds_of_nodes_are_told_by_their_owner() -> None:
    source = Source()
    for number, owner in enumerate((0, 0x0123456789ABCDEF, -(1 << 63), -(1 << 56) + 1_000, -(1 << 62))):
        source.note(f"/{number}", SourceNode(), owner)
    assert (list(source.nodes), source.ephemeral, source.special) == (["/0", "/2", "/3"], 2, 2)


def test_a_tree_is_read_through_a_client_of_kazoo() -> None:
    with Cluster(1) as cluster:
        client = KazooClient(hosts=cluster[0].address)
        client.start(timeout=30)
        try:
            client.ensure_path("/s/q")
            names = [client.create("/s/q/n-", b"1", sequence=True, ephemeral=number == 2) for number in range(4)]
            client.delete(names[0])
            client.set("/s", b"data")
            source = read_source(client, "/s")
            stats: Any = {path: client.get(path)[1] for path in source.nodes}
            assert sorted(source.nodes) == ["/s", "/s/q", names[1], names[3]]
            assert source.ephemeral == 1
            assert source.children()["/s/q"] == ["n-0000000001", "n-0000000003"]
            assert attrs.astuple(source.nodes["/s"]) == (b"data", 1, stats["/s"].ctime, stats["/s"].mtime, 1)
            assert source.nodes["/s/q"].creations == 4
            with pytest.raises(ConfigError, match="no node '/nothing'"):
                read_source(client, "/nothing")
        finally:
            client.stop()
            client.close()
    with pytest.raises(TimedOutError, match="does not answer"):
        read_source(client, "/s")
