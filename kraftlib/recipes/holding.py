"""`async with` for locks and leases that are held until the body ends, in any way."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Generic, Protocol, TypeVar


class Held(Protocol):
    """A thing that is held."""

    def bind(self, task: asyncio.Task[object]) -> None:
        """Cancel `task`, if the thing is lost while it holds it."""
        ...

    async def end(self, error: BaseException | None) -> None:
        """Give the thing back. Raises instead of `error`, if that is because the thing was lost."""
        ...


H = TypeVar("H", bound=Held)


class Holding(Generic[H]):
    """Takes something when a block is entered, and gives it back when it is left. Tasks may share one."""

    def __init__(self) -> None:
        self._entered: dict[asyncio.Task[object], list[H]] = {}

    async def acquire(self) -> H:
        """Take it. The caller ends the returned object; a block does so by itself."""
        raise NotImplementedError

    async def __aenter__(self) -> H:
        held = await self.acquire()
        task = asyncio.current_task()
        if task is not None:  # always, within a coroutine
            self._entered.setdefault(task, []).append(held)
            held.bind(task)
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        if task is not None:
            stack = self._entered[task]
            held = stack.pop()
            if not stack:
                del self._entered[task]
            await held.end(error)
