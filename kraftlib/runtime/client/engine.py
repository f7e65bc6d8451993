"""Runs the replica and takes calls to it: the protocol of an engine, and the one that runs it in the host's loop.

`InlineEngine` puts an append straight into the accumulator: no hop, the fastest, and a host that blocks its loop blocks
the replica. `kraftlib.runtime.client.thread_engine` has the other one.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import get_running_loop
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from kraftlib.errors import ClosedError
from kraftlib.runtime.client.home import Home
from kraftlib.runtime.client.node import Node
from kraftlib.runtime.waiters import Appended, Post, Promise, call_here
from kraftlib.types import Epoch

T = TypeVar("T")

MakeNode = Callable[[Post], Node]
"""Builds the node, given the way to settle promises on the callers' loop. Called on the engine's loop."""


class Engine(Protocol):
    """Runs one node. All methods are for the host's loop."""

    @property
    def node(self) -> Node:
        """The node, once started. Raises: ClosedError, before that, and in a forked child."""
        ...

    async def start(self) -> None:
        """Make and start the node. Where that fails, or is cancelled, nothing is left open."""
        ...

    def check_caller(self) -> None:
        """Raises: ConfigError, ClosedError, if `call` could not do its work on behalf of this caller."""
        ...

    def append_one(self, value: bytes, epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append one value. A refusal is raised here or by the future."""
        ...

    def append(self, values: Sequence[bytes], epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append values atomically."""
        ...

    def call(self, function: Callable[[], T]) -> T:
        """Return what `function` returns on the engine's loop; blocks for a hop if that is another thread."""
        ...

    def ask(self, function: Callable[[Promise], object]) -> asyncio.Future[Any]:
        """Give `function` a promise on the engine's loop; return the future that it settles.

        If the future is cancelled, the node is told.
        """
        ...

    async def shutdown(self, timeout_ms: int) -> None:
        """End the node gracefully, and then the engine. Calls share one end, which goes on if they are cancelled."""
        ...


class InlineEngine:
    """The node shares the host's loop."""

    def __init__(self, make_node: MakeNode) -> None:
        self._make_node = make_node
        self._node: Node | None = None
        self._home = Home()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None
        self._ending = False

    @property
    def node(self) -> Node:
        """The node."""
        self._home.check()
        if self._node is None:
            raise ClosedError("the client is not started")
        return self._node

    async def start(self) -> None:
        """Make and start the node here."""
        loop = self._loop = asyncio.get_running_loop()
        self._home = Home(loop)
        self._thread_id = threading.get_ident()
        self._create_future = loop.create_future
        self._starting = loop.create_task(self._start_node())
        try:
            await self._starting
        except asyncio.CancelledError:
            if self._ending:
                raise ClosedError("the client was closed while it was starting") from None
            await self.shutdown(0)  # it may have started in this very moment
            raise

    async def _start_node(self) -> None:
        # No await lies between opening the stores and handing them to the part that closes them again.
        await self._make_node(call_here).start(self._ready)

    def _ready(self, node: Node) -> None:
        self._node = node
        self._append_one = node.appends.append_one

    def check_caller(self) -> None:
        """Refuse other threads."""
        self._home.check()
        if threading.get_ident() != self._thread_id:
            raise self._home.stranger()

    def append_one(self, value: bytes, epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append one value."""
        if get_running_loop() is not self._loop:
            raise self._home.stranger()
        future: asyncio.Future[Appended] = self._create_future()
        self._append_one(value, epoch, level, future)
        return future

    def append(self, values: Sequence[bytes], epoch: Epoch | None, level: int) -> asyncio.Future[Appended]:
        """Append values atomically."""
        if get_running_loop() is not self._loop:
            raise self._home.stranger()
        future: asyncio.Future[Appended] = self._create_future()
        self.node.appends.append(values, epoch, level, future)
        return future

    def call(self, function: Callable[[], T]) -> T:
        """Call it."""
        return function()

    def ask(self, function: Callable[[Promise], object]) -> asyncio.Future[Any]:
        """Call it with a future."""
        if get_running_loop() is not self._loop:
            raise self._home.stranger()
        node = self.node
        future: asyncio.Future[Any] = self._create_future()
        function(future)
        future.add_done_callback(lambda future: node.withdraw(future) if future.cancelled() else None)
        return future

    async def shutdown(self, timeout_ms: int) -> None:
        """End the node."""
        if self._loop is None or self._home.is_left:
            return
        if asyncio.get_running_loop() is not self._loop:
            raise self._home.stranger()
        if self._starting is not None and not self._starting.done():
            self._ending = True
            self._starting.cancel()
            await asyncio.wait((self._starting,))
        if self._node is not None:
            await self._node.shutdown(timeout_ms)
