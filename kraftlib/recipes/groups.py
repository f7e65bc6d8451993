"""Party, Queue, LockingQueue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import attrs

from kraftlib.coordination.access import LINEARIZABLE, AtLeast
from kraftlib.coordination.arguments import check_bytes, check_text
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
from kraftlib.errors import ClosedError, SessionEndedError, TermLostError
from kraftlib.recipes.calls import LATER
from kraftlib.recipes.holding import Holding
from kraftlib.recipes.pages import PAGE, all_rows
from kraftlib.recipes.session import Session
from kraftlib.recipes.sessions import SharedSession, scope
from kraftlib.types import Offset, new_uuid, uuid_text

Operation, Condition = Transact.Operation, Transact.Condition


class Membership:
    """Being in a party."""

    def __init__(self, session: Session, key: str) -> None:
        self._session = session
        self._key = key

    def bind(self, task: asyncio.Task[object]) -> None:
        """A body goes on when its session has ended; `Party.members` says whether it is still in."""

    async def end(self, error: BaseException | None = None) -> None:
        """Leave."""
        if self._session.ended.is_set():
            return
        try:
            await self._session.call_through(_deletion(self._key))
        except (*LATER, ClosedError):
            if error is None:
                raise


class Party(Holding[Membership]):
    """A group whose members see each other: all that have joined, and whose sessions live.

    async with kraft.party("workers", identity="w1") as membership:
        print(await kraft.party("workers").members())
    """

    def __init__(self, sessions: SharedSession, name: str, *, identity: str = "") -> None:
        super().__init__()
        self.name = name
        self._sessions = sessions
        self._scope = scope("party", name)
        self._identity = check_text("identity", identity) or sessions.owner

    async def acquire(self) -> Membership:
        """Join; a block does so by itself, and leaves."""
        session = await self._sessions.get()
        key = self._scope + uuid_text(new_uuid())
        join = Operation(do=Do.PUT, key=key, value=self._identity.encode(), ephemeral=True)
        await session.call_or_undo(Transact(then=(join,)), lambda result: _deletion(key))
        return Membership(session, key)

    async def members(self) -> list[str]:
        """Return the identities of the members, in the order in which they joined; linearizable."""
        return (await self._members(await self._sessions.get()))[1]

    async def watch(self) -> AsyncGenerator[list[str], None]:
        """Yield the members now, and again after each change."""
        session = await self._sessions.get()
        offset, members = await self._members(session)
        yield members
        async for changes in session.watch(Selector(watched=Watched.PREFIX, name=self._scope), offset):
            if changes.offset > offset:
                offset, members = await self._members(session)
                yield members

    async def _members(self, session: Session) -> tuple[Offset, list[str]]:
        question = Question(ask=Ask.KEYS, name=self._scope, prefix=True)
        offset, _, rows = await all_rows(session.ask, question, LINEARIZABLE)
        rows.sort(key=lambda row: row.revision)
        return offset, [(row.value or b"").decode() for row in rows]


class Queue:
    """First in, first out; each item is given to one reader, once."""

    def __init__(self, sessions: SharedSession, name: str) -> None:
        self.name = name
        self._sessions = sessions
        self._scope = scope("queue", name)

    async def put(self, value: bytes) -> Offset:
        """Append an item and return its offset."""
        check_bytes("value", value)
        session = await self._sessions.get()
        append = Operation(do=Do.APPEND, key=self._scope, value=value)
        return (await session.call(Transact(then=(append,)))).offset

    async def get(self) -> bytes:
        """Take the first item, or wait for one. If this process dies before it has done its work, the item is gone.

        If this is cancelled, and the item was taken already, it is put back at its place.
        """
        session = await self._sessions.get()
        take = Transact(then=(Operation(do=Do.TAKE, key=self._scope),))
        while True:
            result = await session.call_or_undo(take, _put_back)
            value = result.items[0].value
            if value is not None:
                return value
            await _next_put(session, self._scope, result.offset)


@attrs.frozen
class _Place:
    """An item of a queue, and the claim on it."""

    item: str
    revision: Offset
    value: bytes
    claim: str

    def unclaim(self, claimed: Result) -> Transact | None:
        """Return the command that undoes the one by which it was claimed."""
        if not claimed.succeeded:
            return None
        mine = Condition(key=self.claim, revision=claimed.offset)
        return Transact(conditions=(mine,), then=(Operation(do=Do.DELETE, key=self.claim),))


class Claim:
    """An item that this process works on: removed when the block ends, and given to another one if it fails."""

    def __init__(self, session: Session, place: _Place, claimed: Offset) -> None:
        self.value = place.value
        self._session = session
        self._place = place
        self._claimed = claimed

    def bind(self, task: asyncio.Task[object]) -> None:
        """A body goes on when its session has ended; `end` says then that the item may be another's."""

    async def end(self, error: BaseException | None = None) -> None:
        """Remove the item; or let another one have it, after an error.

        Raises: TermLostError, if the session has ended since: the item is done again by another one.
        OutcomeUnknownError and RefusedError, if that is not known in time: it is tried further while the session lives.
        """
        done = [] if error is not None else [Operation(do=Do.DELETE, key=self._place.item)]
        release = Operation(do=Do.DELETE, key=self._place.claim)
        mine = Condition(key=self._place.claim, revision=self._claimed)
        try:
            result = await self._session.call_through(Transact(conditions=(mine,), then=(*done, release)))
        except SessionEndedError as ended:
            if error is None:
                raise self._lost("with the session, which has ended") from ended
            return
        except (*LATER, ClosedError):
            if error is None:
                raise
            return
        if error is None and not result.succeeded:
            raise self._lost("meanwhile")

    def _lost(self, when: str) -> TermLostError:
        return TermLostError(f"the claim on item {self._place.item!r} was lost {when}: another one does it again")


