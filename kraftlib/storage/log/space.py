"""The disk space that is left to a log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kraftlib.storage.reserve import Reserve, free_bytes


class Space:
    """Whether the disk is full. Looking takes four calls of the system, which each commit would wait for."""

    def __init__(self, directory: Path, reserve: Reserve) -> None:
        self._directory: Final = directory
        self._reserve: Final = reserve
        self._was_full = False
        """Whether it was full when the owner looked."""
        self.bytes_appended = 0
        """The code that appends counts it."""
        self._bytes_at_look = 0

    @property
    def is_full(self) -> bool:
        """Whether the disk has too little space left for more than the writes under way."""
        return self._was_full or self._reserve.is_spent

    @property
    def may_be_used_up(self) -> bool:
        """Whether the log may have used up what was left. Its owner looks now and then, since others use up space,
        too."""
        appended = self.bytes_appended - self._bytes_at_look
        return self.is_full or not self._reserve.is_taken or appended >= self._reserve.size // 4

    def look(self) -> None:
        """Settle `is_full`: full, while there is less than twice the reserve, or no reserve. Any thread may call it."""
        self._bytes_at_look = self.bytes_appended
        if self._reserve.size:
            self._was_full = free_bytes(self._directory) < 2 * self._reserve.size or not self._reserve.restore()
