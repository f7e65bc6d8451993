"""Election, Lock, RWLock, Semaphore, Lease: all are bids for a lock, and to hold one is a `Term`.

    async with kraft.election("scheduler") as term:
        await run_jobs(fence=term.token)

The body is cancelled when the term is lost, and the block raises TermLostError. However the block is left, the term is
released at once, and the next in line holds it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import cast

import attrs

from kraftlib.coordination.access import LINEARIZABLE
from kraftlib.coordination.arguments import check_text, check_whole
from kraftlib.coordination.commands import LIMIT_MAX
from kraftlib.coordination.messages import Acquire, Answer, Ask, Event, Question, Selector, Watched
from kraftlib.errors import ensure
from kraftlib.recipes.holding import Holding
from kraftlib.recipes.pages import all_rows
from kraftlib.recipes.sessions import SharedSession
from kraftlib.recipes.terms import Term, acquire_term
from kraftlib.types import Offset
from kraftlib.validators import check_whole_timeout


@attrs.frozen
class Holder:
    """A bid as others see it: its owner, and its token, -1 while it waits."""

    owner: str
    token: Offset


class Lock(Holding[Term]):
    """One holder at a time, first come, first served. It is not reentrant: the same task waits for itself, too.

    `permits` of `limit` are held: a semaphore has a limit of its own, readers take one permit and a writer all.
    """

    def __init__(
        self,
        sessions: SharedSession,
        name: str,
        *,
        kind: str = "lock",
        limit: int = 1,
        permits: int = 1,
        owner: str = "",
        replace: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self._sessions = sessions
        self._bid = Acquire(
            lock=f"{kind}/{name}", limit=limit, permits=permits, owner=owner or sessions.owner, replace=replace
        )

    async def acquire(self, *, timeout_ms: int | None = None) -> Term:
        """Wait until it is held; `async with` the lock does this, and releases.

        Raises: TimedOutError; SessionEndedError, RefusedError, OutcomeUnknownError. It is not held then.
        """
        if timeout_ms is not None:
            check_whole_timeout(timeout_ms, least=1)
        term = await acquire_term(self._sessions, self._bid, name=self.name, timeout_ms=timeout_ms)
        ensure(term is not None, f"the bid for {self.name!r} waits, and was over without being granted")
        return cast("Term", term)

    async def try_acquire(self) -> Term | None:
        """Hold it if that is possible at once; else return None."""
        bid = attrs.evolve(self._bid, wait=False)
        return await acquire_term(self._sessions, bid, name=self.name)

    async def holders(self) -> list[Holder]:
        """Return those that hold it; linearizable."""
        return [holder for holder in await self.contenders() if holder.token >= 0]

    async def contenders(self) -> list[Holder]:
        """Return those that hold it, then those that wait, in their order; linearizable."""
        session = await self._sessions.get()
        _, _, rows = await all_rows(session.ask, Question(ask=Ask.LOCK, name=self._bid.lock), LINEARIZABLE)
        return [Holder(row.owner, row.token) for row in rows]


class Election(Lock):
    """One leader at a time; the candidates follow in the order in which they came.

    With an `identity`, a candidate that campaigns again, after a restart for instance, replaces its own old bid: it
    need not wait for its former session to expire. Two live candidates must not share one.
    """

    def __init__(self, sessions: SharedSession, name: str, *, identity: str = "") -> None:
        check_text("identity", identity)
        super().__init__(sessions, name, kind="election", owner=identity, replace=bool(identity))

    async def leader(self) -> Holder | None:
        """Return the leader, None if there is none; linearizable."""
        return next(iter(await self.holders()), None)

    async def observe(self) -> AsyncGenerator[Holder | None, None]:
        """Yield the leader now, and whenever it changes; None while there is none. Endless.

        A reader that is slow gets the changes one after the other, not only the last.
        """
        session = await self._sessions.get()
        offset, answer = await session.ask(Question(ask=Ask.LOCK, name=self._bid.lock))
        leader = _leader_in(answer.rows)
        yield leader
        async for changes in session.watch(Selector(watched=Watched.LOCK, name=self._bid.lock), offset):
            before = leader
            if changes.full:
                leader = _leader_in(changes.rows)
            for row in () if changes.full else changes.rows:
                if row.event == Event.ENDED and leader is not None and row.token == leader.token:
                    leader = None
                elif row.event == Event.GRANTED:
                    leader = Holder(row.owner, row.token)
            if leader != before:
                yield leader


def _leader_in(rows: Sequence[Answer.Row]) -> Holder | None:
    return next((Holder(row.owner, row.token) for row in rows if row.event == Event.GRANTED), None)


class RWLock:
    """Many readers or one writer; a writer that waits holds up readers that come after it."""

    def __init__(self, sessions: SharedSession, name: str) -> None:
        self.name = name
        self.reader = Lock(sessions, name, kind="rw", limit=LIMIT_MAX)
        """Held together with other readers."""
        self.writer = Lock(sessions, name, kind="rw", limit=LIMIT_MAX, permits=LIMIT_MAX)
        """Held alone."""


class Semaphore(Lock):
    """`permits` of `limit`; all that use it at a time give it the same limit."""

    def __init__(self, sessions: SharedSession, name: str, *, limit: int, permits: int = 1) -> None:
        check_whole("limit", limit, least=1, most=LIMIT_MAX)
        check_whole("permits", permits, least=1, most=limit)
        super().__init__(sessions, name, kind="semaphore", limit=limit, permits=permits)


class Lease:
    """A lock that is had at once or not at all: for work that one of many does, and the others leave to it.

    if term := await kraft.lease("nightly").take():
        async with term:
            await clean_up()
    """

    def __init__(self, sessions: SharedSession, name: str) -> None:
        self._lock = Lock(sessions, name, kind="lease")
        self.name = name

    async def take(self) -> Term | None:
        """Hold it, or return None if another one does. A term that is not used as a block is released by its owner."""
        return await self._lock.try_acquire()

    async def holder(self) -> Holder | None:
        """Return the holder, None if there is none; linearizable."""
        return next(iter(await self._lock.holders()), None)
