"""The router: each message goes to the network, to the core, or to a request of this replica's own application.

| from | message | number | to |
|---|---|---|---|
| network | a request of a peer | | core, or the service that takes its API |
| network | an answer, or that none will come | >= 0 | core |
| network | the same | < 0 | own requests |
| network | a lost connection | | core |
| core | a request to a peer | >= 0 | network |
| core | an answer | >= 0 | network |
| core | an answer | < 0 | own requests |
| own requests | a request to a peer | < 0 | network |
| own requests | a request to the leader, which is this replica | < 0 | core |

The network listens before the core exists, since the core must know the address. Messages that arrive until then are
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kraftlib.codec.declared import Message
from kraftlib.consensus import events as ev
from kraftlib.records.batch import Batch
from kraftlib.runtime.net.transport import Peer
from kraftlib.runtime.own_requests import OwnRequests
from kraftlib.runtime.ports import Answers
from kraftlib.types import Endpoint
from kraftlib.wire.messages.fetch import FetchResponse

Take = Callable[[int, Any, Peer], None]
"""Takes a request of a peer with its id, to be answered once by `Router.respond`."""


class CoreInput(Protocol):
    """The way to the core: `kraftlib.runtime.executor.Executor`."""

    def submit(self, event: ev.Event) -> None:
        """Tell the core what happened, in the order of these calls."""
        ...


class Router:
    """The one place that network, executor and own requests call each other through. All on the loop of the replica."""

    _network: Answers

    def __init__(self) -> None:
        self.own: Final = OwnRequests(send=self.send, submit=self.submit)
        self._core: CoreInput = _Kept()
        self._services: Final[dict[int, Take]] = {}

    def connect_network(self, network: Answers) -> None:
        """Send and answer over `network` from now on."""
        self._network = network

    def serve(self, api_key: int, take: Take) -> None:
        """Hand requests of this API to `take` and not to the core."""
        self._services[api_key] = take

    def connect_core(self, core: CoreInput) -> None:
        """Hand over what has arrived, and everything that will."""
        kept, self._core = self._core, core
        if isinstance(kept, _Kept):
            for event in kept.events:
                core.submit(event)

    # --- from the network: NetworkReceiver ---------------------------------------------------------------------------

    def request_received(self, request_id: int, message: Message, version: int, peer: Peer) -> None:
        """A peer asks."""
        take = self._services.get(message.api_key)
        if take is None:
            self._core.submit(ev.RequestReceived(request_id, message, version, peer.is_observer))
        else:
            take(request_id, message, peer)

    def response_received(self, correlation_id: int, message: Message) -> None:
        """A peer has answered."""
        if correlation_id < 0:
            self.own.answered(correlation_id, message)
        else:
            self._core.submit(ev.ResponseReceived(correlation_id, message))

    def request_failed(self, correlation_id: int, failure: ev.Failure) -> None:
        """No answer will come."""
        if correlation_id < 0:
            self.own.failed(correlation_id, failure)
        else:
            self._core.submit(ev.RequestFailed(correlation_id, failure))

    def connection_lost(self, destination: int, refused: bool) -> None:
        """A connection is gone, or could not be made."""
        self._core.submit(ev.ConnectionLost(destination, refused))

    # --- from anywhere in this replica --------------------------------------------------------------------------------

    def submit(self, event: ev.Event) -> None:
        """Tell the core what happened."""
        self._core.submit(event)

    # --- from the executor: Answers ----------------------------------------------------------------------------------

    def send(self, correlation_id: int, destination: int, endpoint: Endpoint, request: Message) -> None:
        """Send a request to a peer."""
        self._network.send(correlation_id, destination, endpoint, request)

    def respond(self, request_id: int, response: Message | None) -> None:
        """Answer a request; None closes the connection of a peer."""
        if request_id >= 0:
            self._network.respond(request_id, response)
        elif response is None:
            self.own.failed(request_id, ev.Failure.DISCONNECTED)
        else:
            self.own.answered(request_id, response)

    def respond_records(self, request_ids: Sequence[int], response: FetchResponse, batches: Sequence[Batch]) -> None:
        """Answer Fetches of peers alike, with the bytes of `batches`."""
        self._network.respond_records(request_ids, response, batches)


class _Kept:
    """Keeps the events that arrive before the core is there."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []

    def submit(self, event: ev.Event) -> None:
        """Keep it."""
        self.events.append(event)
