"""The lifetime of a client: it is made, started once, and closed once. Calls are taken between start and close.

A replica that stops itself closes no client: its calls raise, and `wait_closed` says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError, ConfigError, ReplicaFailedError
from kraftlib.runtime.client.engine import Engine, InlineEngine
from kraftlib.runtime.client.node import Node
from kraftlib.runtime.client.thread_engine import ThreadEngine
from kraftlib.runtime.waiters import Post

OpenNode = Callable[[Post, Callable[[ReplicaFailedError], None], Callable[[], None]], Node]
"""Makes the node, given how to post to the callers, and what to call when it has failed and when it has closed."""


class Lifetime:
    """The engine of one client, from its start to its end."""

    def __init__(self, config: RaftConfig, open_node: OpenNode) -> None:
        self._config = config
        self._open_node = open_node
        self.engine: Engine = (
            InlineEngine(self._make_node) if config.engine == "inline" else ThreadEngine(self._make_node, config)
        )
        self._ended: asyncio.Future[None] | None = None
        self._closed = False

    def _make_node(self, post: Post) -> Node:
        return self._open_node(post, lambda failure: post(self._failed, failure), lambda: post(self._end, None))

    @property
    def is_ahead(self) -> bool:
        """Whether it was neither started nor closed."""
        return self._ended is None and not self._closed

    def running(self) -> Engine:
        """Return the engine. Raises: ClosedError, unless it was started and is not closed."""
        if self._closed or self._ended is None:
            raise ClosedError(f"replica {self._config.node_id} is {'closed' if self._closed else 'not started'}")
        return self.engine

    async def start(self) -> None:
        """Start the engine. Where that fails, it is closed. Raises as `RaftClient.start`."""
        if self._ended is not None:
            raise ConfigError("a client is started once: make a new one")
        if self._closed:
            raise ClosedError(f"replica {self._config.node_id} was closed before it was started: make a new client")
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        try:
            await self.engine.start()
        except BaseException:
            self._closed = True
            self._end()
            raise

    async def wait_closed(self) -> None:
        """Wait for the end. Raises as `RaftClient.wait_closed`."""
        if self._ended is None:
            raise ClosedError("the client is not started")
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigError("wait_closed() is for the event loop that start() ran on, and this is another one")
        await asyncio.shield(self._ended)

    async def shutdown(self, timeout_ms: int | None) -> None:
        """Refuse calls from now on and end the engine. None: `config.shutdown_timeout_ms`."""
        was_closed, self._closed = self._closed, True
        try:
            await self.engine.shutdown(self._config.shutdown_timeout_ms if timeout_ms is None else timeout_ms)
        except ConfigError:
            self._closed = was_closed  # it was asked for on another loop, and nothing was ended
            raise

    def _failed(self, failure: ReplicaFailedError) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(failure)
            self._ended.exception()  # a caller that does not ask is told by every call, and by the log

    def _end(self, _: None = None) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
