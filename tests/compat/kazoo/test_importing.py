"""Imports of trees, at random and unfit ones."""

from __future__ import annotations

import random

import pytest
from kazoo.protocol.serialization import Create
from kazoo.security import OPEN_ACL_UNSAFE

from kraftlib.compat.kazoo.importing import Importer, differences
from kraftlib.compat.kazoo.source import Source, SourceNode
from kraftlib.compat.kazoo.tree import DATA_BYTES_MAX, Tree
from kraftlib.errors import ConfigError
from kraftlib.recipes.session import Session
from tests.recipes.world import Troubled

EPHEMERAL, SEQUENCE = 1, 2


def any_node(chance: random.Random) -> SourceNode:
    return SourceNode(
        data=chance.choice((None, b"", b"1", bytes(DATA_BYTES_MAX // 3))),
        version=chance.randrange(3),
        ctime_ms=chance.randrange(1_700_000_000_000),
        mtime_ms=1,
        creations=chance.randrange(1_000),
    )


def any_source(chance: random.Random, top: str, size: int) -> Source:
    paths = [top]
    while len(paths) < size:
        paths.append(
            f"{chance.choice(paths).rstrip('/')}/{len(paths) if chance.random() < 0.5 else chance.choice('ab')}"
        )
    return Source(nodes={path: any_node(chance) for path in paths})


def changed(chance: random.Random, source: Source) -> Source:
    """Leave out some nodes with all below them, and change some."""
    gone = tuple(f"{path}/" for path in source.nodes if chance.random() < 0.1 and path.count("/") > 2)
    kept = {path: node for path, node in source.nodes.items() if not f"{path}/".startswith(gone or ("-",))}
    return Source(nodes={path: any_node(chance) if chance.random() < 0.2 else node for path, node in kept.items()})


@pytest.mark.parametrize("top", ["/", "/a", "/way/to/a"])
async def test_after_a_step_nothing_differs_and_sequence_numbers_go_on(top: str) -> None:
    chance = random.Random(top)
    async with Troubled(7) as access:
        session = await Session.open(access, ttl_ms=60_000)
        importer, tree = Importer(session, top), Tree(session)
        source = any_source(chance, top, 150)
        for _ in range(4):
            assert await importer.step(source)
            assert not await importer.step(source)
            assert not differences(source, await importer.target())
            path = chance.choice(list(source.nodes))
            (made,) = await tree.commit([Create(f"{path.rstrip('/')}/n-", b"", OPEN_ACL_UNSAFE, SEQUENCE | EPHEMERAL)])
            assert made.endswith(f"/n-{source.nodes[path].creations:010}")
            assert (await importer.step(source)).surplus == (made,), "sessions of the quorum do not stay in the way"
            source = changed(chance, source)
        await session.close()


async def test_what_the_quorum_has_already_is_replaced_only_if_asked() -> None:
    async with Troubled() as access:
        session = await Session.open(access, ttl_ms=60_000)
        await Tree(session).commit([Create("/a", b"other", OPEN_ACL_UNSAFE, 0)])
        source = Source(nodes={"/a": SourceNode(data=b"1"), "/a/b": SourceNode()})
        with pytest.raises(ConfigError, match=r"1 nodes already .* '/a'.*--replace"):
            await Importer(session, "/a").step(source)
        found = await Importer(session, "/a", replace=True).step(source)
        assert (found.missing, found.changed, found.surplus) == (("/a/b",), ("/a",), ())
        created = (await Tree(session).read("/a"))[1]
        assert created is not None
        assert created.stat.czxid < created.stat.mzxid, "it was created before"
        assert not await Importer(session, "/a").step(source)
        await session.close()


@pytest.mark.parametrize(
    ("path", "data", "says"),
    [("/a", bytes(DATA_BYTES_MAX + 1), "divide its value"), ("/a/" + "x" * 1_000, b"", "longer than")],
)
async def test_a_node_that_does_not_fit_is_named_before_anything_is_written(path: str, data: bytes, says: str) -> None:
    async with Troubled() as access:
        session = await Session.open(access, ttl_ms=60_000)
        importer = Importer(session, "/")
        source = Source(nodes={"/": SourceNode(), "/0": SourceNode(), path: SourceNode(data=data)})
        with pytest.raises(ConfigError, match=says):
            await importer.step(source)
        assert await importer.target() == {}
        await session.close()


async def test_nothing_is_copied_below_an_ephemeral_node() -> None:
    async with Troubled() as access:
        session = await Session.open(access, ttl_ms=60_000)
        await Tree(session).commit([Create("/a", b"", OPEN_ACL_UNSAFE, EPHEMERAL)])
        for top in ("/a/b", "/a/b/c"):
            with pytest.raises(ConfigError, match=r"ephemeral|NoChildrenForEphemerals"):
                await Importer(session, top).step(Source(nodes={top: SourceNode()}))
        await session.close()
