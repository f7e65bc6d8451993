"""The pace of background work, which takes turns with the replica so that commits do not wait for it.

A thread that computes keeps Python's one lock for 5 ms at a time, and the loop that wakes up meanwhile waits for it:
several times what a commit takes on a good disk. So the work comes in slices of a fraction of a millisecond, and after
each it rests. A commit takes the lock some five times and may meet the background each time: so the rest is several
times the slice while other threads of the process work, and as long as the slice while they do
not. A snapshot of an idle replica is then written at half speed, one of a busy replica at a fifth.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from kraftlib.errors import ClosedError

SLICE_NS: Final = 150_000
"""Time that the background works before it lets others have their turn."""

REST_IDLE: Final = 1
"""The rest of the background in slices, while no other thread works."""
REST_BUSY: Final = 4
"""The same while other threads work."""
BUSY_SHARE: Final = 0.1
"""Others work if they used more than this part of the time since the last rest began."""

REST_MAX_S: Final = 0.01
"""A slice that took very long was itself waiting, so the rest after it is bounded."""


class Pacer:
    """Called by background work after every little piece of it; sleeps, or ends the work."""

    def __init__(
        self,
        *,
        clock_ns: Callable[[], int] = time.thread_time_ns,
        process_ns: Callable[[], int] = time.process_time_ns,
        wall_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """The clocks are the processor time of this thread, that of the process, and the time itself."""
        self._clock_ns = clock_ns
        self._process_ns = process_ns
        self._wall_ns = wall_ns
        self._sleep = sleep
        self._cancelled = False
        self._began_ns: int | None = None
        self._wall_before_ns = self._others_before_ns = 0

    def cancel(self) -> None:
        """Let the work end at its next step; from any thread."""
        self._cancelled = True

    def step(self) -> None:
        """A piece is done. Raises: ClosedError, if the work is to end."""
        if self._cancelled:
            raise ClosedError("the replica is closing: work in the background was given up")
        now_ns = self._clock_ns()
        if self._began_ns is None or now_ns < self._began_ns:  # the first step, or another thread's clock
            self._began_ns = now_ns
        elif now_ns - self._began_ns >= SLICE_NS:
            rest = REST_BUSY if self._others_work(now_ns) else REST_IDLE
            self._sleep(min(rest * (now_ns - self._began_ns) / 1e9, REST_MAX_S))
            self._began_ns = self._clock_ns()

    def _others_work(self, now_ns: int) -> bool:
        wall_ns, others_ns = self._wall_ns(), self._process_ns() - now_ns
        busy = others_ns - self._others_before_ns > BUSY_SHARE * (wall_ns - self._wall_before_ns)
        self._wall_before_ns, self._others_before_ns = wall_ns, others_ns
        return busy


def unhurried() -> None:
    """The pace of work that no other thread waits for: no rest at all."""
