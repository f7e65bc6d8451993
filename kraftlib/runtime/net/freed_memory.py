"""Gives the memory of requests and answers that are gone back to the system.

The GNU C library raises its threshold for blocks of their own (M_MMAP_THRESHOLD) to the size of the largest block that
was ever freed, at most 32 MiB. From then on answers of several MiB lie in its heap, with the blocks that TLS allocates
between them. It gives back only the end of the heap by itself, and small blocks break up the gaps. So a flood of unread
answers left a process with four times the memory that it needs, and a flood of mutated requests with twice as much.
malloc_trim(3) gives back all whole pages that are free.

Of requests those are counted that connections had sent which are gone: a client that stays uses its memory again.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

from kraftlib.security.answers import AnswerBudget

WORTHWHILE_BYTES: Final = 16 * 1024 * 1024
"""When so much has gone: the whole heap is looked at each time, which takes 1 to 20 ms, on a thread of its own."""

REST_BYTES: Final = 1024 * 1024
"""The end of a flood is worthwhile, too: when so much has gone, and nothing more since `QUIET_S`."""

QUIET_S: Final = 2.0

PAUSE_S: Final = 0.25
"""At least this long from one time to the next: an allocation meanwhile may have to wait."""


def malloc_trim() -> Callable[[], None] | None:
    """Return what gives free memory back to the system, or None where the C library has nothing of the kind."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None

    def give_back() -> None:
        trim(0)  # ctypes gives up Python's lock meanwhile

    return give_back


class FreedMemory:
    """Has `give_back` called on a thread after many bytes have gone: waited in `budget`, or sent by connections."""

    def __init__(
        self, budget: AnswerBudget, loop: asyncio.AbstractEventLoop, give_back: Callable[[], None] | None
    ) -> None:
        self.gone_bytes = 0
        """The bytes that connections had sent which are gone."""
        self._budget: Final = budget
        self._loop: Final = loop
        self._give_back: Final = give_back
        self._under_way: asyncio.Future[None] | None = None
        self._not_before = 0.0
        self._seen_bytes = 0
        self._seen_since = 0.0
        budget.when_relieved = self.look

    def look(self) -> None:
        """Give memory back if it is worthwhile. Called now and then, and whenever peers that do not read are closed."""
        gone, now = self.gone_bytes + self._budget.gone_bytes, self._loop.time()
        if gone != self._seen_bytes:
            self._seen_bytes, self._seen_since = gone, now
        is_rest = gone >= REST_BYTES and now - self._seen_since >= QUIET_S
        if self._give_back is None or not (gone >= WORTHWHILE_BYTES or is_rest):
            return
        if now < self._not_before or not (self._under_way is None or self._under_way.done()):
            return
        self.gone_bytes = self._budget.gone_bytes = 0
        self._not_before = now + PAUSE_S
        # Not at once: connections that were closed a moment ago let go of their memory at the end of this turn.
        self._under_way = self._loop.run_in_executor(None, self._give_back)
