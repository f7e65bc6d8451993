"""ZooKeeper's watches: each tells once that a node, or its children, have changed after the state that was read.

A watch of kraftlib follows each node that is watched, from the offset of the read; so no change falls between the two.
All watches of a connection are asked for together, and anew with each that is added; so where many nodes are watched,
further connections take their share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final

import attrs
from kazoo.protocol.states import Callback, EventType, WatchedEvent

from kraftlib.compat.kazoo.nodes import Record, directory, is_creation, record_key
from kraftlib.compat.kazoo.trouble import Trouble
from kraftlib.coordination.access import Access, Change
from kraftlib.coordination.commands import decode, encode
from kraftlib.coordination.messages import Answer, Event, Selector, Watched
from kraftlib.coordination.net.client import ClientAccess
from kraftlib.errors import KraftError
from kraftlib.types import Offset

WATCHES_MAX: Final = 64
"""Of one connection."""

PAUSE_S: Final = 0.5
"""Before a watch that has failed is begun again for the first time."""


@attrs.frozen
class Place:
    """A node that is watched: its data, or its children."""

    path: str
    children: bool = False

    @property
    def selector(self) -> bytes:
        """Return what is to be followed."""
        if self.children:
            return encode(Selector(watched=Watched.PREFIX, name=directory(self.path)))
        return encode(Selector(watched=Watched.KEY, name=record_key(self.path)))

    def event(self, row: Answer.Row) -> str | None:
        """Return the kind of event that a change of a key is; None, if it is none for those who watch here."""
        name = row.name.removeprefix(directory(self.path))
        if row.event == Event.DELETED and not name:
            return str(EventType.DELETED)
        if self.children:
            return str(EventType.CHILD) if name not in ("", "/") else None
        return str(EventType.CREATED if is_creation(decode(Record, row.value or b"")) else EventType.CHANGED)


@attrs.define
class _Followed:
    read: dict[int, Offset] = attrs.Factory(dict)
    """The offset that each watcher has read at, by its id: kazoo's recipes drop watchers where kazoo keeps them, and
    these must not live on here."""
    exists: bool = False
    following: asyncio.Task[None] | None = None


class Watches:
    """The watches of one session. `client` is the KazooClient, `connect` makes a further connection."""

    def __init__(self, client: Any, access: Access, connect: Callable[[], ClientAccess]) -> None:
        self._client = client
        self._connect = connect
        self._stack = AsyncExitStack()
        self._accesses: list[Access] = [access]
        self._users: list[int] = [0]
        self._places: dict[Place, _Followed] = {}

    async def __aenter__(self) -> Watches:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = self.forget()
        if tasks:
            await asyncio.wait(tasks)
        await self._stack.aclose()

    def forget(self) -> Sequence[asyncio.Task[None]]:
        """Watch nothing any more. Return the tasks that end now."""
        tasks = [place.following for place in self._places.values() if place.following is not None]
        for task in tasks:
            task.cancel()
        self._places.clear()
        return tasks

    async def add(self, place: Place, watcher: Any, *, since: Offset, exists: bool) -> None:
        """Call `watcher` once, when the state after `since` is another one. `exists`: the node did then."""
        followed = self._places.setdefault(place, _Followed())
        followed.exists = exists
        kept = self._kept(place)[place.path]
        if watcher not in kept:
            kept.add(watcher)
            followed.read[id(watcher)] = since
        if followed.following is None:
            at = await self._free_access()
            self._users[at] += 1
            followed.following = asyncio.create_task(self._follow(place, followed, since, at))

    async def _free_access(self) -> int:
        for at, users in enumerate(self._users):
            if users < WATCHES_MAX:
                return at
        self._accesses.append(await self._stack.enter_async_context(self._connect()))
        self._users.append(0)
        return len(self._users) - 1

    def _kept(self, place: Place) -> Any:
        """Return where kazoo keeps watchers, by path. It tells them that the connection is lost."""
        return self._client._child_watchers if place.children else self._client._data_watchers

    async def _follow(self, place: Place, followed: _Followed, since: Offset, at: int) -> None:
        trouble = Trouble(self._client.logger, f"the watch of {place.path} is begun again", pause_s=PAUSE_S)
        try:
            while True:
                try:
                    async with aclosing(self._accesses[at].watch(place.selector, since)) as changes:  # type: ignore[type-var]
                        async for change in changes:
                            event = _event(place, change, since, exists=followed.exists)
                            if event is not None:
                                self._tell(place, followed, event, change.offset)
                            if not self._kept(place).get(place.path):
                                return
                            since = change.offset
                            trouble.is_over()
                except KraftError as error:
                    await trouble.pause(error)
        finally:
            self._users[at] -= 1
            if self._places.get(place) is followed:
                del self._places[place]

    def _tell(self, place: Place, followed: _Followed, event: str, offset: Offset) -> None:
        path = self._client.unchroot(place.path)
        kept = self._kept(place).get(place.path, set())
        for watcher in [watcher for watcher in kept if followed.read.get(id(watcher), offset) < offset]:
            kept.discard(watcher)
            del followed.read[id(watcher)]
            told = WatchedEvent(event, self._client.client_state, path)
            self._client.handler.dispatch_callback(Callback("watch", watcher, (told,)))
        if not kept:
            self._kept(place).pop(place.path, None)


def _event(place: Place, change: Change, since: Offset, *, exists: bool) -> str | None:
    """Return the first event of a change."""
    rows = decode(Answer, change.data).rows
    if not change.full:
        return next((event for event in map(place.event, rows) if event is not None), None)
    # The changes are gone, and this is what they led to.
    record = next((row for row in rows if row.name == record_key(place.path)), None)
    if record is None:
        return str(EventType.DELETED) if exists else None
    if place.children:
        return str(EventType.CHILD)
    return place.event(record) if record.revision > since else None
