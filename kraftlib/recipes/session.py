"""The client's side of a session: it renews itself, and knows until when it is surely alive.

The quorum ends a session at the earliest when its time to live has passed since it applied the last renewal. The client
counts from when it *sent* that, and subtracts a margin for clocks that run at different rates. So `is_valid()` is false
before another session can hold the same lock, even after delays; it sends no request.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, NamedTuple

from kraftlib.coordination.access import LINEARIZABLE, Access, Consistency
from kraftlib.coordination.commands import decode, encode
from kraftlib.coordination.messages import NONE, Answer, CloseSession, KeepAlive, OpenSession, Question, Selector
from kraftlib.errors import ClosedError, SessionEndedError
from kraftlib.recipes.calls import LATER, RENEWALS, Calls
from kraftlib.recipes.pages import whole_state
from kraftlib.types import Offset
from kraftlib.validators import check_whole_timeout

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_ms() -> int:
    """Return the time in ms, of a clock that also runs while the machine sleeps, where there is one."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


class SessionState(enum.Enum):
    """The certainty that a session is alive."""

    VALID = "valid"
    UNCERTAIN = "uncertain"
    """No renewal was confirmed for a third of its time."""
    INVALID = "invalid"
    """Others may hold what it held. If it is renewed all the same, it is valid again, but its terms are lost."""
    ENDED = "ended"


class Changes(NamedTuple):
    """One step of a watch: rows of a record; or, if `full`, of all that is watched, as of `offset`."""

    offset: Offset
    rows: Sequence[Answer.Row]
    full: bool


class Session(Calls):
    """A session over an access. Made by `Session.open`, ended by `close`."""

    def __init__(
        self, access: Access, *, ttl_ms: int, owner: str, timeout_ms: int, clock_ms: Callable[[], int]
    ) -> None:
        super().__init__(access, ttl_ms=ttl_ms, timeout_ms=timeout_ms, clock_ms=clock_ms)
        self.owner = owner
        self._renewing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        access: Access,
        *,
        ttl_ms: int = 10_000,
        owner: str = "",
        timeout_ms: int = 30_000,
        clock_ms: Callable[[], int] = now_ms,
    ) -> Session:
        """Open a session and renew it from now on. Raises: RefusedError, OutcomeUnknownError, ConfigError."""
        session = cls(access, ttl_ms=ttl_ms, owner=owner, timeout_ms=timeout_ms, clock_ms=clock_ms)
        session.opened = (await session.call(OpenSession(ttl_ms=ttl_ms, owner=owner), number=0)).offset
        session._renewing = asyncio.create_task(session._renew())
        return session

    async def close(self) -> None:
        """End the session, and with it all that it holds; if the quorum is not reached in time, it expires."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        if not self.ended.is_set():
            time_ms = min(self.timeout_ms, self.ttl_ms)
            # If that fails: it is not renewed any more, so the leader ends it.
            with contextlib.suppress(*LATER, ClosedError, TimeoutError):
                async with asyncio.timeout(time_ms / 1_000):
                    await self.settle()
                    await self.call(CloseSession(), number=0, timeout_ms=time_ms)
        self.ended.set()
        await self.abandon()

    # --- being alive -------------------------------------------------------------------------------------------------

    @property
    def unconfirmed_ms(self) -> int:
        """Time since the last call was sent that is known to have renewed it."""
        return self.clock_ms() - self.confirmed_ms

    @property
    def state(self) -> SessionState:
        """The certainty that it is alive."""
        if self.ended.is_set():
            return SessionState.ENDED
        if not self.is_valid():
            return SessionState.INVALID
        sure = self.unconfirmed_ms < self.ttl_ms // 3
        return SessionState.VALID if sure else SessionState.UNCERTAIN

    async def _renew(self) -> None:
        interval_ms = self.ttl_ms / RENEWALS
        while not await self.ended_within(max(interval_ms - (self.clock_ms() - self.confirmed_ms), interval_ms / 4)):
            try:
                await self.renew(timeout_ms=max(1, self.ttl_ms // 3))
            except (SessionEndedError, ClosedError):
                self.ended.set()
            except LATER:
                continue  # the state says how long that has been so

    async def renew(self, *, timeout_ms: int | None = None) -> None:
        """Renew the session now. Raises: SessionEndedError, RefusedError, OutcomeUnknownError."""
        if timeout_ms is not None:
            check_whole_timeout(timeout_ms, least=1)
        await self.call(KeepAlive(), number=0, timeout_ms=timeout_ms)

    # --- reads -------------------------------------------------------------------------------------------------------

    async def ask(self, question: Question, consistency: Consistency = LINEARIZABLE) -> tuple[Offset, Answer]:
        """Return the answer, and the offset of the last record that is in it. Raises: TimedOutError, ConfigError."""
        offset, data = await self.access.query(encode(question), consistency=consistency, timeout_ms=self.timeout_ms)
        return offset, decode(Answer, data)

    async def watch(self, selector: Selector, since: Offset | None) -> AsyncGenerator[Changes, None]:
        """Yield what changes after the record at `since`; None: from now on."""
        watch = self.access.watch(encode(selector), since)
        whole: Offset = NONE
        try:
            async for change in watch:
                answer = decode(Answer, change.data)
                if change.full and answer.more:
                    whole, rows = await whole_state(self.ask, selector, change.offset, answer.rows)
                    yield Changes(whole, rows, full=True)
                elif change.offset > whole:
                    yield Changes(change.offset, answer.rows, change.full)
        finally:
            close = getattr(watch, "aclose", None)
            if close is not None:
                await close()
