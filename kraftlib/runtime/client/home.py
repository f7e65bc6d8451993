"""The process and the event loop in which a client was started. Calls from elsewhere are refused.

A forked child has neither the threads of its parent nor a right to its files: the log would be written by two. An
`asyncio.Future` is of one loop, so a record that another loop appends could not be waited for.
"""

from __future__ import annotations

import asyncio
import os

from kraftlib.errors import ClosedError, ConfigError

_generation = 0
"""Number of forks between the first process and this one."""


def _forked() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Home:
    """The process in which this was made, and a loop of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop
        self._pid = os.getpid()
        self._generation = _generation

    @property
    def is_left(self) -> bool:
        """Whether this is a forked child."""
        return self._generation != _generation

    def check(self) -> None:
        """Raises: ClosedError, in a forked child."""
        if self.is_left:
            raise ClosedError(
                f"this client runs in process {self._pid}, and process {os.getpid()} is a fork of that, without its "
                f"threads: nothing was done; make a client after the fork, or start processes with 'spawn'"
            )

    def stranger(self) -> Exception:
        """Return the error for a caller from another loop."""
        try:
            self.check()
        except ClosedError as error:
            return error
        return ConfigError(
            "a client belongs to the event loop that its start() ran on, and this is another one: nothing was "
            "appended; use asyncio.run_coroutine_threadsafe() with its loop, or kraftlib.blocking"
        )
