"""Counts every problem with a peer and logs few of them: a peer in a hot loop must not fill the disk."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

EVERY_SECONDS: Final = 60.0
REMEMBERED_MAX: Final = 1_024
TEXT_MAX: Final = 256


def quoted(text: str) -> str:
    """Return text of a peer in a form that cannot forge a log line: escaped, and not too long."""
    return repr(text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…")


class Notices:
    """Logs each kind of trouble with each peer once a minute; `counts` has all of it by kind."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        self._logger = logger
        self._clock = clock
        self._last: dict[tuple[str, Hashable], tuple[float, int]] = {}

    def warn(self, kind: str, peer: Hashable, message: str, *args: object) -> None:
        """Count one of `kind`; log `message` unless this peer was logged for the same within the last minute."""
        self.counts[kind] += 1
        now = self._clock()
        logged_at, silent = self._last.get((kind, peer), (now - EVERY_SECONDS, 0))
        if now - logged_at < EVERY_SECONDS:
            self._last[kind, peer] = (logged_at, silent + 1)
            return
        if len(self._last) >= REMEMBERED_MAX:
            self._last.clear()  # a flood of addresses: better to repeat a line than to grow
        self._last[kind, peer] = (now, 0)
        if silent:
            message, args = message + " (and %d times since the last such line)", (*args, silent)
        self._logger.warning(message, *args)
