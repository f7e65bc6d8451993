"""Runs the replica in a loop and thread of its own, so that a busy host does not cost the quorum its leader.

The appends of all tasks in one turn of the host's loop cross to the thread together, and so do their results.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib.util
import threading
from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError, ConfigError, TimedOutError
from kraftlib.runtime.client.engine import MakeNode
from kraftlib.runtime.client.home import Home
from kraftlib.runtime.client.node import Node
from kraftlib.runtime.listener import is_ctrl_c
from kraftlib.runtime.waiters import Appended, Promise, Settled, settle
from kraftlib.types import Epoch

T = TypeVar("T")

_Put = tuple[bytes | Sequence[bytes], Epoch | None, int, "asyncio.Future[Appended]"]
"""Value or values, epoch, level, and the host's future."""

CALL_TIMEOUT_S: Final = 30.0
"""Time that a plain call waits for the engine's thread, which answers at once unless a listener blocks it."""


class ThreadEngine:
    """The node has a thread and a loop of its own.

    That thread alone starts the node and ends it, so a caller of either may be cancelled, or gone. Calls from other
    threads are jobs, which that thread does in order; jobs that the loop does not reach any more are refused.
    """

    def __init__(self, make_node: MakeNode, config: RaftConfig) -> None:
        self._make_node = make_node
        self._config = config
        self._node: Node | None = None
        self._home = Home()
        self._host: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._end_asked: concurrent.futures.Future[int] = concurrent.futures.Future()
        """The timeout of the first caller that asked for the end."""
        self._over: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._outbox: list[_Put] = []
        self._jobs: deque[tuple[Callable[[], None], Callable[[], object]]] = deque()
        """A call for the engine's loop, and the one instead where that has ended."""

    @property
    def node(self) -> Node:
        """The node."""
        self._home.check()
        if self._node is None:
            raise ClosedError("the client is not started")
        return self._node

    async def start(self) -> None:
        """Start the thread, and the node in it. An error there is raised here."""
        self._host = asyncio.get_running_loop()
        self._home = Home(self._host)
        # A daemon: a host that never closes its client can still exit.
        self._thread = threading.Thread(target=self._main, name=f"kraftlib-{self._config.node_id}", daemon=True)
        try:
            self._thread.start()
        except Exception:
            self._thread = None  # the system has no thread left: there is no end to wait for
            raise
        try:
            await _share(self._started)
        except BaseException:
            await self.shutdown(0)
            raise

    def check_caller(self) -> None:
        """Any thread of this process may call."""
        self._home.check()

    def append(self, values: Sequence[bytes], epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append values atomically, together with the other appends of this turn of the host."""
        return self.append_one(values, epoch, level)

    def append_one(self, value: bytes | Sequence[bytes], epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append one value, or several atomically, together with the other appends of this turn of the host."""
        host = get_running_loop()
        if host is not self._host:
            raise self._home.stranger()
        future: asyncio.Future[Appended] = host.create_future()
        outbox = self._outbox
        outbox.append((value, epoch, level, future))
        if len(outbox) == 1:
            # At the end of the turn, so that all of its appends cross together.
            host.call_soon(self._send)
        return future

    def _send(self) -> None:
        outbox, self._outbox = self._outbox, []
        if outbox:
            self._give(lambda: self._receive(outbox), lambda: self._refuse(outbox))

    def _receive(self, outbox: list[_Put]) -> None:
        refused: list[Settled] = []
        appends = self._node.appends if self._node is not None else None
        for value, epoch, level, promise in outbox:
            try:
                if appends is None:
                    raise ClosedError("the client is not started: nothing was appended")
                if type(value) is bytes:
                    appends.append_one(value, epoch, level, promise)
                else:
                    appends.append(value, epoch, level, promise)  # type: ignore[arg-type]
            except Exception as error:  # noqa: BLE001 - it concerns this caller alone
                # Its traceback would hold this frame, which holds it: a cycle for each refusal.
                refused.append((promise, None, error.with_traceback(None)))
        if refused:
            self._post(settle, refused)

    def _refuse(self, outbox: list[_Put]) -> None:
        error = "the client is closed, or not started: nothing was appended"
        self._post(settle, [(promise, None, ClosedError(error)) for *_, promise in outbox])

    def call(self, function: Callable[[], T]) -> T:
        """Have it called in the engine's thread and wait. From that thread itself, or after the end, call it here."""
        self._home.check()
        if self._over.done() or self._thread is None or threading.current_thread() is self._thread:
            return function()
        result: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(function())
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                result.set_exception(error)

        self._give(run, result.cancel)
        try:
            return result.result(CALL_TIMEOUT_S)
        except concurrent.futures.CancelledError:
            return function()
        except TimeoutError:
            if result.done():
                raise  # it is what the function has raised
            what = "nothing was done" if result.cancel() else "the request is still being carried out"
            raise TimedOutError(
                f"replica {self._config.node_id} did not answer within {CALL_TIMEOUT_S} s, perhaps because a listener "
                f"or state machine blocks it; {what}"
            ) from None
        except BaseException:
            result.cancel()  # a caller that no longer waits must not have it done
            raise

    def ask(self, function: Callable[[Promise], object]) -> asyncio.Future[Any]:
        """Have it called in the engine's thread with a future of the host."""
        host = get_running_loop()
        if host is not self._host:
            raise self._home.stranger()
        node = self.node
        future: asyncio.Future[Any] = host.create_future()

        def run() -> None:
            if future.done():
                return
            try:
                function(future)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                self._post(settle, [(future, None, error)])
            except BaseException as error:
                # The application's own: it must end neither this loop nor the host's.
                self._post(settle, [(future, None, RuntimeError(f"{error!r} was raised"))])
                if is_ctrl_c(error):
                    raise

        def done(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                self._give(lambda: node.withdraw(future), lambda: None)

        self._give(run, lambda: self._post(settle, [(future, None, ClosedError("the client is closed"))]))
        future.add_done_callback(done)
        return future

    def _give(self, job: Callable[[], None], refuse: Callable[[], object]) -> None:
        """Have `job` done on the engine's loop; or `refuse`, on whichever thread, where that has ended."""
        self._jobs.append((job, refuse))
        try:
            if self._loop is None:
                self._refuse_jobs()
            else:
                self._loop.call_soon_threadsafe(self._do_next)
        except RuntimeError:
            self._refuse_jobs()

    def _do_next(self) -> None:
        job, _ = self._jobs.popleft()
        job()

    def _refuse_jobs(self) -> None:
        while self._jobs:
            try:
                _, refuse = self._jobs.popleft()
            except IndexError:  # another thread does the same
                return
            refuse()

    async def shutdown(self, timeout_ms: int) -> None:
        """Have the thread end the node and itself, and wait for that. Any loop of this process may call."""
        if self._thread is None or self._home.is_left:
            return
        if asyncio.get_running_loop() is self._host:
            self._send()  # earlier appends go first
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            self._end_asked.set_result(timeout_ms)
        await _share(self._over)
        self._thread.join()  # nothing comes after `_over`

    def _post(self, function: Callable[[Any], None], argument: Any) -> None:
        host = self._host
        if host is None:
            return
        try:
            host.call_soon_threadsafe(function, argument)
        except RuntimeError:
            if not host.is_closed():
                raise
            # The host's loop has ended, and its callers with it.

    # --- on the engine's thread --------------------------------------------------------------------------------------

    def _main(self) -> None:
        error: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=loop_factory(self._config.event_loop)) as runner:
                runner.run(self._run())
        except BaseException as raised:  # noqa: BLE001 - raised by start() and shutdown()
            error = raised
        self._refuse_jobs()
        if not self._started.done():
            self._started.set_exception(error or ClosedError("the client was closed while it was starting"))
            error = None
        if isinstance(error, Exception):
            self._over.set_exception(error)
        else:
            self._over.set_result(None)  # a SystemExit has failed the node

    async def _run(self) -> None:
        """Start the node, and end it when that is asked for."""
        self._loop = asyncio.get_running_loop()
        asked = asyncio.wrap_future(self._end_asked)
        starting = asyncio.ensure_future(self._start_node())
        timeout_ms = 0
        try:
            await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,))
            if starting.cancelled():
                return
            starting.result()
            self._started.set_result(None)
            timeout_ms = await asked
        except asyncio.CancelledError:
            # No other code holds this task, so the loop itself is closing: a callback has ended it.
            if self._node is not None:
                self._node.fail(RuntimeError("the event loop of the replica was ended by a callback"))
        if self._node is not None:
            await self._node.shutdown(timeout_ms)

    async def _start_node(self) -> None:
        await self._make_node(self._post).start(self._ready)

    def _ready(self, node: Node) -> None:
        self._node = node


async def _share(future: concurrent.futures.Future[None]) -> None:
    """Wait for a shared `future`, which is not cancelled with this call."""
    waiting = asyncio.wrap_future(future)
    waiting.add_done_callback(lambda waiting: waiting.cancelled() or waiting.exception())  # others are told of it
    await asyncio.shield(waiting)


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the engine's own loop: uvloop's, if it is configured and installed; None for asyncio's."""
    if name == "asyncio":
        return None
    if importlib.util.find_spec("uvloop") is None:
        if name == "auto":
            return None
        raise ConfigError("event_loop='uvloop' is not installed: install kraftlib[uvloop], or leave it at 'auto'")
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
