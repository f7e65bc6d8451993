"""ReplicatedMap: text keys with bytes, revisions, transactions and watches.

    first = await settings.put("ui/color", b"blue")
    await settings.compare_and_set("ui/color", expect=first, value=b"green")
    async for change in settings.watch(prefix="ui/", since=first): ...

A revision is the offset of the record that wrote the key. Reads are linearizable, unless asked for with less.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final

import attrs

from kraftlib.coordination.access import LINEARIZABLE, STALE, Consistency
from kraftlib.coordination.messages import (
    NONE,
    Answer,
    Ask,
    Do,
    Event,
    Question,
    Result,
    Selector,
    Transact,
    Watched,
)
from kraftlib.coordination.questions import question_of
from kraftlib.errors import ConfigError
from kraftlib.recipes.pages import PAGE, all_rows, whole_state
from kraftlib.recipes.sessions import SharedSession, scope
from kraftlib.recipes.terms import Term
from kraftlib.types import Offset

ABSENT: Final = NONE
"""The revision of a key that does not exist: `compare_and_set(key, expect=ABSENT, value=...)` creates it."""


@attrs.frozen
class Entry:
    """A key and its value."""

    key: str
    value: bytes
    revision: Offset
    ephemeral: bool = False
    ttl_ms: int = 0


@attrs.frozen
class Put:
    """In a transaction: write a key."""

    key: str
    value: bytes
    ttl_ms: int = 0
    ephemeral: bool = False


@attrs.frozen
class Delete:
    """In a transaction: delete a key."""

    key: str


@attrs.frozen
class Get:
    """In a transaction: read a key."""

    key: str


@attrs.frozen
class Is:
    """A condition: the key has this value."""

    key: str
    value: bytes


@attrs.frozen
class At:
    """A condition: the key has this revision; `ABSENT`: it does not exist."""

    key: str
    revision: Offset


@attrs.frozen
class Outcome:
    """The outcome of a transaction: whether its conditions held, its offset, and what each `Get` has read, by key."""

    succeeded: bool
    offset: Offset
    read: dict[str, Entry]


@attrs.frozen
class MapChange:
    """A key was written; or deleted, or has expired, where `value` is None."""

    offset: Offset
    key: str
    value: bytes | None


@attrs.frozen
class MapState:
    """All entries that were asked for, as of `offset`. A watch yields it where the changes before it are gone."""

    offset: Offset
    entries: dict[str, Entry]


class ReplicatedMap:
    """A map of one name. Keys are text of at most a thousand bytes, values bytes of less than a million."""

    def __init__(self, sessions: SharedSession, name: str) -> None:
        self.name = name
        self._sessions = sessions
        self._scope = scope("map", name)

    # --- reads -------------------------------------------------------------------------------------------------------

    async def get(self, key: str, *, consistency: Consistency = LINEARIZABLE) -> Entry | None:
        """Return the entry of a key."""
        _, answer = await self._ask(Question(ask=Ask.KEYS, name=self._scope + key), consistency)
        return self._entry(answer.rows[0]) if answer.rows else None

    async def peek(self, key: str) -> tuple[Entry | None, Offset]:
        """Return the entry as the replica that is asked has it, and the offset of its last record. No round trip."""
        offset, answer = await self._ask(Question(ask=Ask.KEYS, name=self._scope + key), STALE)
        return (self._entry(answer.rows[0]) if answer.rows else None), offset

    async def range(
        self, prefix: str = "", *, after: str = "", most: int = PAGE, consistency: Consistency = LINEARIZABLE
    ) -> list[Entry]:
        """Return the entries whose keys begin with `prefix`, in order: `most` of those that sort after `after`."""
        question = Question(
            ask=Ask.KEYS, name=self._scope + prefix, prefix=True, after=after and self._scope + after, most=most
        )
        _, answer = await self._ask(question, consistency)
        return [self._entry(row) for row in answer.rows]

    async def state(self, prefix: str = "") -> MapState:
        """Return all entries whose keys begin with `prefix`, however many, as of one offset; linearizable.

        `watch(prefix=prefix, since=state.offset)` goes on from there: together they keep a copy of the map.
        """
        session = await self._sessions.get()
        selector = Selector(watched=Watched.PREFIX, name=self._scope + prefix)
        offset, answer = await session.ask(question_of(selector))
        rows: Sequence[Answer.Row] = answer.rows
        if answer.more:
            offset, rows = await whole_state(session.ask, selector, offset, rows)
        return self._state(offset, rows)

    async def history(self, key: str, *, since: Offset = NONE) -> list[MapChange]:
        """Return the changes of a key after the record at `since`, as far back as they are kept."""
        question = Question(ask=Ask.HISTORY, name=self._scope + key, number=since)
        _, _, rows = await all_rows((await self._sessions.get()).ask, question, LINEARIZABLE)
        return [self._change(row) for row in rows]

    async def watch(
        self, key: str | None = None, *, prefix: str = "", since: Offset | None = None
    ) -> AsyncGenerator[MapChange | MapState, None]:
        """Yield the changes of a key, or of all keys with a prefix: after the record at `since`, or from now on.

        From now on begins where a replica takes the watch, a round trip or more after this call. To miss nothing, give
        `since`: the revision that a write returned, or the offset that `peek` did. Nothing is lost and nothing comes
        twice. Where history is gone, a MapState comes first. Leaving the loop ends it.
        """
        watched = Watched.PREFIX if key is None else Watched.KEY
        selector = Selector(watched=watched, name=self._scope + (prefix if key is None else key))
        session = await self._sessions.get()
        async for changes in session.watch(selector, since):
            if changes.full:
                yield self._state(changes.offset, changes.rows)
                continue
            for row in changes.rows:
                yield self._change(row)

    async def _ask(self, question: Question, consistency: Consistency) -> tuple[Offset, Answer]:
        session = await self._sessions.get()
        return await session.ask(question, consistency)

    def _entry(self, row: Answer.Row) -> Entry:
        key = row.name.removeprefix(self._scope)
        return Entry(key, row.value or b"", row.revision, row.session != NONE, row.ttl_ms)

    def _state(self, offset: Offset, rows: Sequence[Answer.Row]) -> MapState:
        return MapState(offset, {entry.key: entry for entry in map(self._entry, rows)})

    def _change(self, row: Answer.Row) -> MapChange:
        value = row.value if row.event == Event.PUT else None
        return MapChange(row.revision, row.name.removeprefix(self._scope), value)

    # --- writes ------------------------------------------------------------------------------------------------------

    async def put(
        self, key: str, value: bytes, *, ttl_ms: int = 0, ephemeral: bool = False, fence: Term | None = None
    ) -> Offset:
        """Write a key and return its revision.

        An `ephemeral` key is deleted when the session ends; one with `ttl_ms`, when it was not written for that long.
        Raises: FencedError, if `fence` is not held any more: nothing was changed.
        """
        return (await self.transaction([Put(key, value, ttl_ms, ephemeral)], fence=fence)).offset

    async def compare_and_set(
        self, key: str, *, expect: Offset | bytes, value: bytes, fence: Term | None = None
    ) -> Offset | None:
        """Write a key if it has the revision, or the value, `expect`; return its revision, or None if it has not."""
        condition = Is(key, expect) if isinstance(expect, bytes) else At(key, expect)
        done = await self.transaction([Put(key, value)], conditions=[condition], fence=fence)
        return done.offset if done.succeeded else None

    async def delete(self, key: str, *, fence: Term | None = None) -> bool:
        """Delete a key; return whether there was one."""
        operation = Transact.Operation(do=Do.DELETE, key=self._scope + key)
        result = await self._call([], [operation], [], fence)
        return result.items[0].revision != NONE

    async def transaction(
        self,
        then: Sequence[Put | Delete | Get],
        *,
        conditions: Sequence[Is | At] = (),
        otherwise: Sequence[Put | Delete | Get] = (),
        fence: Term | None = None,
    ) -> Outcome:
        """If all `conditions` hold, do all of `then`, else all of `otherwise`; atomically, and once."""
        tests = [
            Transact.Condition(key=self._scope + test.key, value=test.value)
            if isinstance(test, Is)
            else Transact.Condition(key=self._scope + test.key, revision=test.revision)
            for test in conditions
        ]
        yes, no = ([self._operation(one) for one in branch] for branch in (then, otherwise))
        result = await self._call(tests, yes, no, fence)
        done = then if result.succeeded else otherwise
        read = {
            one.key: Entry(one.key, item.value, item.revision)
            for one, item in zip(done, result.items, strict=True)
            if isinstance(one, Get) and item.value is not None
        }
        return Outcome(result.succeeded, result.offset, read)

    def _operation(self, one: Put | Delete | Get) -> Transact.Operation:
        key = self._scope + one.key
        match one:
            case Put(value=value, ttl_ms=ttl_ms, ephemeral=ephemeral):
                if not isinstance(value, bytes):
                    raise ConfigError(f"{value!r} is no value: expected bytes, for instance text.encode()")
                return Transact.Operation(do=Do.PUT, key=key, value=value, ttl_ms=ttl_ms, ephemeral=ephemeral)
            case Delete():
                return Transact.Operation(do=Do.DELETE, key=key)
        return Transact.Operation(do=Do.GET, key=key)

    async def _call(
        self,
        conditions: Sequence[Transact.Condition],
        then: Sequence[Transact.Operation],
        otherwise: Sequence[Transact.Operation],
        fence: Term | None,
    ) -> Result:
        session = await self._sessions.get()
        fences = () if fence is None else (fence.fence,)
        return await session.call(
            Transact(fences=fences, conditions=tuple(conditions), then=tuple(then), otherwise=tuple(otherwise))
        )
