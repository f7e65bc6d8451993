"""When the core wants to be woken, asked no more often than it pays.

One timer per replica, re-armed lazily: one that comes too early finds nothing to do and is set anew, and none is ever
cancelled for being too early. Asking the core for its next deadline costs more than most events do, and any event may
have changed it, so a busy replica asks once every few milliseconds, and an idle one at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

ASK_EVERY_MS: Final = 10
"""Time between two looks of a busy replica: none of its deadlines is so near that this would matter."""

NEVER_MS: Final = -1_000_000


class Alarm:
    """The timer of one executor. `next_deadline_ms` is asked; `set_timer` has `fired` called at a time, in place of
    the one before."""

    def __init__(
        self,
        next_deadline_ms: Callable[[], int | None],
        *,
        clock: Callable[[], int],
        set_timer: Callable[[int], None],
    ) -> None:
        self.stale = True
        """Something happened since the deadline was asked for."""
        self.rests = False
        """The timer comes early enough to ask then: `settle` has nothing to do, unless something else has a time."""
        self._next_deadline_ms = next_deadline_ms
        self._clock = clock
        self._set_timer = set_timer
        self._deadline_ms: int | None = None
        self._asked_ms = NEVER_MS
        self._timer_ms: int | None = None

    def is_over(self, now_ms: int) -> bool:
        """Whether the deadline has passed, as far as it is known; says so once."""
        if self._deadline_ms is None or now_ms < self._deadline_ms:
            return False
        self._deadline_ms, self.stale = None, True
        return True

    def fired(self) -> bool:
        """The timer has fired: return whether the deadline is there."""
        self._timer_ms, self.rests = None, False
        self._deadline_ms, self.stale = self._next_deadline_ms(), False
        now_ms = self._clock()
        if not self.is_over(now_ms):
            self._asked_ms = now_ms
            return False
        self._asked_ms = NEVER_MS  # the next deadline is asked for at once
        return True

    def settle(self, also_ms: int | None = None) -> bool:
        """See that the timer comes no later than needed, nor than `also_ms`; return whether the core was asked."""
        if also_ms is None and self.rests:
            return False
        ask_ms = self._asked_ms + ASK_EVERY_MS
        asked, wake_ms = False, self._deadline_ms
        if self.stale:
            now_ms = self._clock()
            wake_ms, asked = ask_ms, now_ms >= ask_ms
            if asked:
                self._asked_ms, self.stale = now_ms, False
                wake_ms = self._deadline_ms = self._next_deadline_ms()
        if also_ms is not None and (wake_ms is None or also_ms < wake_ms):
            wake_ms = also_ms
        if wake_ms is not None and (self._timer_ms is None or wake_ms < self._timer_ms):
            self._timer_ms = wake_ms
            self._set_timer(wake_ms)
        self.rests = self._timer_ms is not None and self._timer_ms <= self._asked_ms + ASK_EVERY_MS
        return asked
