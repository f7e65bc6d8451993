"""A thread with an event loop of its own, and the calls of other threads to it.

`kraftlib.blocking` runs its replica there. A call waits for its end, and is refused once the loop has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from typing import Any, Final, TypeVar

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError, ConfigError, OutcomeUnknownError
from kraftlib.runtime.client.home import Home
from kraftlib.runtime.client.thread_engine import loop_factory

LAST_CALLS_S: Final = 5.0
"""Time that the loop waits at its end for calls that are about to return."""

R = TypeVar("R")


class LoopThread:
    """The loop of one replica. It runs from `begin` to `end`, and `last` is what it does at its end."""

    def __init__(self, config: RaftConfig, *, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._config = config
        self._last = last
        self._home = Home()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._running: Future[asyncio.AbstractEventLoop] = Future()
        self._lock = threading.Lock()
        """Guards the loop and its calls, and that only one thread is made."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: set[Future[Any]] = set()
        """The calls that the loop has to answer."""

    @property
    def has_begun(self) -> bool:
        """Whether it was started, also after its end."""
        return self._thread is not None

    @property
    def is_left(self) -> bool:
        """Whether this is a forked child, which has no such thread."""
        return self._home.is_left

    def check_process(self) -> None:
        """Raises: ClosedError in a forked child."""
        self._home.check()

    def check_caller(self) -> None:
        """Raises: ConfigError on this very thread, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise ConfigError("a listener or state machine must not wait for its own replica: it would wait for ever")

    # --- beginning and end -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the thread and return once its loop runs.

        Raises: ConfigError, if it was started before; ClosedError, if it was closed before or meanwhile.
        """
        node_id = self._config.node_id
        with self._lock:
            if self._thread is not None:
                raise ConfigError("a client is started once: make a new one")
            if self._closed:
                raise ClosedError(f"replica {node_id} was closed before it was started: make a new client")
            self._home = Home()
            self._thread = threading.Thread(target=self._main, name=f"kraftlib-{node_id}", daemon=True)
            try:
                self._thread.start()
            except Exception:
                self._thread = None  # the system has no thread left: there is no end to wait for
                raise
        try:
            self._running.result()
            if self._closed:  # before the loop was there to be told
                raise ClosedError(f"replica {node_id} was closed while it was started: make a new client")
        except BaseException:
            self.end()
            raise

    def close(self) -> bool:
        """Refuse to begin from now on; return whether it has begun, and so needs an `end`."""
        with self._lock:
            self._closed = True
            return self._thread is not None

    def end(self) -> None:
        """Let the loop end, and wait for its thread."""
        wait([self._running])  # one that is about to run could not be told
        with self._lock, contextlib.suppress(RuntimeError):  # it may have ended by itself
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # --- calls -------------------------------------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run `coroutine` on the loop and wait for its end."""
        try:
            self.check_caller()
        except ConfigError:
            coroutine.close()
            raise
        try:
            return self.submit(coroutine).result()
        except CancelledError:
            # The loop has ended in the midst of the call, which may have done its work.
            raise OutcomeUnknownError(f"replica {self._config.node_id} was closed before this call had ended") from None

    def submit(self, coroutine: Coroutine[Any, Any, R]) -> Future[R]:
        """Have `coroutine` run on the loop. Raises: ClosedError, if there is none."""
        try:
            self._home.check()
            with self._lock:
                if self._loop is None:
                    raise RuntimeError("there is no loop")
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
                self._calls.add(future)
        except ClosedError:
            coroutine.close()
            raise
        except RuntimeError:  # the loop has ended, perhaps in this very moment
            coroutine.close()
            state = "closed" if self.has_begun else "not started"
            raise ClosedError(f"replica {self._config.node_id} is {state}") from None
        future.add_done_callback(self._calls.discard)
        return future

    def call(self, function: Callable[..., R], *arguments: Any) -> R:
        """Call `function` on the loop and wait for its end; here, if this is its thread, or if the loop has ended."""
        self._home.check()
        if threading.current_thread() is self._thread:
            return function(*arguments)

        async def call() -> R:
            return function(*arguments)

        try:
            called = self.submit(call())
        except ClosedError:
            return function(*arguments)
        try:
            return called.result()
        except CancelledError:  # the loop has ended before it came to it
            return function(*arguments)

    # --- on the loop -------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        running = self._running
        try:
            with asyncio.Runner(loop_factory=loop_factory(self._config.event_loop)) as runner:
                self._stop = asyncio.Event()
                self._loop = runner.get_loop()
                running.set_result(self._loop)
                runner.run(self._until_stopped())
        except BaseException as error:
            if running.done():
                raise
            running.set_exception(error)
        finally:
            self._refuse_the_rest()

    async def _until_stopped(self) -> None:
        """Run until `end` is called; then do what comes last, even if the caller is gone."""
        try:
            await self._stop.wait()
        finally:
            await self._last()
            # Calls of other threads were told how they end, and must come to hear of it.
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others, timeout=LAST_CALLS_S)

    def _refuse_the_rest(self) -> None:
        """Fail the calls that came too late for the loop."""
        with self._lock:
            self._loop, calls = None, list(self._calls)
        for future in calls:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(ClosedError(f"replica {self._config.node_id} is closed"))
