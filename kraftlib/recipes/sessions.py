"""The session that the recipes of one client share: opened when it is first needed, and again when it has ended."""

from __future__ import annotations

import asyncio

from kraftlib.coordination.access import Access
from kraftlib.errors import ClosedError
from kraftlib.recipes.session import Session


class SharedSession:
    """Opens sessions, one at a time. All that ask while one is opened get that one, or its error."""

    def __init__(self, access: Access, *, ttl_ms: int, owner: str, timeout_ms: int) -> None:
        self.owner = owner
        self._access = access
        self._ttl_ms = ttl_ms
        self._timeout_ms = timeout_ms
        self._current: Session | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closed = False

    async def get(self) -> Session:
        """Return a session that has not ended, as far as is known here. Raises: RefusedError, OutcomeUnknownError."""
        while not self._closed:
            if self._current is not None and not self._current.ended.is_set():
                return self._current
            if self._opening is None:
                self._opening = asyncio.create_task(self._open())
                self._opening.add_done_callback(self._opened)
            opening = self._opening
            await asyncio.wait([opening])  # a caller that is cancelled leaves it to the others
            if not opening.cancelled():
                opening.result()
        raise ClosedError("these recipes are closed: nothing was sent")

    async def _open(self) -> None:
        former = self._current
        if former is not None:
            await former.close()  # at once: it has ended
        self._current = await Session.open(
            self._access, ttl_ms=self._ttl_ms, owner=self.owner, timeout_ms=self._timeout_ms
        )

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # told to those who wait, if there are any

    async def close(self) -> None:
        """End the session for good."""
        self._closed = True
        await self.end()

    async def end(self) -> None:
        """End the session; the next caller has another one opened."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._current is not None:
            await self._current.close()


def scope(kind: str, name: str) -> str:
    """Return the beginning of all keys of one recipe: no other recipe has one of them, under any name."""
    return f"{kind}/{name.replace('%', '%25').replace('/', '%2F')}/"
