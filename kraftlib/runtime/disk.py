"""Runs the calls that wait for the disk, beside the loop or in it.

The executor passes a function and gets its result. A disk does one thing at a time, in the order of the calls, so a
truncation never overlaps with a flush.

One thread of its own with a `SimpleQueue` costs 55-61 us a round trip, `run_in_executor` 80-84 (measured). Nothing on
this way is fire and forget: an error is a result like any other, and the executor stops the replica for it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from kraftlib.storage.interface import ReplicatedLog

Done = Callable[[Any, BaseException | None], None]
"""Takes the result of the function, or the error that it raised."""


class Disk(Protocol):
    """Runs blocking functions one after the other."""

    def run(self, function: Callable[[], Any], done: Done) -> None:
        """Call `function`, then `done` with its result: on the loop of the executor, now or later."""
        ...

    def flush(self, log: ReplicatedLog, done: Done) -> None:
        """Call `log.flush`, then `done` with the end offset. Not `run`, since a simulated disk takes time for it."""
        ...

    def close(self) -> None:
        """Finish all work and release everything. No further call is allowed."""
        ...


class InlineDisk:
    """Runs everything in the caller's thread: fastest on a fast disk. On a slow one the loop stands still meanwhile."""

    def run(self, function: Callable[[], Any], done: Done) -> None:
        """Call `function` and `done` at once."""
        done(*_outcome(function))

    def flush(self, log: ReplicatedLog, done: Done) -> None:
        """Call `log.flush` and `done` at once."""
        done(*_outcome(log.flush))

    def close(self) -> None:
        """Do nothing: nothing is ever under way."""


class ThreadDisk:
    """Runs everything on one thread of its own; `done` is called on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, name: str = "kraftlib-disk") -> None:
        self._loop = loop
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        # A daemon: a host that never closes its client can still exit, and records that were not flushed were not
        # acknowledged.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self, function: Callable[[], Any], done: Done) -> None:
        """Queue `function` for the thread."""
        self._queue.put((function, done))

    def flush(self, log: ReplicatedLog, done: Done) -> None:
        """Queue `log.flush` for the thread."""
        self._queue.put((log.flush, done))

    def close(self) -> None:
        """Wait until the thread has done all work. Its last results may arrive after the executor has stopped."""
        self.close_within(None)

    def close_within(self, seconds: float | None) -> bool:
        """Do the same, for at most this long; return whether all has been done. May be called again."""
        self._queue.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _main(self) -> None:
        get = self._queue.get
        while (job := get()) is not None:
            function, done = job
            result, error = _outcome(function)
            # The host's loop may have ended without closing the client.
            call_soon_from_anywhere(self._loop, done, result, error)
            # The thread waits for the next job for as long as it likes: it must not keep this one alive.
            del job, function, done, result, error


def call_soon_from_anywhere(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> None:
    """Call `function` on `loop`, from any thread; do nothing if the loop has ended."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:  # noqa: BLE001 - whatever it is, the executor must hear of it and stop the replica
        return None, error
