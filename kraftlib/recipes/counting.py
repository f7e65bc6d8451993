"""Counter, Barrier, DoubleBarrier."""

from __future__ import annotations

import contextlib

from kraftlib.coordination.access import LINEARIZABLE, Consistency
from kraftlib.coordination.messages import NONE, Answer, Ask, Do, Question, Selector, Transact, Watched
from kraftlib.errors import ConfigError
from kraftlib.recipes.session import Session
from kraftlib.recipes.sessions import SharedSession, scope
from kraftlib.types import Offset, new_uuid, uuid_text

Operation, Condition = Transact.Operation, Transact.Condition


class Counter:
    """A whole number of 64 bits. Each addition counts once, however often it was sent."""

    def __init__(self, sessions: SharedSession, name: str) -> None:
        self.name = name
        self._sessions = sessions
        self._key = scope("counter", name)

    async def add(self, delta: int = 1) -> int:
        """Add `delta` and return the sum. Raises: RefusedError, if that is beyond 64 bits."""
        session = await self._sessions.get()
        result = await session.call(Transact(then=(Operation(do=Do.ADD, key=self._key, delta=delta),)))
        return int(result.items[0].value or b"0")

    async def value(self, *, consistency: Consistency = LINEARIZABLE) -> int:
        """Return the number; 0 at first."""
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
        """Hold up whoever waits. It stays closed if this process ends."""
        session = await self._sessions.get()
        await session.call(Transact(then=(Operation(do=Do.PUT, key=self._key),)))

    async def open(self) -> None:
        """Let everybody pass."""
        session = await self._sessions.get()
        await session.call(Transact(then=(Operation(do=Do.DELETE, key=self._key),)))

    async def wait(self) -> None:
        """Return once it is open."""
        session = await self._sessions.get()
        await until(session, self._key, prefix=False, there=False)


class DoubleBarrier:
    """`size` processes begin together and end together.

    They meet in rounds. A member that dies before its round is complete does not count; one that dies later does not
    hold up the end.
    """

    def __init__(self, sessions: SharedSession, name: str, *, size: int) -> None:
        if size < 1:
            raise ConfigError(f"size={size} must be at least 1: somebody has to come")
        self.name = name
        self.size = size
        self._sessions = sessions
        self._scope = scope("double-barrier", name)
        self._round = f"{self._scope}round"
        self._member = ""
        self._members = ""
        self._ready = ""
        self._began = NONE

    async def enter(self) -> None:
        """Wait until `size` members of one round have entered."""
        session = await self._sessions.get()
        while not await self._join(session):
            # The round before this is about to end.
            await until(session, self._members, prefix=True, there=False)
            await self._next_round(session)
        try:
            _, answer = await session.ask(Question(ask=Ask.KEYS, name=self._members, prefix=True, most=self.size))
            if len(answer.rows) >= self.size:
                await session.call(Transact(then=(Operation(do=Do.PUT, key=self._ready),)))
            await until(session, self._ready, prefix=False, there=True)
        except BaseException:
            if not session.ended.is_set():
                await session.call(Transact(then=(Operation(do=Do.DELETE, key=self._member),)))
            raise

    async def _join(self, session: Session) -> bool:
        """Become a member of the current round, unless it is complete."""
        _, answer = await session.ask(Question(ask=Ask.KEYS, name=self._round))
        self._began = answer.rows[0].revision if answer.rows else NONE
        self._members = f"{self._scope}{self._began}/member/"
        self._ready = f"{self._scope}{self._began}/ready"
        self._member = self._members + uuid_text(new_uuid())
        current = (Condition(key=self._round, revision=self._began), Condition(key=self._ready, revision=NONE))
        join = Operation(do=Do.PUT, key=self._member, ephemeral=True)
        return (await session.call(Transact(conditions=current, then=(join,)))).succeeded

    async def _next_round(self, session: Session) -> None:
        """Begin the next round. Nobody has entered this one since it was complete, and all members have left it."""
        await session.call(
            Transact(
                conditions=(Condition(key=self._round, revision=self._began),),
                then=(Operation(do=Do.DELETE, key=self._ready), Operation(do=Do.PUT, key=self._round)),
            )
        )

    async def leave(self) -> None:
        """Wait until all members of the round have left."""
        session = await self._sessions.get()
        await session.call(Transact(then=(Operation(do=Do.DELETE, key=self._member),)))
        await until(session, self._members, prefix=True, there=False)
        await self._next_round(session)


async def until(session: Session, name: str, *, prefix: bool, there: bool) -> tuple[Offset, Answer]:
    """Wait until there is a key of that name, or with that prefix; or none. Return what there is, and its offset."""
    question = Question(ask=Ask.KEYS, name=name, prefix=prefix, most=1)
    offset, answer = await session.ask(question)
    if bool(answer.rows) == there:
        return offset, answer
    selector = Selector(watched=Watched.PREFIX if prefix else Watched.KEY, name=name)
    async with contextlib.aclosing(session.watch(selector, offset)) as watch:
        async for _ in watch:
            offset, answer = await session.ask(question)
            if bool(answer.rows) == there:
                break
    return offset, answer
