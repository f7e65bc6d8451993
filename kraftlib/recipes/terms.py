"""A term: a bid that was granted, with the token that fences it, watched until it is over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from kraftlib.coordination.messages import NONE, Acquire, Ask, Event, Question, Selector, Transact, Watched
from kraftlib.errors import KraftError, SessionEndedError, TermLostError, TimedOutError
from kraftlib.recipes.calls import RENEWALS
from kraftlib.recipes.session import Changes, Session
from kraftlib.recipes.sessions import SharedSession
from kraftlib.types import Offset

WITHDRAWAL_S: Final = 1.0
"""The longest time that a caller who gets an error waits for its bid to be withdrawn, which goes on beside it."""


class Term:
    """The time for which something is held.

    `token` is the offset of the record that granted it: greater than that of every earlier grant of any lock. A
    resource that refuses a token below one that it has seen refuses late writes; `ReplicatedMap` does so with `fence=`.
    """

    def __init__(self, session: Session, *, lock: str, name: str, number: int, ticket: Offset, token: Offset) -> None:
        self.name = name
        self.token = token
        self._lost = asyncio.Event()
        self._session = session
        self._lock = lock
        self._number = number
        self._ticket = ticket
        self._released = False
        self._body: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._cancelled = False
        self._guarding = asyncio.create_task(self._guard())

    @property
    def fence(self) -> Transact.Fence:
        """The condition that a write of this term carries; it is compared when the write is applied."""
        return Transact.Fence(lock=self._lock, token=self.token)

    def is_valid(self) -> bool:
        """Whether no other session can hold it yet, by the local clock. Never blocks and sends nothing.

        It may become false right after this call: an effect that must not happen twice is fenced.
        """
        return not self._released and not self._lost.is_set() and self._session.is_valid()

    async def wait_lost(self) -> None:
        """Return when it is over before it was released."""
        await self._lost.wait()

    async def release(self) -> None:
        """Give it back before the body ends, which goes on: resignation, for a leader. Twice is allowed."""
        self._guarding.cancel()
        if not self._released:
            self._released = True
            await self._session.release(self._number)

    async def __aenter__(self) -> Term:
        task = asyncio.current_task()
        if self._lost.is_set():
            await self.end(None)
        elif task is not None:
            self.bind(task)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.end(error)

    def bind(self, task: asyncio.Task[object]) -> None:
        """Cancel `task` when the term is lost."""
        self._body, self._cancelling = task, task.cancelling()

    async def end(self, error: BaseException | None) -> None:
        """Release. Raises: TermLostError, if the body was cancelled, or has ended, after the term was lost."""
        body, self._body = self._body, None
        cancelled_by_us = self._cancelled and body is not None and body.uncancel() <= self._cancelling
        lost = self._lost.is_set()
        await self.release()
        if lost and (error is None or (cancelled_by_us and isinstance(error, asyncio.CancelledError))):
            raise TermLostError(f"{self.name!r} is not held any more: its token {self.token} is out of date") from None

    async def _guard(self) -> None:
        """Wait until the session is not surely alive, or the bid is over: another one has replaced it, for instance."""
        ended = asyncio.ensure_future(self._bid_ends())
        invalid = asyncio.ensure_future(self._session.wait_invalid())
        try:
            await asyncio.wait([invalid, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ended, invalid):
                task.cancel()
        self._lost.set()
        self._cancel_body()

    async def _bid_ends(self) -> None:
        """Return when the bid is over. Where it cannot be watched, it is asked for again and again."""
        while True:
            with contextlib.suppress(KraftError):
                await bid_reaches(Event.ENDED, self._session, self._lock, self._ticket, self.token)
                return
            if not await bid_stands(self._session, self._lock, self._ticket):
                return
            await asyncio.sleep(self._session.ttl_ms / RENEWALS / 1_000)

    def _cancel_body(self) -> None:
        if self._body is not None and not self._cancelled:
            self._cancelled = True
            self._body.cancel()


async def acquire_term(
    sessions: SharedSession, bid: Acquire, *, name: str, timeout_ms: int | None = None
) -> Term | None:
    """Bid, wait until the bid is granted, and return the term; None, if the bid was not to wait.

    At any error, cancellation included, the bid is withdrawn. Raises: TimedOutError, if it was not granted in time;
    TermLostError, if another bid of the same owner has replaced it; SessionEndedError, RefusedError,
    OutcomeUnknownError.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1_000
    async with _until(deadline, f"{name!r} was not granted within {timeout_ms} ms"):
        session = await sessions.get()
    left_ms = None if deadline is None else max(1, round((deadline - loop.time()) * 1_000))
    number, left_ms = await session.reserve_in_time(left_ms)
    try:
        result = await session.call(bid, number=number, timeout_ms=left_ms)
        session.forget(number)
        token = result.token
        if token == NONE and not result.waits:
            return None
        async with _until(deadline, f"{name!r} was not granted within {timeout_ms} ms"):
            if token == NONE:
                token = await bid_reaches(Event.GRANTED, session, bid.lock, result.offset, result.offset)
            if not session.is_valid():
                await session.renew()  # to win is to be alive in the same state, and not to be replaced meanwhile
                if not await bid_stands(session, bid.lock, result.offset):
                    raise TermLostError(f"the bid for {name!r} is over: another one of the same owner has replaced it")
        return Term(session, lock=bid.lock, name=name, number=number, ticket=result.offset, token=token)
    except BaseException:
        if not session.ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WITHDRAWAL_S):
                    await session.release(number)
        raise


@contextlib.asynccontextmanager
async def _until(deadline: float | None, late: str) -> AsyncIterator[None]:
    """Cancel the block at the deadline. Raises: TimedOutError, which says what is late."""
    limit = asyncio.timeout_at(deadline)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise TimedOutError(late) from None
        raise


async def bid_stands(session: Session, lock: str, ticket: Offset) -> bool:
    """Return whether a bid is not over, as far as is known: without an answer, the session tells for how long."""
    try:
        _, answer = await session.ask(Question(ask=Ask.LOCK, name=lock, number=ticket - 1, most=1))
    except KraftError:
        return True
    return any(row.revision == ticket for row in answer.rows)


async def bid_reaches(event: Event, session: Session, lock: str, ticket: Offset, since: Offset) -> Offset:
    """Wait until a bid is granted, or over, and return its token.

    The bid is looked for in the state wherever the history is gone, so no notice that was lost keeps it waiting.

    Raises: TermLostError, if it is over and was to be granted; SessionEndedError.
    """
    selector = Selector(watched=Watched.LOCK, name=lock)
    async with contextlib.aclosing(session.watch(selector, since)) as watch:
        async for changes in watch:
            found, token = _latest(changes, ticket)
            if found == Event.ENDED and event != Event.ENDED:
                await session.renew()  # raises SessionEndedError, if that is the reason
                raise TermLostError(f"the bid for {lock!r} is over: another one of the same owner has replaced it")
            if found == event:
                return token
            if found == Event.READY:
                await session.renew()  # and the record of that grants it
    raise SessionEndedError(f"the watch of {lock!r} has ended")


def _latest(changes: Changes, ticket: Offset) -> tuple[Event | None, Offset]:
    """Return what a bid has come to, and its token; None, if nothing is said of it."""
    for row in reversed(changes.rows):
        if row.revision == ticket:
            return Event(row.event), row.token
    return (Event.ENDED if changes.full else None), NONE
