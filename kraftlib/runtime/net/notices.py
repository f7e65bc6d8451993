"""Counts every problem with a peer and logs few of them: neither one peer nor a flood of addresses may fill the disk.

Each kind of problem with each peer has one line a minute. All of them share one budget of lines a minute; lines beyond
it follow as one line with counts. The first problem of a kind in a minute is always logged, so that a flood of one kind
hides no other: kinds are written in this library, and there are few.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

EVERY_SECONDS: Final = 60.0
LINES_MAX: Final = 30
"""Lines of one minute, beside the first of each kind and the line with counts."""

REMEMBERED_MAX: Final = 1_024
TEXT_MAX: Final = 256


def quoted(text: str) -> str:
    """Return text of a peer in a form that cannot forge a log line: escaped, and not too long."""
    return repr(text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…")


class Notices:
    """Logs problems with peers within a budget; `counts` has the number of all problems by kind."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        self._logger = logger
        self._clock = clock
        self._last: dict[tuple[str, Hashable], tuple[float, int]] = {}
        self._minute_began = clock()
        self._lines: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def warn(self, kind: str, peer: Hashable, message: str, *args: object) -> bool:
        """Count one of `kind`; log `message` unless this peer was logged for the same within the last minute.

        Returns whether it was logged.
        """
        self.counts[kind] += 1
        now = self._clock()
        self.summarize()
        logged_at, silent = self._last.get((kind, peer), (now - EVERY_SECONDS, 0))
        if now - logged_at < EVERY_SECONDS:
            self._last[kind, peer] = (logged_at, silent + 1)
            return False
        if self._lines.total() >= LINES_MAX and self._lines[kind]:
            self._left_out[kind] += 1  # and nothing is remembered of the peer
            return False
        if len(self._last) >= REMEMBERED_MAX:
            self._forget_peers()
        self._last[kind, peer] = (now, 0)
        self._lines[kind] += 1
        if silent:
            message, args = message + " (and %d times since the last such line)", (*args, silent)
        self._logger.warning(message, *args)
        return True

    def summarize(self, *, now: bool = False) -> None:
        """Log the counts of the lines beyond the budget, once its minute is over, or `now`."""
        time = self._clock()
        if not now and time - self._minute_began < EVERY_SECONDS:
            return
        self._minute_began = time
        self._lines.clear()
        if self._left_out:
            kinds = ", ".join(f"{kind} {count}" for kind, count in self._left_out.most_common())
            self._logger.warning("%d more problems with peers have no line here: %s", self._left_out.total(), kinds)
            self._left_out.clear()

    def _forget_peers(self) -> None:
        """Forget who was logged: it is better to repeat a line than to grow. No count is lost."""
        for (kind, _), (_, silent) in self._last.items():
            if silent:
                self._left_out[kind] += silent
        self._last.clear()
