"""The two ways in for threads: the same names and signatures, and every call waits for its end.

    with kraftlib.blocking.connect("10.0.0.1:9191,10.0.0.2:9191") as access:
        done = access.call(command, timeout_ms=10_000)

The access runs on an event loop in a thread of its own; any number of threads may call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from kraftlib.coordination.access import LINEARIZABLE, Change, Consistency, Done
from kraftlib.coordination.net.client import ClientAccess
from kraftlib.coordination.net.replica import ReplicaAccess
from kraftlib.errors import ClosedError, ConfigError
from kraftlib.types import Offset


class ThreadAccess:
    """An access for threads. Use it in a `with`, which opens and closes it."""

    def __init__(self, access: ClientAccess | ReplicaAccess) -> None:
        self._access: Final = access
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ThreadAccess:
        if self._thread is not None:
            raise ConfigError("an access is opened once: make a new one")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kraftlib-access", daemon=True)
        self._thread.start()
        try:
            self._wait(self._access.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it. Calling it twice is allowed."""
        if self._loop is not None:
            try:
                self._wait(self._access.close())
            finally:
                self._end()

    def call(self, command: bytes, *, timeout_ms: int) -> Done:
        """Have a command committed and applied. See `Access.call`."""
        return self._wait(self._access.call(command, timeout_ms=timeout_ms))  # type: ignore[no-any-return]

    def query(
        self, question: bytes, *, consistency: Consistency = LINEARIZABLE, timeout_ms: int
    ) -> tuple[Offset, bytes]:
        """Ask the applied state. See `Access.query`."""
        answer = self._access.query(question, consistency=consistency, timeout_ms=timeout_ms)
        return self._wait(answer)  # type: ignore[no-any-return]

    def watch(self, selector: bytes, since: Offset | None) -> Iterator[Change]:
        """Yield what changes. See `Access.watch`."""
        changes: Any = self._access.watch(selector, since)
        try:
            while True:
                yield self._wait(changes.__anext__())
        finally:
            with suppress(ClosedError):
                self._wait(changes.aclose())

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run `work` on the loop; if this thread is interrupted, it is cancelled."""
        if self._loop is None or threading.current_thread() is self._thread:
            work.close()
            raise ClosedError("this access is not open, or called by its own machine")
        doing = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return doing.result()
        finally:
            doing.cancel()

    def _end(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()
