"""Bounds the time that the frames of all others than voters take in one turn of the event loop.

A turn takes what has come over every connection. Each of them may have sent many requests, and there may be hundreds
of them: the Fetch of a voter, which comes in the same turn or in the next one, would wait for all of that. So each turn
has some time for these frames, and connections that find none left wait in order for one of the next. A voter that
connects anew is not known yet: the first frames of connections in its slots come before those of all others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_S: Final = 0.01
"""Long enough for the requests of a hundred clients, which belong together: their appends become one batch."""


class FrameTurns:
    """The turns of one loop. `clock` is in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop: Final = loop
        self._clock: Final = clock
        self._first: Final[deque[Callable[[], None]]] = deque()
        self._waiting: Final[deque[Callable[[], None]]] = deque()
        self._ends_at = 0.0
        self._next: asyncio.Handle | None = None

    def is_free(self) -> bool:
        """Whether frames may be taken now: this turn has time, and no connection waits."""
        return not self._first and not self._waiting and self.has_time()

    def has_time(self) -> bool:
        """Whether this turn has time for another frame. Its time begins with the first question."""
        if self._next is None:
            self._next = self._loop.call_soon(self._begin)
            self._ends_at = self._clock() + TURN_S
            return True
        return self._clock() < self._ends_at

    def wait(self, take: Callable[[], None], *, first: bool = False) -> None:
        """Call `take` in one of the next turns, when it is its turn; before all others that are not `first`."""
        (self._first if first else self._waiting).append(take)

    def _begin(self) -> None:
        self._next = None
        while (waiting := self._first or self._waiting) and self.has_time():
            waiting.popleft()()
