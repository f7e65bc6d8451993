"""The receiver of the messages of peers, as a protocol: the router of a replica, or a test."""

from __future__ import annotations

from typing import Protocol

from kraftlib.codec.declarations import Message
from kraftlib.consensus.events import Failure
from kraftlib.runtime.net.transport import Peer


class NetworkReceiver(Protocol):
    """The router, as the network sees it. Calls come from the event loop, never from inside a call to Network."""

    def request_received(self, request_id: int, message: Message, version: int, peer: Peer) -> None:
        """Take a request, to be answered once by `respond` or `respond_records`."""
        ...

    def response_received(self, correlation_id: int, message: Message) -> None:
        """Take the answer to what was sent with this id."""
        ...

    def request_failed(self, correlation_id: int, failure: Failure) -> None:
        """Take note that what was sent with this id will have no answer."""
        ...

    def connection_lost(self, destination: int, refused: bool) -> None:
        """Take note that a connection is gone or could not be made; what was in flight on it has failed before."""
        ...
