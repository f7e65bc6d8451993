"""Questions that this replica asks for its own application, over the network that the replica has anyway.

It stands between network and executor and lets everything of theirs pass. What it asks itself bears negative numbers,
and comes back here: from a peer, or from the core of this very process, if that is the leader.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kraftlib.consensus import events as ev
from kraftlib.runtime.ports import Answers, Message
from kraftlib.types import Endpoint, ReplicaId
from kraftlib.wire.apis import APIS

if TYPE_CHECKING:
    from kraftlib.runtime.executor import Executor

FIRST_DESTINATION: Final = -4_000_000_000_000
"""Connections of errands are theirs alone: below the lanes of readers, whatever the number of a replica."""


class FailedErrandError(Exception):
    """No answer came. Never leaves the runtime."""

    def __init__(self, failure: ev.Failure) -> None:
        super().__init__(failure.value)
        self.failure = failure


class Errands:
    """Asks and remembers who waits for which answer. All on the loop of the replica."""

    def __init__(self, network: Answers) -> None:
        self._network: Final = network
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._last = 0
        self._ended: BaseException | None = None
        # What only passes is not called through here.
        self.send: Final = network.send
        self.respond_records: Final = network.respond_records

    def open(self, executor: Executor) -> None:
        """Let answers and requests pass to `executor`."""
        self._executor = executor
        self.request_received = executor.request_received
        self.connection_lost = executor.connection_lost

    def ask(self, replica_id: ReplicaId, endpoint: Endpoint, request: Message) -> asyncio.Future[Message]:
        """Ask a replica; the future has its answer, or FailedErrandError."""
        number, future = self._begin()
        if self._ended is None:
            self._network.send(number, FIRST_DESTINATION - replica_id, endpoint, request)
        return future

    def ask_here(self, request: Message) -> asyncio.Future[Message]:
        """Ask the core of this replica, as if a peer did, in the newest version of the request."""
        number, future = self._begin()
        if self._ended is None:
            self._executor.submit(ev.RequestReceived(number, request, APIS[request.api_key].versions.last))
        return future

    def close(self, error: BaseException) -> None:
        """Fail whoever waits, and whoever asks from now on."""
        self._ended = error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()

    def _begin(self) -> tuple[int, asyncio.Future[Message]]:
        self._last -= 1
        future: asyncio.Future[Message] = self._loop.create_future()
        if self._ended is None:
            self._waiting[self._last] = future
        else:
            future.set_exception(self._ended)
        return self._last, future

    def _end(self, number: int, message: Message | None, failure: ev.Failure = ev.Failure.DISCONNECTED) -> None:
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return
        if message is None:
            future.set_exception(FailedErrandError(failure))
        else:
            future.set_result(message)

    # What the executor calls.

    def respond(self, request_id: int, response: Message | None) -> None:
        """Answer a peer, or an errand of our own."""
        if request_id < 0:
            self._end(request_id, response)
        else:
            self._network.respond(request_id, response)

    # What the network calls.

    def response_received(self, correlation_id: int, message: Message) -> None:
        """Take an answer to the executor, or to an errand."""
        if correlation_id < 0:
            self._end(correlation_id, message)
        else:
            self._executor.response_received(correlation_id, message)

    def request_failed(self, correlation_id: int, failure: ev.Failure) -> None:
        """Take note that no answer will come."""
        if correlation_id < 0:
            self._end(correlation_id, None, failure)
        else:
            self._executor.request_failed(correlation_id, failure)
