"""Nodes on the keys of the machine, against ZooKeeper's rules in their plainest form."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from kazoo.exceptions import BadArgumentsError, BadVersionError, RolledBackError, RuntimeInconsistency
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData
from kazoo.security import OPEN_ACL_UNSAFE

from kraftlib.compat.kazoo.nodes import session_number
from kraftlib.compat.kazoo.tree import DATA_BYTES_MAX, FailedOperation, Tree, as_results
from kraftlib.recipes.session import Session
from tests.compat.kazoo.twin import Twin
from tests.recipes.world import Troubled

EPHEMERAL, SEQUENCE = 1, 2


def create(path: str, flags: int = 0, data: bytes = b"") -> Create:
    return Create(path, data, OPEN_ACL_UNSAFE, flags)


def any_operation(chance: random.Random) -> Any:
    names = ("a", "b", "ab")
    path = "".join("/" + chance.choice(names) for _ in range(chance.choice((1, 1, 2, 2, 3))))
    version = chance.choice((-1, -1, 0, 1))
    match chance.randrange(8):
        case 0 | 1 | 2 | 3:
            return create(path, chance.choice((0, 0, 0, EPHEMERAL, SEQUENCE, EPHEMERAL | SEQUENCE)), b"%d" % version)
        case 4:
            return SetData(chance.choice((path, "/")), b"set", version)
        case 5:
            return CheckVersion(path, version)
        case _:
            return Delete(chance.choice((path, path, path, "/")), version)


async def outcome(tree: Tree, operations: list[Any]) -> Any:
    try:
        results = await tree.commit(operations)
    except FailedOperation as failed:
        return failed.index, type(failed.error)
    return [getattr(result, "version", result) for result in results]


@pytest.mark.parametrize("seed", range(12))
async def test_it_does_what_zookeeper_does(seed: int) -> None:
    """Operations at random, alone and together, of two sessions, one of which ends now and then."""
    chance = random.Random(seed)
    async with Troubled(seed) as access:
        sessions = [await Session.open(access, ttl_ms=60_000) for _ in range(2)]
        twin = Twin()
        for _ in range(150):
            at = chance.randrange(2)
            operations = [any_operation(chance) for _ in range(chance.choice((1, 1, 1, 2, 4)))]
            expected = twin.commit(operations, sessions[at])
            assert await outcome(Tree(sessions[at]), operations) == expected, operations
            if chance.random() < 0.05:
                await sessions[at].close()
                twin.end(sessions[at])
                sessions[at] = await Session.open(access, ttl_ms=60_000)
            await same(Tree(sessions[at]), twin)
        for session in sessions:
            await session.close()


async def same(tree: Tree, twin: Twin) -> None:
    for path, expected in twin.nodes.items():
        _, node = await tree.read(path)
        assert node is not None, path
        stat = node.stat
        assert (node.record.data, sorted(node.children)) == (expected.data, twin.children(path))
        assert (stat.version, stat.cversion) == (expected.version, expected.created + expected.deleted)
        assert stat.ephemeralOwner == (session_number(expected.owner.opened) if expected.owner else 0)  # type: ignore[attr-defined]
        assert stat.czxid <= stat.mzxid or path == "/"
    assert (await tree.read("/nobody"))[1] is None


async def test_many_create_below_one_parent_and_none_has_to_try_again() -> None:
    async with Troubled() as access:
        session = await Session.open(access, ttl_ms=60_000)
        tree = Tree(session)
        await tree.commit([create("/q")])
        before = access.calls
        made = await asyncio.gather(*(tree.commit([create("/q/n-", SEQUENCE | EPHEMERAL)]) for _ in range(50)))
        assert sorted(path for (path,) in made) == [f"/q/n-{n:010}" for n in range(50)]
        assert access.calls - before == 50
        await session.close()


async def test_changes_of_one_node_at_the_same_time_all_count() -> None:
    async with Troubled(1) as access:
        session = await Session.open(access, ttl_ms=60_000)
        tree = Tree(session)
        await tree.commit([create("/n")])
        stats = await asyncio.gather(*(tree.commit([SetData("/n", b"", -1)]) for _ in range(20)))
        assert sorted(stat.version for (stat,) in stats) == list(range(1, 21))
        with pytest.raises(FailedOperation) as failed:
            await tree.commit([SetData("/n", b"", 19)])
        assert isinstance(failed.value.error, BadVersionError)
        await session.close()


async def test_a_node_is_not_deleted_while_a_child_is_created() -> None:
    """Whatever the order is, no node is left without its parent."""
    async with Troubled(2) as access:
        session = await Session.open(access, ttl_ms=60_000)
        tree = Tree(session)
        for _ in range(20):
            await tree.commit([create("/p")])
            child, parent = await asyncio.gather(
                outcome(tree, [create("/p/c")]), outcome(tree, [Delete("/p", -1)]), return_exceptions=False
            )
            assert (child == ["/p/c"]) != (parent == [True]), (child, parent)
            await outcome(tree, [Delete("/p/c", -1), Delete("/p", -1)])
            await outcome(tree, [Delete("/p", -1)])
        await session.close()


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (create("/a\0"), "does not allow"),
        (create("/" + "x" * 1_000), "longer than"),
        (create("/a", data=bytes(DATA_BYTES_MAX + 1)), "larger than"),
    ],
)
async def test_what_does_not_fit_is_refused_with_the_reason(operation: Any, says: str) -> None:
    async with Troubled() as access:
        session = await Session.open(access, ttl_ms=60_000)
        with pytest.raises(FailedOperation, match=says) as failed:
            await Tree(session).commit([operation])
        assert isinstance(failed.value.error, BadArgumentsError)
        assert await Tree(session).commit([create("/a", data=bytes(DATA_BYTES_MAX))]) == ["/a"]
        await session.close()


async def test_a_transaction_that_is_too_large_says_so() -> None:
    async with Troubled() as access:
        session = await Session.open(access, ttl_ms=60_000)
        with pytest.raises(BadArgumentsError, match="256 are the most"):
            await Tree(session).commit([create(f"/{n}") for n in range(65)])
        assert len(await Tree(session).commit([create(f"/{n}") for n in range(64)])) == 64
        await session.close()


def test_the_answer_to_a_failed_transaction_is_that_of_zookeeper() -> None:
    results = as_results(FailedOperation(1, BadVersionError()), 3)
    assert [type(result) for result in results] == [RolledBackError, BadVersionError, RuntimeInconsistency]
