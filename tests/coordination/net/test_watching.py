"""Watches over real sockets and in a replica: nothing lost, nothing twice, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kraftlib.coordination.access import BEFORE_ALL, Change
from kraftlib.coordination.commands import decode, encode
from kraftlib.coordination.history import CHANGES_MAX
from kraftlib.coordination.messages import Answer, Do, Selector, Transact, Watched
from kraftlib.coordination.net.client import connect
from kraftlib.errors import ClosedError, ConfigError
from kraftlib.wire.bounds import QUESTION_BYTES
from tests.coordination.net.ways import EVERYTHING, Caller, Replicas, replicas
from tests.runtime.quorum import PATIENCE_S


def rows(change: Change) -> list[tuple[str, bytes]]:
    return [(row.name, bytes(row.value or b"")) for row in decode(Answer, change.data).rows]


async def collect(changes: AsyncIterator[Change], *, until_key: str) -> list[Change]:
    found = []
    async for change in changes:
        found.append(change)
        if any(key == until_key for key, _ in rows(change)):
            break
    return found


@pytest.mark.parametrize("way", ["client", "replica"])
async def test_a_watch_sees_every_change_once_through_changes_of_leader(way: str) -> None:
    async with replicas() as quorum, connect(quorum.servers) as access:
        caller = await Caller(access).begin()
        first = await caller.put("first", b"")
        watched: Any = access
        if way == "replica":
            watched = quorum.running[(await quorum.leader()).node_id % 3 + 1]
        watching = asyncio.create_task(collect(watched.watch(EVERYTHING, first.offset), until_key="last"))

        written: list[tuple[int, bytes]] = []
        changing = asyncio.create_task(_change_leaders(quorum, 8, kill=way == "client"))
        while not changing.done():
            # The record of the first attempt may be another than the one that is told: its value says which it was.
            await caller.put("key", b"%d" % len(written))
            written.append((len(written), b"%d" % len(written)))
        await changing
        await caller.put("last", b"")

        async with asyncio.timeout(PATIENCE_S):
            changes = await watching
        assert [value for change in changes for key, value in rows(change) if key == "key"] == [v for _, v in written]
        offsets = [change.offset for change in changes]
        assert offsets == sorted(set(offsets))
        assert not any(change.full for change in changes)


async def _change_leaders(quorum: Replicas, count: int, *, kill: bool) -> None:
    for number in range(count):
        await quorum.change_leader(kill=kill and number % 2 == 0)
        await asyncio.sleep(0.05)


async def test_a_watch_from_now_begins_behind_what_is_committed_and_one_from_the_start_at_the_first() -> None:
    async with replicas() as quorum, connect(quorum.servers) as access:
        caller = await Caller(access).begin()
        await caller.put("old", b"1")
        for watched in (access, *quorum.running.values()):
            new = asyncio.create_task(anext(aiter(watched.watch(EVERYTHING, None))))
            await asyncio.sleep(0.3)  # a watch begins when it is first asked, and nobody can tell when that was
            assert not new.done()
            await caller.put("new", b"2")
            assert rows(await new) == [("new", b"2")]
            assert rows(await anext(aiter(watched.watch(EVERYTHING, BEFORE_ALL)))) == [("old", b"1")]


async def test_many_watches_of_one_client_share_its_connection_and_see_their_own() -> None:
    async with replicas(1) as quorum, connect(quorum.servers) as access:
        caller = await Caller(access).begin()
        keys = [f"key/{number}" for number in range(50)]
        watches = [
            asyncio.create_task(anext(aiter(access.watch(encode(Selector(watched=Watched.KEY, name=key)), BEFORE_ALL))))
            for key in keys
        ]
        for key in reversed(keys):
            await caller.put(key, key.encode())
        async with asyncio.timeout(PATIENCE_S):
            assert [rows(change) for change in await asyncio.gather(*watches)] == [[(k, k.encode())] for k in keys]


async def test_a_slow_reader_keeps_no_more_than_one_answer_and_loses_nothing() -> None:
    async with replicas(1) as quorum, connect(quorum.servers) as access:
        caller = await Caller(access).begin()
        slow = aiter(access.watch(EVERYTHING, BEFORE_ALL))
        await caller.put("key", b"0")
        found = [rows(await anext(slow))[0][1]]
        for number in range(1, 3_000):
            await caller.put("key", b"%d" % number)
        found += [rows(await anext(slow))[0][1] for _ in range(2_999)]
        assert found == [b"%d" % number for number in range(3_000)]


async def test_where_history_is_gone_one_full_state_arrives_and_the_rest_follows() -> None:
    async with replicas(1) as quorum, connect(quorum.servers) as access:
        caller = await Caller(access).begin()
        many = tuple(Transact.Operation(do=Do.PUT, key=f"k{number % 10}", value=b"x") for number in range(250))
        for _ in range(CHANGES_MAX // 250 + 1):
            await caller.transact(Transact(then=many))
        for watched in (access, quorum.running[1]):
            changes = aiter(watched.watch(EVERYTHING, BEFORE_ALL))
            first = await anext(changes)
            assert first.full
            assert len(rows(first)) in (10, 11)
            done = await caller.put("next", b"")
            following = await anext(changes)
            assert (following.offset, following.full) == (done.offset, False)


async def test_a_wrong_selector_ends_its_watch_alone_and_a_closed_client_all() -> None:
    async with replicas(1) as quorum, connect(quorum.servers) as access:
        caller = await Caller(access).begin()
        right = aiter(access.watch(EVERYTHING, BEFORE_ALL))
        for watched in (access, quorum.running[1]):
            with pytest.raises(ConfigError, match="this is no selector"):
                await anext(aiter(watched.watch(b"garbage", BEFORE_ALL)))
        with pytest.raises(ConfigError, match="a selector of"):
            await anext(aiter(access.watch(bytes(QUESTION_BYTES + 1), BEFORE_ALL)))
        await caller.put("key", b"")
        assert rows(await anext(right)) == [("key", b"")]
        waiting = asyncio.create_task(anext(right))
        in_replica = asyncio.create_task(anext(aiter(quorum.running[1].watch(EVERYTHING, None))))
        await asyncio.sleep(0.1)
        await access.close()
        with pytest.raises(ClosedError):
            await waiting
        await quorum.running[1].close()
        with pytest.raises(ClosedError):
            await in_replica
        with pytest.raises(ClosedError):
            await anext(aiter(access.watch(EVERYTHING, None)))
