"""The background of a replica: one thread for long work, and its pace.

It does one thing at a time: it writes and reads snapshots, makes hashes, scrubs the log, and checks the space on the
disk. When the replica ends, the work is given up at its next step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from kraftlib.runtime.disk import Disk, ThreadDisk
from kraftlib.runtime.pace import Pacer


class Background(Protocol):
    """The background, as the parts of a replica see it."""

    @property
    def disk(self) -> Disk:
        """Runs one thing after the other, and tells the loop when it has ended."""
        ...

    @property
    def step(self) -> Callable[[], None]:
        """Called by long work after every small piece. Raises: ClosedError, when the work is to end."""
        ...


class BackgroundThread:
    """A thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, name: str) -> None:
        self._pacer = Pacer()
        self._thread = ThreadDisk(loop, name=name)
        self.disk: Disk = self._thread
        self.step: Callable[[], None] = self._pacer.step

    def cancel(self) -> None:
        """Let what is being done end at its next step."""
        self._pacer.cancel()

    def close(self, within_s: float | None = None) -> bool:
        """Give up the running job, and wait at most this long until it has ended; return whether it has."""
        self._pacer.cancel()
        return self._thread.close_within(within_s)
