"""Requests of this replica: their version, their connection, and the answer that belongs to each.

    send --held until the peer has answered ApiVersions--> encode --> transport
    response_received / request_failed <-- decode <-- reply

The request sender has its own wire correlation ids, which grow with every request. So a response is never matched with
a later request; the ids of the core are returned beside the response.

A failure is reported in a later turn, or right before `connection_lost`. A request that is repeated at once then uses
a connection that has not ended yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import Versions
from kraftlib.consensus.events import Failure
from kraftlib.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from kraftlib.frozen import define
from kraftlib.runtime.net import api_versions
from kraftlib.runtime.net.notices import Notices
from kraftlib.runtime.net.receiver import NetworkReceiver
from kraftlib.runtime.net.transport import Destination, Frame, Transport
from kraftlib.types import Endpoint
from kraftlib.wire.apis import APIS, FIRST_PRIVATE_KEY, ApiKey, ErrorCode, error_name
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.api_versions import ApiVersionsResponse

logger = logging.getLogger(__name__)

Identified = Callable[[Endpoint, bool], None]
"""Is called with every new connection: whether the peer is a controller of Kafka."""

HELD_MAX: Final = 1_024
"""Requests to one destination that wait for its versions."""


@define(eq=False)
class _Line:
    """A connection with a peer, and the facts about the peer that hold while it lasts."""

    destination: Destination
    endpoint: Endpoint
    """Its endpoint, as the last request has named it: the next one most likely names the same object."""
    served: dict[int, Versions] | None = None
    """The versions that the peer serves; None until it has answered ApiVersions."""
    chosen: dict[type[Message], int | None] = attrs.Factory(dict)
    held: list[tuple[int, Message]] = attrs.Factory(list)
    unanswered: int = 0
    answered: int = 0
    looked_at: int = 0
    """The value of `answered` at the last check."""
    silences: int = 0
    """Number of consecutive checks with a pending request and no response since the check before."""

    @property
    def is_ours(self) -> bool:
        """Whether the peer serves the private APIs of kraftlib."""
        return any(key >= FIRST_PRIVATE_KEY for key in self.served or ())

    def choose(self, request: type[Message]) -> int | None:
        """Choose the version to speak; None, if there is none."""
        version = self.chosen[request] = api_versions.common_version(request, self.served or {})
        return version


class RequestSender:
    """Sends requests and reports their responses."""

    def __init__(
        self,
        transport: Transport,
        receiver: NetworkReceiver,
        *,
        client_id: str,
        silence_s: float,
        notices: Notices,
        identified: Identified,
    ) -> None:
        self._transport: Final = transport
        self._receiver: Final = receiver
        self._client_id: Final = client_id
        self._silence_s: Final = silence_s
        self._notices: Final = notices
        self._identified: Final = identified
        self._loop: Final = asyncio.get_running_loop()
        self._lines: dict[int, _Line] = {}
        self._failures: list[tuple[int, Failure]] = []
        self._last_wire_id = 0
        self._watching = self._loop.call_later(silence_s / 2, self._watch)

    def close(self) -> None:
        """Stop sending requests and reporting results."""
        self._watching.cancel()
        self._lines.clear()
        self._failures.clear()

    def send(self, correlation_id: int, destination: int, endpoint: Endpoint, request: Message) -> None:
        """Send `request`; the result is reported with `correlation_id`.

        Fails with UNSUPPORTED_VERSION, if the peer serves no version of it, or none that can hold it: a pre-vote needs
        version 2 of Vote.
        """
        line = self._lines.get(destination)
        if line is None or (line.endpoint is not endpoint and line.endpoint != endpoint):
            line = self._begin(Destination(destination, endpoint), line)
        line.endpoint = endpoint
        if line.served is not None:
            self._ask(line, correlation_id, request)
        elif len(line.held) < HELD_MAX:
            line.held.append((correlation_id, request))
        else:
            self._fail_soon(correlation_id, Failure.UNSENT)

    def meet(self, destination: int, endpoint: Endpoint) -> None:
        """Connect to a peer without a request, to learn what it is."""
        if destination not in self._lines:
            self._begin(Destination(destination, endpoint), None)

    def look(self) -> None:
        """Drop connections over which nothing has come for too long while something should: their peer may be gone.

        The core gives up a request by itself. This makes sure that the next one does not wait behind it.
        """
        for line in list(self._lines.values()):
            silent = line.unanswered > 0 and line.answered == line.looked_at
            line.silences, line.looked_at = (line.silences + 1 if silent else 0), line.answered
            if line.silences > 2:
                self._break_off(line, f"no answer within {self._silence_s * 1000:.0f} ms")

    def connection_lost(self, destination: Destination, refused: bool) -> None:
        """Forget the versions of that connection; report the failed requests, then the loss."""
        line = self._lines.get(destination.number)
        if line is not None and line.destination == destination:
            self._forget(line)
        self._tell_failures()
        self._receiver.connection_lost(destination.number, refused)

    def _ask(self, line: _Line, correlation_id: int, request: Message) -> None:
        kind = type(request)
        version = line.chosen[kind] if kind in line.chosen else line.choose(kind)
        if version is None:
            self._fail_soon(correlation_id, Failure.UNSUPPORTED_VERSION)
            return
        if request.unknown_tagged_fields and not line.is_ours:
            request = attrs.evolve(
                request, unknown_tagged_fields=()
            )  # Kafka would skip them; it need not even see them
        wire_id = self._last_wire_id = (self._last_wire_id + 1) & 0x7FFFFFFF
        try:
            frame = encode_request(request, version=version, correlation_id=wire_id, client_id=self._client_id)
        except LocalProtocolError as error:
            logger.debug("%s cannot be sent to %s: %s", type(request).__name__, line.destination, error)
            self._fail_soon(correlation_id, Failure.UNSUPPORTED_VERSION)
            return
        line.unanswered += 1
        reply = partial(self._answered, line, correlation_id, request.api_key, version, wire_id)
        self._transport.send(line.destination, frame, reply)

    def _answered(
        self, line: _Line, correlation_id: int, api_key: int, version: int, asked_id: int, frame: Frame | None
    ) -> None:
        """Take the answer to a request of this API and version, whose id on the wire is `asked_id`."""
        line.unanswered -= 1
        line.answered += 1
        if frame is None:
            self._forget(line)
            self._fail_soon(correlation_id, Failure.DISCONNECTED)
            return
        try:
            wire_id, message = decode_response(frame, api_key=api_key, version=version)
            if wire_id != asked_id:
                raise RemoteProtocolError(f"the answer to request {asked_id} came as one to {wire_id}")
        except (ProtocolError, MemoryError) as error:
            self._break_off(line, f"{APIS[api_key].key.name} v{version}: {error}")
            self._fail_soon(correlation_id, Failure.MALFORMED)
            return
        self._receiver.response_received(correlation_id, message)

    # Agreeing on versions

    def _begin(self, destination: Destination, old: _Line | None) -> _Line:
        """Send ApiVersions to a peer; other requests wait for the answer."""
        if old is not None:
            self._forget(old)
        line = self._lines[destination.number] = _Line(destination, destination.endpoint)
        self._ask_versions(line, api_versions.ASKED)
        return line

    def _ask_versions(self, line: _Line, version: int) -> None:
        wire_id = self._last_wire_id = (self._last_wire_id + 1) & 0x7FFFFFFF
        frame = encode_request(
            api_versions.question(), version=version, correlation_id=wire_id, client_id=self._client_id
        )

        def answered(frame: Frame | None) -> None:
            line.unanswered -= 1
            line.answered += 1
            self._versions_told(line, version, wire_id, frame)

        line.unanswered += 1
        self._transport.send(line.destination, frame, answered)

    def _versions_told(self, line: _Line, version: int, wire_id: int, frame: Frame | None) -> None:
        if self._lines.get(line.destination.number) is not line:
            return  # its caller does not wait any more
        if frame is None:
            self._forget(line)
            return
        try:
            response = _read_versions(frame, version, wire_id)
        except (ProtocolError, MemoryError) as error:
            self._break_off(line, f"API_VERSIONS v{version}: {error}", Failure.MALFORMED)
            return
        if response.error_code == ErrorCode.NONE:
            line.served = api_versions.ranges(response)
            self._identified(line.destination.endpoint, api_versions.is_controller(response))
            held, line.held = line.held, []
            for correlation_id, request in held:
                self._ask(line, correlation_id, request)
            return
        again = api_versions.version_to_ask_again(response)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and again is not None and again < version:
            self._ask_versions(line, again)
        else:
            reason = f"API_VERSIONS v{version}: refused with {error_name(response.error_code)}"
            self._break_off(line, reason, Failure.UNSUPPORTED_VERSION)

    # Failing

    def _forget(self, line: _Line, failure: Failure = Failure.UNSENT) -> None:
        """Let the next request ask for versions anew; fail the waiting requests."""
        if self._lines.get(line.destination.number) is line:
            del self._lines[line.destination.number]
        held, line.held = line.held, []
        for correlation_id, _ in held:
            self._fail_soon(correlation_id, failure)

    def _break_off(self, line: _Line, reason: str, failure: Failure = Failure.UNSENT) -> None:
        """Drop the connection with a peer that we do not understand."""
        destination = line.destination
        self._notices.warn(
            "answer", destination, "broke off with %s (%d): %s", destination.endpoint, destination.number, reason
        )
        self._forget(line, failure)
        self._transport.disconnect(destination)

    def _fail_soon(self, correlation_id: int, failure: Failure) -> None:
        if not self._failures:
            self._loop.call_soon(self._tell_failures)
        self._failures.append((correlation_id, failure))

    def _tell_failures(self) -> None:
        failures, self._failures = self._failures, []
        for correlation_id, failure in failures:
            self._receiver.request_failed(correlation_id, failure)

    def _watch(self) -> None:
        self.look()
        self._notices.summarize()
        self._watching = self._loop.call_later(self._silence_s / 2, self._watch)


def _read_versions(frame: Frame, version: int, wire_id: int) -> ApiVersionsResponse:
    """Read the answer to ApiVersions. A peer that does not know `version` answers in version 0, with that error."""
    if bytes(frame[4:6]) == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
        version = 0
    answered_id, response = decode_response(frame, api_key=ApiKey.API_VERSIONS, version=version)
    if answered_id != wire_id or not isinstance(response, ApiVersionsResponse):
        raise RemoteProtocolError(f"the answer to request {wire_id} came as one to {answered_id}")
    return response
