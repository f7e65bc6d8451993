"""Accepts waiting connections when the loop says that there are some, a bounded number in one turn.

Connections mostly come one by one, and to look for a second one costs as much as to accept it. So a turn takes one.
After a turn in which all that it might take were there, the next one takes twice as many, up to `A_TURN`.

There is no task whose end could lose a connection that is just being accepted: `stop` takes effect at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

from kraftlib.runtime.net.notices import Notices

A_TURN: Final = 16
"""The most connections accepted in one turn of the loop: a flood of them does not hold up the established ones."""

PAUSE_S: Final = 0.1
"""Pause before the next connection is accepted after the system had no descriptor left."""


class Acceptor:
    """Gives what `listener` accepts to `admit`, with its address."""

    def __init__(
        self,
        listener: socket.socket,
        admit: Callable[[socket.socket, Any], None],
        *,
        loop: asyncio.AbstractEventLoop,
        notices: Notices,
    ) -> None:
        self._listener: Final = listener
        self._admit: Final = admit
        self._loop: Final = loop
        self._notices: Final = notices
        self._pause: asyncio.TimerHandle | None = None
        self._at_once = 1
        self._resume()

    def stop(self) -> None:
        """Accept nothing any more. The listener stays open: that is its owner's. Twice is allowed."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(self._at_once):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                self._at_once = 1
                return
            except ConnectionAbortedError:
                continue  # it was gone before we came to it
            except OSError as error:
                # No descriptors or memory left: established connections go on, new ones wait in the backlog.
                self._notices.warn("accept", "", "cannot accept connections for now: %s", error)
                self._loop.remove_reader(self._listener.fileno())
                self._pause = self._loop.call_later(PAUSE_S, self._resume)
                return
            accepted.setblocking(False)
            self._admit(accepted, address)
        self._at_once = min(2 * self._at_once, A_TURN)
