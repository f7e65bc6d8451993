"""One-shot watches: each change after what was read is told once, also where its history is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kazoo.protocol.serialization import Create, Delete, SetData
from kazoo.security import OPEN_ACL_UNSAFE

from kraftlib.compat.kazoo import trouble, watches
from kraftlib.compat.kazoo.tree import Tree
from kraftlib.compat.kazoo.watches import WATCHES_MAX, Place, Watches
from kraftlib.coordination import history
from kraftlib.coordination.access import Change
from kraftlib.errors import ClosedError, ConfigError, RefusedError
from kraftlib.recipes.session import Session
from tests.recipes.world import Troubled


class Client:
    """What a watch needs of kazoo's client."""

    client_state = "CONNECTED"
    logger = logging.getLogger("test")

    def __init__(self) -> None:
        self._data_watchers: Any = defaultdict(set)
        self._child_watchers: Any = defaultdict(set)
        self.handler = self
        self.told: list[tuple[str, str]] = []

    def unchroot(self, path: str) -> str:
        return path

    def dispatch_callback(self, callback: Any) -> None:
        (event,) = callback.args
        callback.func(event)


class World:
    """A tree, its watches, and what they have told."""

    def __init__(self, access: Troubled, session: Session, watches: Watches, further: list[Any]) -> None:
        self.access = access
        self.further = further
        self.tree = Tree(session)
        self.watches = watches
        self.told: list[tuple[str, str, str]] = []

    async def watch(self, path: str, *, children: bool = False, name: str = "w") -> Any:
        offset, node = await self.tree.read(path)
        watcher = lambda event: self.told.append((name, event.type, event.path))  # noqa: E731
        await self.watches.add(Place(path, children), watcher, since=offset, exists=node is not None)
        return watcher

    async def do(self, *operations: Any) -> None:
        await self.tree.commit(operations)

    async def hears(self, *expected: tuple[str, str, str]) -> None:
        """Wait for what is expected, and then for what should not come."""
        async with asyncio.timeout(10):
            while len(self.told) < len(expected):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        for _ in range(20):
            await asyncio.sleep(0)
        assert sorted(self.told) == sorted(expected)
        self.told.clear()


@contextlib.asynccontextmanager
async def world(client: Client | None = None) -> AsyncIterator[World]:
    async with Troubled() as access:
        session = await Session.open(access, ttl_ms=60_000)
        made: list[Any] = []

        def further() -> Any:
            made.append(contextlib.nullcontext(access))
            return made[-1]

        async with Watches(client or Client(), access, further) as watches:
            yield World(access, session, watches, made)
        await session.close()


def create(path: str) -> Create:
    return Create(path, b"", OPEN_ACL_UNSAFE, 0)


async def test_each_change_is_told_once_to_those_that_watch_the_node_or_its_children() -> None:
    async with world() as w:
        await w.watch("/a", name="exists")
        await w.do(create("/a"))
        await w.hears(("exists", "CREATED", "/a"))

        await w.watch("/a", name="data")
        await w.watch("/a", children=True, name="children")
        await w.do(create("/a/b"))
        await w.hears(("children", "CHILD", "/a"))
        await w.do(SetData("/a", b"1", -1))
        await w.hears(("data", "CHANGED", "/a"))
        await w.do(SetData("/a", b"2", -1), SetData("/a/b", b"2", -1))
        await w.hears()

        await w.watch("/a/b", name="data")
        await w.watch("/a/b", children=True, name="children")
        await w.watch("/a", children=True, name="above")
        await w.do(Delete("/a/b", -1))
        await w.hears(("data", "DELETED", "/a/b"), ("children", "DELETED", "/a/b"), ("above", "CHILD", "/a"))


