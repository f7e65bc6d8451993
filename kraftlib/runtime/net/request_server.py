"""Questions of others: decoded, allowed, handed to the executor, and answered over the connection that they came by.

Bytes of a peer never raise an error here. A request that cannot be read, or is none that we serve, closes its
connection: an error code could not be read either, and some stop a Kafka replica. ApiVersions of a version from the
future is the exception, since its answer is how the two sides agree on one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.codec.versions import Versions
from kraftlib.consensus.extensions.misconfiguration import claimed_id
from kraftlib.errors import InvariantError, LocalProtocolError, ProtocolError, RemoteProtocolError
from kraftlib.records.batch import Batch
from kraftlib.runtime.net import api_versions
from kraftlib.runtime.net.controller_apis import REFUSED, refusal
from kraftlib.runtime.net.hot_loops import HotLoops, is_in_vain
from kraftlib.runtime.net.judge import Judge
from kraftlib.runtime.net.notices import Notices, quoted
from kraftlib.runtime.net.receiver import NetworkReceiver
from kraftlib.runtime.net.request_handler import (
    RequestHandler,
    client_of,
    envelope_error,
    in_envelope,
    is_for_the_active_controller,
    open_envelope,
)
from kraftlib.runtime.net.shares import Shares
from kraftlib.runtime.net.transport import Frame, Peer, Reply
from kraftlib.security import before_login
from kraftlib.security.audit import AuditLog, Sender
from kraftlib.security.audited import AUDITED
from kraftlib.types import ReplicaId
from kraftlib.wire.apis import APIS, ApiKey, ErrorCode, PrivateApiKey, error_answer
from kraftlib.wire.bounds import REQUEST_ELEMENTS
from kraftlib.wire.frames import (
    Request,
    UnknownApiError,
    decode_request,
    encode_fetch_response,
    encode_response,
    refuse_api_versions,
    with_correlation_id,
)
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.envelope import EnvelopeRequest
from kraftlib.wire.messages.fetch import FetchResponse


@attrs.frozen
class _Envelope:
    """An envelope that waits for its answer."""

    reply: Reply
    correlation_id: int

    def refuse(self, error_code: int) -> None:
        """Answer without an inner response."""
        self.reply(envelope_error(error_code, correlation_id=self.correlation_id))


@attrs.define
class _Asked:
    """A request that waits for its answer."""

    reply: Reply
    peer: Peer
    version: int
    correlation_id: int
    audited: Message | None
    """The request, if its answer is audited."""
    envelope: _Envelope | None
    """The envelope that the request was in."""


class RequestServer:
    """Takes requests and sends their answers."""

    def __init__(
        self,
        receiver: NetworkReceiver,
        *,
        features: Callable[[], Mapping[str, int]],
        judge: Judge,
        audit: AuditLog,
        served: Mapping[int, Versions],
        notices: Notices,
        recognized: Callable[[Peer, ReplicaId], None] = lambda peer, replica_id: None,
    ) -> None:
        self._receiver: Final = receiver
        self._features: Final = features
        self._judge: Final = judge
        self._audit: Final = audit
        self._served: Final = served
        self._notices: Final = notices
        self._recognized: Final = recognized
        self._handler: RequestHandler | None = None
        self._handled: Mapping[int, Versions] = {}
        self._supported: Mapping[str, Versions] = api_versions.SUPPORTED_FEATURES
        self._loop: Final = asyncio.get_running_loop()
        self._hot_loops: Final = HotLoops(self._loop.time)
        self._shares: Final = Shares(self._loop.time)
        self._asked: dict[int, _Asked] = {}
        self._last_id = 0
        self._last_answer: tuple[FetchResponse | None, Sequence[Batch], bytes] = None, (), b""

    def serve(self, handler: RequestHandler) -> None:
        """Hand the requests of its APIs to `handler` from now on."""
        self._handler, self._handled = handler, handler.served
        self._supported = {**api_versions.SUPPORTED_FEATURES, **handler.supported_features}

    def finalized_features(self) -> Mapping[str, int]:
        """Return the levels in force, those of the application's features included."""
        own = {} if self._handler is None else self._handler.finalized_features()
        return {**own, **self._features()}

    def close(self) -> None:
        """Forget what was asked."""
        self._asked.clear()

    def request_received(self, frame: Frame, reply: Reply, peer: Peer) -> None:
        """Take a request."""
        before = self._last_id
        try:
            api_key = int.from_bytes(frame[:2], "big")
            if api_key not in self._served:
                self._refuse(reply, peer, f"it asked for API {int.from_bytes(frame[:2], 'big', signed=True)}")
            elif api_key not in self._handled:
                self._read(frame, reply, peer, REQUEST_ELEMENTS)
            else:
                self._read_for_application(api_key, frame, reply, peer)
        except Exception as error:  # noqa: BLE001 - a mistake of ours or of the application: it costs one connection
            failed = self._last_id if self._last_id != before else None
            self._given_up(error, failed, reply, peer)

    def _given_up(self, error: Exception, request_id: int | None, reply: Reply, peer: Peer) -> None:
        """Close the connection of a request that could not be taken, unless it has its answer already."""
        reason = f"{type(error).__name__} of our own: {quoted(str(error))}"
        if request_id is None or self._asked.pop(request_id, None) is not None:
            self._refuse(reply, peer, reason)
        else:
            self._notices.warn(
                "request", _host(peer), "a request of %s, which has its answer: %s", peer.address, reason
            )

    def _read_for_application(self, api_key: int, frame: Frame, reply: Reply, peer: Peer) -> None:
        def read() -> None:
            self._read(frame, reply, peer, self._elements_max(api_key, peer))

        if not self._within_share(peer, api_key, read):
            self._refuse(reply, peer, "it has asked for more work than a peer without a role may")

    def _within_share(self, peer: Peer, api_key: int, work: Callable[[], None]) -> bool:
        """Do work for the application, unless its sender has used up its share; return whether it was done.

        It costs its processor time: on a busy machine a peer does not pay for the time for which this thread waits.
        """
        if self._judge.may_ask_much(peer):
            work()
            return True
        who = _sharer(peer)
        if self._shares.is_used_up(who) and not self._judge.is_up_to_rules(peer, api_key):
            return False
        began = time.thread_time()
        try:
            work()
        finally:
            self._shares.spent(who, time.thread_time() - began)
        return True

    def _read(self, frame: Frame, reply: Reply, peer: Peer, elements_max: int) -> None:
        try:
            request = decode_request(frame, elements_max=elements_max)
        except UnknownApiError as error:
            if error.head.api_key == ApiKey.API_VERSIONS:
                reply(refuse_api_versions(error.head.correlation_id))
            else:
                self._refuse(reply, peer, f"{error}; client id {quoted(error.head.client_id or '')}")
        except (ProtocolError, MemoryError) as error:
            self._refuse(reply, peer, f"{type(error).__name__}: {error}")
        else:
            self._take(request, reply, peer)

    def _elements_max(self, api_key: int, peer: Peer) -> int:
        if self._handler is None or api_key not in self._handled:
            return REQUEST_ELEMENTS
        is_up_to_rules = self._judge.is_up_to_rules(peer, api_key) and not self._shares.is_used_up(_sharer(peer))
        return self._handler.elements_max if is_up_to_rules or self._judge.may_ask_much(peer) else REQUEST_ELEMENTS

    def respond(self, request_id: int, response: Message | None) -> None:
        """Answer a request; None closes its connection."""
        asked = self._waiting(request_id)
        if asked.audited is not None:
            self._audit.answered(asked.audited, response, sender=_sender(asked.peer))
        if response is None:
            asked.reply(None)
            return
        if asked.envelope is not None and is_for_the_active_controller(response):
            asked.envelope.refuse(ErrorCode.NOT_CONTROLLER)
            return
        try:
            frame = encode_response(response, version=asked.version, correlation_id=asked.correlation_id)
        except LocalProtocolError as error:  # our own mistake, but what a peer asks must not stop a replica
            self._refuse(asked.reply, asked.peer, f"the answer does not fit into version {asked.version}: {error}")
            return
        pause_s = self._hot_loops.pause_s(asked.peer) if is_in_vain(response) else 0.0
        if pause_s > 0:
            self._notices.counts["hot_loop"] += 1
            self._loop.call_later(pause_s, asked.reply, frame)
        else:
            asked.reply(frame)

    def respond_records(self, request_ids: Sequence[int], response: FetchResponse, batches: Sequence[Batch]) -> None:
        """Answer Fetches of one version alike, with the bytes of `batches` put into the one partition.

        The same response with the same batches as in the call before is not encoded again.
        """
        said, brought, frame = self._last_answer
        is_same = said is response and brought is batches
        for request_id in request_ids:
            asked = self._waiting(request_id)
            if is_same:
                frame = with_correlation_id(frame, asked.correlation_id)
            else:
                pieces, is_same = [batch.data for batch in batches], True
                frame = encode_fetch_response(
                    response, version=asked.version, correlation_id=asked.correlation_id, pieces=pieces
                )
                self._last_answer = response, batches, frame
            asked.reply(frame)

    def _waiting(self, request_id: int) -> _Asked:
        asked = self._asked.pop(request_id, None)
        if asked is None:
            raise InvariantError(f"request {request_id} is not waiting for an answer")
        return asked

    def _respond_if_asked(self, request_id: int, response: Message | None) -> None:
        """Answer for the application, which may be late."""
        if request_id in self._asked:
            self.respond(request_id, response)

    def _open(self, request: Request, handler: RequestHandler, reply: Reply, peer: Peer) -> None:
        """Take the request that is in an envelope."""
        envelope = _Envelope(reply, request.correlation_id)
        message: Any = request.message
        api_key = int.from_bytes(message.request_data[:2], "big")

        def take() -> None:
            inner = open_envelope(
                message, forwardable=handler.forwardable, elements_max=self._elements_max(api_key, client)
            )
            if inner.api_key in self._served:
                self._take(inner, in_envelope(reply, correlation_id=request.correlation_id), client, envelope)
            else:
                envelope.refuse(ErrorCode.UNSUPPORTED_VERSION)

        try:
            client = client_of(message, peer)
            if not self._within_share(client, api_key, take):
                envelope.refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        except (RemoteProtocolError, MemoryError) as error:
            self._notices.warn("request", _host(peer), "refused an envelope of %s: %s", peer.address, error)
            self._audit.refused(message, str(error), sender=_sender(peer))
            envelope.refuse(ErrorCode.INVALID_REQUEST)

    def _take(self, request: Request, reply: Reply, peer: Peer, envelope: _Envelope | None = None) -> None:
        message, version = request.message, request.api_version
        if isinstance(message, ApiVersionsRequest):
            response = api_versions.answer(
                message, version, finalized=self.finalized_features(), served=self._served, supported=self._supported
            )
            reply(encode_response(response, version=version, correlation_id=request.correlation_id))
            return
        if request.api_key in before_login.SERVED:  # that is for the connection, once and before all else
            illegal = error_answer(message, ErrorCode.ILLEGAL_SASL_STATE)
            reply(encode_response(illegal, version=version, correlation_id=request.correlation_id))
            return
        if (found := self._judge.refusal(peer, message)) is not None:
            self._audit.refused(message, found.reason, sender=_sender(peer))
            if found.is_identity:
                self._refuse(reply, peer, found.reason)
            else:
                self._deny(request, reply, peer, found.reason, closes=found.closes)
            return
        if not peer.is_known_voter and (claimed := claimed_id(message)) is not None:
            self._recognized(peer, claimed)
        if self._handler is not None and isinstance(message, EnvelopeRequest) and request.api_key in self._handled:
            self._open(request, self._handler, reply, peer)
            return
        self._last_id = request_id = self._last_id + 1
        audited = message if self._is_audited(message, peer) else None
        self._asked[request_id] = _Asked(reply, peer, version, request.correlation_id, audited, envelope)
        if self._handler is not None and request.api_key in self._handled:
            client = attrs.evolve(self._judge.as_client(peer), client_id=request.client_id or "")
            self._handler.handle_request(message, version, client, partial(self._respond_if_asked, request_id))
        elif request.api_key in REFUSED:
            self.respond(request_id, refusal(message))
        else:
            self._receiver.request_received(request_id, message, version, self._judge.as_sender(peer, message))

    def _is_audited(self, message: Message, peer: Peer) -> bool:
        if message.api_key == PrivateApiKey.PROPOSE:  # of a replica it is the ordinary way of a record
            return bool(peer.principals) and not self._judge.authorizer.is_replica(peer.principals)
        return message.api_key in AUDITED

    def _deny(self, request: Request, reply: Reply, peer: Peer, reason: str, *, closes: bool) -> None:
        """Say that this peer may not ask for that. A Kafka replica stops when it is told so, and is not told."""
        name = APIS[request.api_key].key.name
        who = ", ".join(peer.principals) or "a peer without a name"
        about = (_host(peer), peer.principals, request.api_key)
        self._notices.warn("denied", about, "denied %s to %s (%s): %s", name, peer.address, quoted(who), quoted(reason))
        if closes:
            reply(None)
            return
        code, version = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request.api_version
        response: Any = error_answer(request.message, code, version=version)
        if hasattr(response, "error_message"):
            response = attrs.evolve(response, error_message=reason)
        reply(encode_response(response, version=version, correlation_id=request.correlation_id))

    def _refuse(self, reply: Reply, peer: Peer, reason: str) -> None:
        """Close the connection."""
        reply(None)
        self._notices.warn("request", _host(peer), "closed the connection of %s: %s", peer.address, reason)


def _sender(peer: Peer) -> Sender:
    """Return what the audit log says of a peer."""
    broker = peer.forwarded_by
    words = "" if broker is None else f"{', '.join(broker.principals) or 'a peer without a name'} at {broker.address}"
    return Sender(principals=peer.principals, address=peer.address, forwarded_by=words)


def _sharer(peer: Peer) -> Hashable:
    """Return who has one share of the time: all connections of one name, or of one address."""
    return peer.principals or _host(peer)


def _host(peer: Peer) -> str:
    """Return the address without the port, which changes with every connection."""
    return peer.address.rpartition(":")[0]