class LockingQueue(Holding[Claim]):
    """A queue whose items are removed only when their work is done.

    async with kraft.locking_queue("mails") as claim:
        await send(claim.value)
    """

    def __init__(self, sessions: SharedSession, name: str) -> None:
        super().__init__()
        self.name = name
        self._sessions = sessions
        self._scope = scope("locking-queue", name)
        self._items, self._claims = f"{self._scope}item/", f"{self._scope}claim/"

    async def put(self, value: bytes) -> Offset:
        """Append an item and return its offset."""
        check_bytes("value", value)
        session = await self._sessions.get()
        append = Operation(do=Do.APPEND, key=self._items, value=value)
        return (await session.call(Transact(then=(append,)))).offset

    async def acquire(self) -> Claim:
        """Claim the first item that is free, or wait for one; a block does so by itself, and ends the claim."""
        session = await self._sessions.get()
        while True:
            offset, place = await self._first_free(session)
            if place is None:
                await _next_put(session, self._scope, offset, or_deleted=self._claims)
                continue
            free = (
                Condition(key=place.item, revision=place.revision),
                Condition(key=place.claim, revision=NONE),
            )
            claim = Operation(do=Do.PUT, key=place.claim, ephemeral=True)
            result = await session.call_or_undo(Transact(conditions=free, then=(claim,)), place.unclaim)
            if result.succeeded:
                return Claim(session, place, result.offset)

    async def _first_free(self, session: Session) -> tuple[Offset, _Place | None]:
        """Return the first item without a claim, as of the offset that comes along."""
        claims = Question(ask=Ask.KEYS, name=self._claims, prefix=True)
        offset, latest, claimed = await all_rows(session.ask, claims, LINEARIZABLE)
        taken = {row.name.removeprefix(self._claims) for row in claimed}

        def is_free(row: Answer.Row) -> bool:
            return row.name.removeprefix(self._items) not in taken

        items = Question(ask=Ask.KEYS, name=self._items, prefix=True, most=min(len(taken) + 1, PAGE))
        _, _, rows = await all_rows(session.ask, items, AtLeast(latest), until=is_free)
        free = next(filter(is_free, rows), None)
        if free is None:
            return offset, None
        claim = self._claims + free.name.removeprefix(self._items)
        return offset, _Place(free.name, free.revision, free.value or b"", claim)


async def _next_put(session: Session, prefix: str, since: Offset, *, or_deleted: str = "") -> None:
    """Wait until a key with `prefix` is written after `since`, or one with `or_deleted` is deleted."""
    selector = Selector(watched=Watched.PREFIX, name=prefix)
    async with contextlib.aclosing(session.watch(selector, since)) as watch:
        async for changes in watch:
            if changes.full or any(
                row.event == Event.PUT or (or_deleted and row.name.startswith(or_deleted)) for row in changes.rows
            ):
                return


def _deletion(key: str) -> Transact:
    return Transact(then=(Operation(do=Do.DELETE, key=key),))


def _put_back(taken: Result) -> Transact | None:
    item = taken.items[0]
    put = Operation(do=Do.PUT, key=item.key, value=item.value or b"")
    return None if item.value is None else Transact(then=(put,))
