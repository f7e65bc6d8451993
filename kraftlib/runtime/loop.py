"""Turns and clocks of the one thread that owns a replica: an asyncio loop, or the simulator's timeline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from kraftlib.runtime.disk import call_soon_from_anywhere


def monotonic_ms() -> int:
    """Return the clock in which replicas think."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Return ms since 1970, for the timestamps of records and nothing else."""
    return time.time_ns() // 1_000_000


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Let it not come."""
        ...


class Loop(Protocol):
    """Where the parts of a replica get their turns and their time from."""

    def now_ms(self) -> int:
        """Return the clock in which the core thinks: it never falls."""
        ...

    def now_ns(self) -> int:
        """Return the same clock in nanoseconds."""
        ...

    def wall_ms(self) -> int:
        """Return ms since 1970. It may be set while the replica runs."""
        ...

    def call_soon(self, function: Callable[[], None], /) -> object:
        """Have `function` called in a later turn."""
        ...

    def call_soon_threadsafe(self, function: Callable[..., object], /, *arguments: Any) -> object:
        """Do the same from any thread; nothing happens if the loop has ended."""
        ...

    def call_later(self, seconds: float, function: Callable[[], None], /) -> Timer:
        """Have `function` called after so many seconds."""
        ...

    def call_at(self, time_ms: int, function: Callable[[], None], /) -> Timer:
        """Have `function` called when `now_ms` shows `time_ms`, or soon if it has."""
        ...


class AsyncioLoop:
    """An asyncio event loop as a `Loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # These are called directly, since nothing has to be added to them.
        self.now_ms: Callable[[], int] = monotonic_ms
        self.now_ns: Callable[[], int] = time.monotonic_ns
        self.wall_ms: Callable[[], int] = wall_clock_ms
        self.call_soon: Callable[[Callable[[], None]], object] = loop.call_soon

    def call_soon_threadsafe(self, function: Callable[..., object], /, *arguments: Any) -> None:
        """As `Loop.call_soon_threadsafe`."""
        call_soon_from_anywhere(self._loop, function, *arguments)

    def call_later(self, seconds: float, function: Callable[[], None], /) -> Timer:
        """As `Loop.call_later`."""
        return self._loop.call_later(seconds, function)

    def call_at(self, time_ms: int, function: Callable[[], None], /) -> Timer:
        """As `Loop.call_at`."""
        return self._loop.call_later(max(0, time_ms - self.now_ms()) / 1_000, function)
