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
        """Take the response to the request with this id."""
        ...

    def request_failed(self, correlation_id: int, failure: Failure) -> None:
        """Note that the request with this id will get no response."""
        ...

    def connection_lost(self, destination: int, refused: bool) -> None:
        """Note that a connection is gone or could not be made. Its pending requests have failed before this call."""
        ...
