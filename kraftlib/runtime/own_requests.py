"""Requests of this replica's own application, over the network that the replica has anyway.

They bear negative numbers, so that the router knows their answers: from a peer, or from the core of this very process,
if that is the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kraftlib.codec.declared import Message
from kraftlib.consensus import events as ev
from kraftlib.consensus.outstanding import in_lane
from kraftlib.types import Endpoint, ReplicaId
from kraftlib.wire.apis import APIS

FIRST_DESTINATION: Final = in_lane(3, 0)
"""Own requests use their own connections, beside those of the core."""

PROPOSALS: Final = in_lane(4, 0)
"""The connections of forwarded appends: the leader answers these only once they are committed."""


_NEVER_SENT: Final = frozenset({ev.Failure.UNSENT, ev.Failure.UNSUPPORTED_VERSION, ev.Failure.AUTHENTICATION})


class NoAnswerError(Exception):
    """The request got no response. This error never leaves the runtime."""

    def __init__(self, failure: ev.Failure) -> None:
        super().__init__(failure.value)
        self.failure = failure

    @property
    def may_have_arrived(self) -> bool:
        """Whether the request may have left."""
        return self.failure not in _NEVER_SENT


class OwnRequests:
    """Sends requests and keeps the futures that wait for their responses. All on the loop of the replica.

    `send` sends a request to a peer, `submit` gives an event to the core of this replica.
    """

    def __init__(
        self, *, send: Callable[[int, int, Endpoint, Message], None], submit: Callable[[ev.Event], None]
    ) -> None:
        self._send: Final = send
        self._submit: Final = submit
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._last = 0
        self._ended: BaseException | None = None

    def ask(
        self, replica_id: ReplicaId, endpoint: Endpoint, request: Message, *, lane: int = FIRST_DESTINATION
    ) -> asyncio.Future[Message]:
        """Ask a replica; the future has its answer, or NoAnswerError. Each lane has its own connection."""
        number, future = self._begin()
        if self._ended is None:
            self._send(number, lane - replica_id, endpoint, request)
        return future

    def ask_here(self, request: Message) -> asyncio.Future[Message]:
        """Ask the core of this replica, as if a peer did, in the newest version of the request."""
        number, future = self._begin()
        if self._ended is None:
            self._submit(ev.RequestReceived(number, request, APIS[request.api_key].versions.last))
        return future

    def answered(self, number: int, message: Message) -> None:
        """The answer to a request is here."""
        future = self._waiting.pop(number, None)
        if future is not None and not future.done():
            future.set_result(message)

    def failed(self, number: int, failure: ev.Failure) -> None:
        """No answer to a request will come."""
        future = self._waiting.pop(number, None)
        if future is not None and not future.done():
            future.set_exception(NoAnswerError(failure))

    def close(self, error: BaseException) -> None:
        """Fail all requests that are not answered, and all that are made from now on."""
        self._ended = error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()

    def _begin(self) -> tuple[int, asyncio.Future[Message]]:
        self._last -= 1
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._ended is None:
            self._waiting[self._last] = future
        else:
            future.set_exception(self._ended)
        return self._last, future
