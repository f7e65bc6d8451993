"""Where the replica runs, and how callers reach it: in the host's loop, or in a loop and thread of its own.

`InlineEngine` puts an append straight into the accumulator: no hop, the fastest, and a host that blocks its loop blocks
the replica. `ThreadEngine` gives the replica a thread, so that a busy host does not cost the quorum its leader; what
all tasks of one host turn append goes over in one hop, and what a commit settles comes back in one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.util
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError, ConfigError
from kraftlib.runtime.node import Node
from kraftlib.runtime.waiters import Appended, Post, Promise, Settled, call_here, settle
from kraftlib.types import Epoch

T = TypeVar("T")

MakeNode = Callable[[Post], Node]
"""Builds the node, given the way to settle promises on the callers' loop. Called on the engine's loop."""

_Put = tuple[bytes | Sequence[bytes], Epoch | None, int, "asyncio.Future[Appended]"]
"""Value or values, epoch, level, and the host's future."""

CALL_TIMEOUT_S: Final = 30.0
"""How long a plain call waits for the engine's thread, which answers at once unless a listener blocks it."""


class Engine(Protocol):
    """Runs one node. All methods are for the host's loop."""

    @property
    def node(self) -> Node:
        """The node, once started."""
        ...

    async def start(self) -> None:
        """Make and start the node."""
        ...

    def append_one(self, value: bytes, epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append one value. What is refused is raised here or by the future."""
        ...

    def append(self, values: Sequence[bytes], epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append values atomically."""
        ...

    def call(self, function: Callable[[], T]) -> T:
        """Return what `function` returns on the engine's loop; blocks for a hop if that is another thread."""
        ...

    def ask(self, function: Callable[[Promise], object]) -> asyncio.Future[Any]:
        """Give `function` a promise on the engine's loop; return the future that it settles."""
        ...

    async def shutdown(self, timeout_ms: int) -> None:
        """End the node gracefully, and then the engine."""
        ...


class InlineEngine:
    """The node shares the host's loop."""

    def __init__(self, make_node: MakeNode) -> None:
        self._make_node = make_node
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        """The node."""
        if self._node is None:
            raise ClosedError("the client is not started")
        return self._node

    async def start(self) -> None:
        """Make and start the node here."""
        self._loop = asyncio.get_running_loop()
        node = self._make_node(call_here)
        await node.start(self._ready)

    def _ready(self, node: Node) -> None:
        self._node = node
        self._create_future, self._append_one = self._loop.create_future, node.appends.append_one

    def append_one(self, value: bytes, epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append one value."""
        future: asyncio.Future[Appended] = self._create_future()
        self._append_one(value, epoch, level, future)
        return future

    def append(self, values: Sequence[bytes], epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append values atomically."""
        future: asyncio.Future[Appended] = self._loop.create_future()
        self.node.appends.append(values, epoch, level, future)
        return future

    def call(self, function: Callable[[], T]) -> T:
        """Call it."""
        return function()

    def ask(self, function: Callable[[Promise], object]) -> asyncio.Future[Any]:
        """Call it with a future."""
        future: asyncio.Future[Any] = self._loop.create_future()
        function(future)
        return future

    async def shutdown(self, timeout_ms: int) -> None:
        """End the node."""
        if self._node is not None:
            await self._node.shutdown(timeout_ms)


class ThreadEngine:
    """The node has a thread and a loop of its own."""

    def __init__(self, make_node: MakeNode, config: RaftConfig) -> None:
        self._make_node = make_node
        self._config = config
        self._node: Node | None = None
        self._thread: threading.Thread | None = None
        self._running: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._outbox: list[_Put] = []
        self._ended = False

    @property
    def node(self) -> Node:
        """The node."""
        if self._node is None:
            raise ClosedError("the client is not started")
        return self._node

    async def start(self) -> None:
        """Start the thread, and in it the node. What goes wrong there is raised here."""
        self._host = asyncio.get_running_loop()
        # A daemon: a host that never closes its client can still exit.
        self._thread = threading.Thread(target=self._main, name=f"kraftlib-{self._config.node_id}", daemon=True)
        self._thread.start()
        self._loop = await asyncio.wrap_future(self._running)
        try:
            await self._there(self._start_node())
        except BaseException:
            await self._end()
            raise

    async def _start_node(self) -> None:
        await self._make_node(self._post).start(self._ready)

    def _ready(self, node: Node) -> None:
        self._node = node

    def append_one(self, value: bytes, epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append one value, with what else this turn of the host appends."""
        return self._put(value, epoch, level)

    def append(self, values: Sequence[bytes], epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append values atomically, with what else this turn of the host appends."""
        return self._put(values, epoch, level)

    def _put(self, value: bytes | Sequence[bytes], epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        future: asyncio.Future[Appended] = self._host.create_future()
        outbox = self._outbox
        outbox.append((value, epoch, level, future))
        if len(outbox) == 1:
            # Only at the end of the turn: a hop in its midst would split what belongs together.
            self._host.call_soon(self._send)
        return future

    def _send(self) -> None:
        outbox, self._outbox = self._outbox, []
        if not outbox:
            return
        try:
            self._loop.call_soon_threadsafe(self._receive, outbox)
        except (RuntimeError, AttributeError):  # the loop has ended, or never began
            for *_, future in outbox:
                if not future.done():
                    future.set_exception(ClosedError("the client is closed, or not started: nothing was appended"))

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
            except Exception as error:  # noqa: BLE001 - it is the caller's, and only his
                refused.append((promise, None, error))
        if refused:
            self._post(settle, refused)

    def call(self, function: Callable[[], T]) -> T:
        """Have it called in the engine's thread and wait. From that thread itself, or after the end, call it here."""
        if self._ended or self._thread is None or threading.current_thread() is self._thread:
            return function()
        result: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:  # noqa: BLE001 - handed to whoever called
                result.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return result.result(CALL_TIMEOUT_S)

    def ask(self, function: Callable[[Promise], object]) -> asyncio.Future[Any]:
        """Have it called in the engine's thread with a future of the host."""
        future: asyncio.Future[Any] = self._host.create_future()

        def run() -> None:
            try:
                function(future)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                self._post(settle, [(future, None, error)])

        if self._ended:
            raise ClosedError("the client is closed")
        self._loop.call_soon_threadsafe(run)
        return future

    async def shutdown(self, timeout_ms: int) -> None:
        """End the node, then its loop and thread."""
        if self._node is not None and not self._ended:
            self._send()  # what was appended before comes before
            try:
                await self._there(self._node.shutdown(timeout_ms))
            finally:
                await self._end()

    async def _there(self, coroutine: Any) -> Any:
        """Await `coroutine` on the engine's loop. Cancelling this cancels it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def _end(self) -> None:
        """Let the loop end, and wait for the thread without holding up the host."""
        if not self._ended:
            self._ended = True
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _post(self, function: Callable[[Any], None], argument: Any) -> None:
        try:
            self._host.call_soon_threadsafe(function, argument)
        except RuntimeError:
            if not self._host.is_closed():
                raise
            # The host's loop has ended: nobody waits any more.

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory(self._config.event_loop)) as runner:
                runner.run(self._run())
        except BaseException as error:
            if self._running.done():
                raise
            self._running.set_exception(error)

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        self._running.set_result(asyncio.get_running_loop())
        await self._stop.wait()


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the engine's own loop: of uvloop, if it is wanted and there; None for asyncio's."""
    if name == "asyncio":
        return None
    if importlib.util.find_spec("uvloop") is None:
        if name == "auto":
            return None
        raise ConfigError("event_loop='uvloop' is not installed: install kraftlib[uvloop], or leave it at 'auto'")
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
