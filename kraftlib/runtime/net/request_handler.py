"""The requests of a service that need roles, versions, features or envelopes of their own.

A metadata controller serves brokers and admin clients this way (`kraftlib.controller`). The replica answers ApiVersions
for both, authenticates and authorizes the sender, and unpacks an Envelope, if the application serves that: the request
inside is then handled as if its client had sent it here (KIP-590).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kraftlib.codec.declarations import Message
from kraftlib.codec.reader import Reader
from kraftlib.codec.versions import Versions
from kraftlib.errors import RemoteProtocolError
from kraftlib.runtime.net.transport import Frame, Peer, Reply
from kraftlib.security.access import PRINCIPAL_MAX, Role
from kraftlib.security.sasl import USER_PREFIX
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.error_rows import has_error_row
from kraftlib.wire.frames import Request, decode_request, encode_response
from kraftlib.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse

Answer = Callable[[Message | None], None]
"""Takes the response to a request, once; None closes the connection."""


class RequestHandler(Protocol):
    """Takes the requests of a service. All calls come on the engine's loop and must not block.

    The service hands it to `Network.serve` as it begins.
    """

    served: Mapping[int, Versions]
    """The versions by API. An API of the replica that stands here too is the application's."""
    roles: Mapping[int, Role]
    """The role that each of these APIs needs."""
    judged: frozenset[int]
    """Those of them that the service judges by rules of its own, beside the roles (`Authorizer.judged`)."""
    forwardable: frozenset[int]
    """The APIs, the replica's own included, that may stand in an Envelope."""
    supported_features: Mapping[str, Versions]
    """The features that ApiVersions names, beside kraft.version."""
    elements_max: int
    """The largest number of array elements in one request of these APIs, from a peer that may ask much
    (`Judge.may_ask_much`)."""

    def finalized_features(self) -> Mapping[str, int]:
        """Return the levels in force, beside kraft.version."""
        ...

    def handle_request(self, request: Message, version: int, peer: Peer, answer: Answer) -> None:
        """Take a request; `answer` may be called later, also after the replica has closed."""
        ...


IPV4_BYTES, IPV6_BYTES = 4, 16


class BadEnvelopeError(RemoteProtocolError):
    """The envelope does not hold a request that may be forwarded."""


def open_envelope(envelope: EnvelopeRequest, *, forwardable: frozenset[int], elements_max: int) -> Request:
    """Return the request in an envelope.

    Raises: RemoteProtocolError, if it cannot be read, or if such a request is never forwarded.
    """
    request = decode_request(envelope.request_data, elements_max=elements_max)
    if request.api_key not in forwardable:
        raise BadEnvelopeError(f"API {request.api_key} is never forwarded")
    return request


def client_of(envelope: EnvelopeRequest, broker: Peer) -> Peer:
    """Return the sender of the request in an envelope, as `broker` has authenticated it.

    Raises: RemoteProtocolError, if it cannot be read, or if a broker does not vouch for such a sender.
    """
    host = envelope.client_host_address
    if len(host) not in (IPV4_BYTES, IPV6_BYTES):
        raise BadEnvelopeError(f"the address of its client has {len(host)} bytes, not {IPV4_BYTES} or {IPV6_BYTES}")
    address = ".".join(map(str, host)) if len(host) == IPV4_BYTES else host.hex()
    principal = _principal(envelope.request_principal)
    name, by_token = USER_PREFIX + principal.name, principal.token_authenticated
    return Peer(address=f"{address}:0", principals=(name,), forwarded_by=broker, by_token=by_token)


def _principal(data: bytes | None) -> DefaultPrincipalData:
    if data is None:
        raise BadEnvelopeError("the envelope names no principal")
    from kraftlib.codec import declared

    reader = Reader(data)
    version = reader.int16()
    principal = declared.read(DefaultPrincipalData, reader, version, expect_end=True)
    name = USER_PREFIX + principal.name
    # A broker vouches for users only. Other kinds of principals are what this replica has found out itself.
    if principal.type + ":" != USER_PREFIX or not len(USER_PREFIX) < len(name) <= PRINCIPAL_MAX:
        raise BadEnvelopeError(f"its principal must be {USER_PREFIX}NAME of at most {PRINCIPAL_MAX} characters")
    return principal


def in_envelope(reply: Reply, *, correlation_id: int) -> Reply:
    """Return what wraps the answer to the inner request, and hands it to `reply`."""

    def wrapped(frame: Frame | None) -> None:
        if frame is None:
            reply(envelope_error(ErrorCode.UNSUPPORTED_VERSION, correlation_id=correlation_id))
        else:
            reply(
                encode_response(EnvelopeResponse(response_data=bytes(frame)), version=0, correlation_id=correlation_id)
            )

    return wrapped


def envelope_error(error_code: int, *, correlation_id: int) -> bytes:
    """Return the answer to an envelope that was not opened, or whose broker must look for the active controller."""
    return encode_response(EnvelopeResponse(error_code=error_code), version=0, correlation_id=correlation_id)


def is_for_the_active_controller(response: Message) -> bool:
    """Whether a response says NOT_CONTROLLER: the broker then finds the active one, and asks again by itself."""
    code = ErrorCode.NOT_CONTROLLER
    return has_error_row(response, code) or bool(getattr(response, "error_code", 0) == code)
