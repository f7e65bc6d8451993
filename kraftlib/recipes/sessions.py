"""The session that the recipes of one client share: opened when it is first needed, and again when it has ended."""

from __future__ import annotations

import asyncio

from kraftlib.coordination.access import Access
from kraftlib.errors import ClosedError
from kraftlib.recipes.session import Session


class SharedSession:
    """Opens sessions, one at a time."""

    def __init__(self, access: Access, *, ttl_ms: int, owner: str, timeout_ms: int) -> None:
        self.owner = owner
        self._access = access
        self._ttl_ms = ttl_ms
        self._timeout_ms = timeout_ms
        self._current: Session | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def get(self) -> Session:
        """Return a session that has not ended, as far as is known here. Raises: RefusedError, OutcomeUnknownError."""
        async with self._opening:
            if self._closed:
                raise ClosedError("these recipes are closed: nothing was sent")
            if self._current is None or self._current.ended.is_set():
                if self._current is not None:
                    await self._current.close()
                self._current = await Session.open(
                    self._access, ttl_ms=self._ttl_ms, owner=self.owner, timeout_ms=self._timeout_ms
                )
            return self._current

    async def close(self) -> None:
        """End the session."""
        async with self._opening:
            self._closed = True
            if self._current is not None:
                await self._current.close()


def scope(kind: str, name: str) -> str:
    """Return the beginning of all keys of one recipe: no other recipe, whatever its name, has one of them."""
    return f"{kind}/{name.replace('%', '%25').replace('/', '%2F')}/"
