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
from kraftlib.coordination.arguments import (
    check_bytes,
    check_consistency,
    check_flag,
    check_since,
    check_text,
    check_whole,
)
from kraftlib.coordination.commands import ROWS_MAX, TTL_MS_MAX, TTL_MS_MIN
from kraftlib.coordination.messages import (
    EXISTS,
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
        _, answer = await self._ask(Question(ask=Ask.KEYS, name=self._key(key)), consistency)
        return self._entry(answer.rows[0]) if answer.rows else None

    async def peek(self, key: str) -> tuple[Entry | None, Offset]:
        """Return the entry as the replica that is asked has it, and the offset of its last record. No round trip."""
        offset, answer = await self._ask(Question(ask=Ask.KEYS, name=self._key(key)), STALE)
        return (self._entry(answer.rows[0]) if answer.rows else None), offset

    async def range(
        self, prefix: str = "", *, after: str = "", most: int = PAGE, consistency: Consistency = LINEARIZABLE
    ) -> list[Entry]:
        """Return the entries whose keys begin with `prefix`, in order: `most` of those that sort after `after`."""
        check_text("after", after)
        check_whole("most", most, least=1, most=ROWS_MAX)
        begin = self._scope + check_text("prefix", prefix)
        question = Question(ask=Ask.KEYS, name=begin, prefix=True, after=after and self._scope + after, most=most)
        _, answer = await self._ask(question, consistency)
        return [self._entry(row) for row in answer.rows]

    async def state(self, prefix: str = "") -> MapState:
        """Return all entries whose keys begin with `prefix`, however many, as of one offset; linearizable.

        `watch(prefix=prefix, since=state.offset)` goes on from there: together they keep a copy of the map.
        """
        selector = Selector(watched=Watched.PREFIX, name=self._scope + check_text("prefix", prefix))
        session = await self._sessions.get()
        offset, answer = await session.ask(question_of(selector))
        rows: Sequence[Answer.Row] = answer.rows
        if answer.more:
            offset, rows = await whole_state(session.ask, selector, offset, rows)
        return self._state(offset, rows)

    async def history(self, key: str, *, since: Offset = NONE) -> list[MapChange]:
        """Return the changes of a key after the record at `since`, as far back as they are kept."""
        check_whole("since", since, least=NONE)
        question = Question(ask=Ask.HISTORY, name=self._key(key), number=since)
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
        check_since(since)
        name = self._scope + check_text("prefix", prefix) if key is None else self._key(key)
        selector = Selector(watched=Watched.PREFIX if key is None else Watched.KEY, name=name)
        session = await self._sessions.get()
        async for changes in session.watch(selector, since):
            if changes.full:
                yield self._state(changes.offset, changes.rows)
                continue
            for row in changes.rows:
                yield self._change(row)

    async def _ask(self, question: Question, consistency: Consistency) -> tuple[Offset, Answer]:
        check_consistency(consistency)
        session = await self._sessions.get()
        return await session.ask(question, consistency)

    def _key(self, key: str) -> str:
        return self._scope + check_text("key", key)

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
        if not isinstance(expect, bytes):
            check_whole("expect", expect, least=ABSENT)
        condition = Is(key, expect) if isinstance(expect, bytes) else At(key, expect)
        done = await self.transaction([Put(key, value)], conditions=[condition], fence=fence)
        return done.offset if done.succeeded else None

    async def delete(self, key: str, *, fence: Term | None = None) -> bool:
        """Delete a key; return whether there was one."""
        operation = Transact.Operation(do=Do.DELETE, key=self._key(key))
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
        for name, given in (("then", then), ("conditions", conditions), ("otherwise", otherwise)):
            if isinstance(given, str | bytes) or not isinstance(given, Sequence):
                raise ConfigError(f"{name}={given!r} must be a list, such as [Put(key, value)] or [At(key, revision)]")
        tests = [self._condition(test) for test in conditions]
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
        match one:
            case Put(value=value, ttl_ms=ttl_ms, ephemeral=ephemeral):
                check_bytes("value", value)
                check_whole("ttl_ms", ttl_ms, least=TTL_MS_MIN if ttl_ms else 0, most=TTL_MS_MAX)
                check_flag("ephemeral", ephemeral)
                key = self._key(one.key)
                return Transact.Operation(do=Do.PUT, key=key, value=value, ttl_ms=ttl_ms, ephemeral=ephemeral)
            case Delete():
                return Transact.Operation(do=Do.DELETE, key=self._key(one.key))
            case Get():
                return Transact.Operation(do=Do.GET, key=self._key(one.key))
        raise ConfigError(f"{one!r} is no operation: expected Put, Delete or Get of kraftlib.recipes.map")

    def _condition(self, test: Is | At) -> Transact.Condition:
        match test:
            case Is(value=value):
                return Transact.Condition(key=self._key(test.key), value=check_bytes("value", value))
            case At(revision=revision):
                check_whole("revision", revision, least=EXISTS)
                return Transact.Condition(key=self._key(test.key), revision=revision)
        raise ConfigError(f"{test!r} is no condition: expected Is or At of kraftlib.recipes.map")

    async def _call(
        self,
        conditions: Sequence[Transact.Condition],
        then: Sequence[Transact.Operation],
        otherwise: Sequence[Transact.Operation],
        fence: Term | None,
    ) -> Result:
        if fence is not None and not isinstance(fence, Term):
            raise ConfigError(f"fence={fence!r} must be a term, as `async with lock as term` gives it, not its token")
        session = await self._sessions.get()
        fences = () if fence is None else (fence.fence,)
        return await session.call(
            Transact(fences=fences, conditions=tuple(conditions), then=tuple(then), otherwise=tuple(otherwise))
        )
