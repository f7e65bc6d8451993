"""Counter, Barrier, DoubleBarrier."""

from __future__ import annotations

import contextlib
from typing import Final

from kraftlib.coordination.access import LINEARIZABLE, Consistency
from kraftlib.coordination.arguments import OFFSET_MAX, check_consistency, check_whole
from kraftlib.coordination.messages import (
    NONE,
    OPERATIONS_MAX,
    Ask,
    Do,
    Event,
    Question,
    Selector,
    Transact,
    Watched,
)
from kraftlib.errors import ConfigError, TermLostError
from kraftlib.recipes.session import Session
from kraftlib.recipes.sessions import SharedSession, scope
from kraftlib.types import new_uuid, uuid_text

SIZE_MAX: Final = OPERATIONS_MAX
"""Members of a double barrier."""

Operation, Condition = Transact.Operation, Transact.Condition


class Counter:
    """A whole number of 64 bits. Each addition counts once, however often it was sent."""

    def __init__(self, sessions: SharedSession, name: str) -> None:
        self.name = name
        self._sessions = sessions
        self._key = scope("counter", name)

    async def add(self, delta: int = 1) -> int:
        """Add `delta` and return the sum. Raises: RefusedError, if that is beyond 64 bits."""
        check_whole("delta", delta, least=-OFFSET_MAX)
        session = await self._sessions.get()
        result = await session.call(Transact(then=(Operation(do=Do.ADD, key=self._key, delta=delta),)))
        return int(result.items[0].value or b"0")

    async def value(self, *, consistency: Consistency = LINEARIZABLE) -> int:
        """Return the number; 0 at first."""
        check_consistency(consistency)
        session = await self._sessions.get()
        _, answer = await session.ask(Question(ask=Ask.KEYS, name=self._key), consistency)
        return int(answer.rows[0].value or b"0") if answer.rows else 0


class Barrier:
    """Holds up all that wait for it, from when it is closed until it is opened."""

    def __init__(self, sessions: SharedSession, name: str) -> None:
        self.name = name
        self._sessions = sessions
        self._key = scope("barrier", name)

    async def close(self) -> None:
        """Hold up all that wait. It stays closed if this process ends."""
        session = await self._sessions.get()
        await session.call(Transact(then=(Operation(do=Do.PUT, key=self._key),)))

    async def open(self) -> None:
        """Let everybody pass."""
        session = await self._sessions.get()
        await session.call(Transact(then=(Operation(do=Do.DELETE, key=self._key),)))

    async def wait(self) -> None:
        """Return once it is open."""
        session = await self._sessions.get()
        await until_gone(session, self._key, prefix=False)


class DoubleBarrier:
    """`size` processes begin together and end together.

    They meet in rounds. A member that dies before its round is complete does not count; one that dies later does not
    hold up the end.
    """

    def __init__(self, sessions: SharedSession, name: str, *, size: int) -> None:
        check_whole("size", size, least=1, most=SIZE_MAX)  # one transaction looks at all members
        self.name = name
        self.size = size
        self._sessions = sessions
        self._scope = scope("double-barrier", name)
        self._round = f"{self._scope}round"
        self._of_round = ""
        self._member = ""
        self._members = ""
        self._ready = ""
        self._began = NONE

    async def enter(self) -> None:
        """Wait until `size` members of one round have entered."""
        session = await self._sessions.get()
        while not await self._join(session):
            # The round before this is about to end.
            await until_gone(session, self._members, prefix=True)
            await self._next_round(session)
        try:
            while not await self._complete(session):
                pass  # a member has died in between: those that are left are counted again
            await self._ready_or_dead(session)
        except BaseException:
            await session.call_beside(self._withdrawal())
            raise

    async def _complete(self, session: Session) -> bool:
        """If `size` members are there, say so, unless one of them has died since; return False then."""
        _, answer = await session.ask(Question(ask=Ask.KEYS, name=self._members, prefix=True, most=self.size))
        if len(answer.rows) < self.size:
            return True  # the last one that comes counts all of them
        alive = tuple(Condition(key=row.name, revision=row.revision) for row in answer.rows)
        result = await session.call(Transact(conditions=alive, then=(Operation(do=Do.PUT, key=self._ready),)))
        return result.succeeded

    async def _ready_or_dead(self, session: Session) -> None:
        """Wait until the round is complete. Raises: SessionEndedError, TermLostError, if this member is dead itself."""
        offset, answer = await session.ask(Question(ask=Ask.KEYS, name=self._ready))
        _, own = await session.ask(Question(ask=Ask.KEYS, name=self._member))
        if answer.rows:
            return
        selector = Selector(watched=Watched.PREFIX, name=self._of_round)
        if own.rows:
            async with contextlib.aclosing(session.watch(selector, offset)) as watch:
                async for changes in watch:
                    events = {row.name: row.event for row in changes.rows}
                    if events.get(self._ready) == Event.PUT:
                        return
                    if events.get(self._member, Event.DELETED if changes.full else None) == Event.DELETED:
                        break
        await session.renew()  # raises SessionEndedError, if that is the reason
        raise TermLostError(f"the member of {self.name!r} that entered here was deleted")

    def _withdrawal(self) -> Transact:
        return Transact(then=(Operation(do=Do.DELETE, key=self._member),))

    async def _join(self, session: Session) -> bool:
        """Become a member of the current round, unless it is complete."""
        _, answer = await session.ask(Question(ask=Ask.KEYS, name=self._round))
        self._began = answer.rows[0].revision if answer.rows else NONE
        self._of_round = f"{self._scope}{self._began}/"
        self._members, self._ready = f"{self._of_round}member/", f"{self._of_round}ready"
        self._member = self._members + uuid_text(new_uuid())
        current = (Condition(key=self._round, revision=self._began), Condition(key=self._ready, revision=NONE))
        join = Operation(do=Do.PUT, key=self._member, ephemeral=True)
        withdrawal = self._withdrawal()
        joined = await session.call_or_undo(Transact(conditions=current, then=(join,)), lambda _: withdrawal)
        return joined.succeeded

    async def _next_round(self, session: Session) -> None:
        """Begin the next round. No member has entered this one since it was complete, and all members have left it."""
        await session.call(
            Transact(
                conditions=(Condition(key=self._round, revision=self._began),),
                then=(Operation(do=Do.DELETE, key=self._ready), Operation(do=Do.PUT, key=self._round)),
            )
        )

    async def leave(self) -> None:
        """Wait until all members of the round have left. Raises: ConfigError, if it was not entered by this object."""
        if not self._member:
            raise ConfigError(f"{self.name!r} was not entered by this object: there is nothing to leave")
        session = await self._sessions.get()
        await session.call_through(self._withdrawal())
        await until_gone(session, self._members, prefix=True)
        await self._next_round(session)


async def until_gone(session: Session, name: str, *, prefix: bool) -> None:
    """Wait until there is no key of that name, or with that prefix."""
    question = Question(ask=Ask.KEYS, name=name, prefix=prefix, most=1)
    selector = Selector(watched=Watched.PREFIX if prefix else Watched.KEY, name=name)
    offset, answer = await session.ask(question)
    async with contextlib.aclosing(session.watch(selector, offset)) as watch:
        while answer.rows:
            await anext(watch)
            _, answer = await session.ask(question)
