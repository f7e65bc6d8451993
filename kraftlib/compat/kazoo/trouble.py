"""Attempts that fail one after the other: the program's log has each reason once, and the pauses between them grow."""

from __future__ import annotations

import asyncio
from typing import Any, Final

PAUSE_MAX_S: Final = 5.0


class Trouble:
    """The failed attempts at one thing. `pause_s` is the first pause."""

    def __init__(self, logger: Any, what: str, *, pause_s: float) -> None:
        self._logger = logger
        self._what = what
        self._first_s = self._pause_s = pause_s
        self._told = ""

    async def pause(self, error: Exception) -> None:
        """An attempt has failed: say why, unless it is as before, and wait before the next one."""
        if str(error) != self._told:
            self._told = str(error)
            self._logger.warning("%s: %s", self._what, error)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def is_over(self) -> None:
        """An attempt has succeeded."""
        self._pause_s, self._told = self._first_s, ""
