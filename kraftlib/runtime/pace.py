"""Work in the background that takes turns with the replica, so that nobody waits longer for his commit because of it.

A thread that computes keeps Python's one lock for 5 ms at a time, and the loop that wakes up meanwhile waits for it:
several times what a commit takes on a good disk. So the work comes in slices of a fraction of a millisecond, and after
each it sleeps about as long as it worked. That costs the background half of its speed and the loop next to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from kraftlib.errors import ClosedError

SLICE_NS: Final = 500_000
"""How long the background works before it lets others have their turn."""

REST_MAX_S: Final = 0.01
"""A slice that took very long waited itself: what it owes is bounded."""


class Pacer:
    """Called by background work after every little piece of it; sleeps, or ends the work."""

    def __init__(
        self,
        *,
        clock_ns: Callable[[], int] = time.thread_time_ns,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._clock_ns = clock_ns
        self._sleep = sleep
        self._cancelled = False
        self._began_ns: int | None = None

    def cancel(self) -> None:
        """Let the work end at its next step; from any thread."""
        self._cancelled = True

    def step(self) -> None:
        """A piece is done. Raises: ClosedError, if the work is wanted no more."""
        if self._cancelled:
            raise ClosedError("the replica is closing: work in the background was given up")
        now_ns = self._clock_ns()
        if self._began_ns is None or now_ns < self._began_ns:  # the first step, or another thread's clock
            self._began_ns = now_ns
        elif now_ns - self._began_ns >= SLICE_NS:
            self._sleep(min((now_ns - self._began_ns) / 1e9, REST_MAX_S))
            self._began_ns = self._clock_ns()


def unhurried() -> None:
    """The pace of work that nobody waits behind: no rest at all."""