async def test_a_change_that_a_reader_has_seen_is_not_told_to_it() -> None:
    async with world() as w:
        await w.do(create("/a"))
        offset, _ = await w.tree.read("/a")
        await w.do(SetData("/a", b"1", -1))
        # The first has read before the change, and registers after another one that has read behind it.
        late = lambda event: w.told.append(("late", event.type, event.path))  # noqa: E731
        await w.watches.add(Place("/a"), late, since=offset, exists=True)
        await w.watch("/a", name="current")
        await w.hears(("late", "CHANGED", "/a"))
        await w.do(SetData("/a", b"2", -1))
        await w.hears(("current", "CHANGED", "/a"))


async def test_a_watch_that_fails_is_begun_again_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlib.compat.kazoo.watches.PAUSE_S", 0.0)
    async with world() as w:
        await w.do(create("/a"))
        whole, failures = w.access.watch, [ConfigError("the password file is not there"), ClosedError("closed")]

        async def watch(selector: bytes, since: int | None) -> AsyncIterator[Change]:
            if failures:
                raise failures.pop()
            async for change in whole(selector, since):
                yield change

        monkeypatch.setattr(w.access, "watch", watch)
        await w.watch("/a")
        await w.do(SetData("/a", b"1", -1))
        await w.hears(("w", "CHANGED", "/a"))


async def test_a_watch_that_fails_again_and_again_says_so_once_and_waits_ever_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paused: list[float] = []
    whole = asyncio.sleep

    async def sleep(delay: float) -> None:
        paused.append(delay)
        await whole(0)

    monkeypatch.setattr(trouble.asyncio, "sleep", sleep)
    async with world() as w:
        await w.do(create("/a"))

        async def watch(selector: bytes, since: int | None) -> AsyncIterator[Change]:
            raise RefusedError("not for you")
            yield

        w.access.watch = watch  # type: ignore[method-assign]
        await w.watch("/a")
        while paused.count(trouble.PAUSE_MAX_S) < 20:
            await whole(0)
    pauses = [pause for pause in paused if pause >= watches.PAUSE_S]
    assert pauses[:5] == [0.5, 1, 2, 4, 5]
    assert [record.getMessage() for record in caplog.records] == ["the watch of /a is begun again: not for you"]


async def test_where_the_history_is_gone_the_difference_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CHANGES_MAX", 8)
    async with world() as w:
        await w.do(create("/same"), create("/gone"), create("/changed"), create("/p"))
        read = {path: (await w.tree.read(path))[0] for path in ("/same", "/gone", "/changed", "/new", "/p", "/never")}
        await w.do(Delete("/gone", -1), SetData("/changed", b"1", -1), create("/new"), create("/p/c"))
        for _ in range(20):
            await w.do(SetData("/", b"", -1))
        for path, offset in read.items():
            of_children = path == "/p"
            tell = lambda event, path=path: w.told.append((path, event.type, event.path))  # noqa: E731
            await w.watches.add(Place(path, of_children), tell, since=offset, exists=path not in ("/new", "/never"))
        await w.hears(
            ("/gone", "DELETED", "/gone"),
            ("/changed", "CHANGED", "/changed"),
            ("/new", "CREATED", "/new"),
            ("/p", "CHILD", "/p"),
        )
        await w.do(SetData("/same", b"1", -1), create("/never"))
        await w.hears(("/same", "CHANGED", "/same"), ("/never", "CREATED", "/never"))


async def test_more_nodes_are_watched_than_one_connection_can() -> None:
    async with world() as w:
        paths = [f"/{n}" for n in range(WATCHES_MAX + 5)]
        for path in paths:
            await w.watch(path, name=path)
        assert len(w.further) == 1, "one more connection has the five that the first one cannot have"
        for path in paths:
            await w.do(create(path))
        await w.hears(*((path, "CREATED", path) for path in paths))


async def test_a_watcher_that_kazoo_has_dropped_hears_nothing() -> None:
    client = Client()
    async with world(client) as w:
        await w.do(create("/a"))
        watcher = await w.watch("/a")
        client._data_watchers["/a"].discard(watcher)
        await w.do(SetData("/a", b"1", -1))
        await w.hears()
        await w.watch("/a", name="again")
        await w.do(SetData("/a", b"2", -1))
        await w.hears(("again", "CHANGED", "/a"))
