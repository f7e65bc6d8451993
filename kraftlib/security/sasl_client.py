"""The connecting side of SASL: SaslHandshake, then tokens, before any other request of the connection.

A client speaks the one mechanism that it is configured for. Other mechanisms that a server offers are not tried: a
server that offers PLAIN alone must not be told the password. With SCRAM the server proves that it knows the password,
too.

A state machine over frames: it knows no socket and no clock.
"""

from __future__ import annotations

from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.codec.reader import Buffer
from kraftlib.errors import ProtocolError
from kraftlib.security.before_login import SaslError
from kraftlib.security.sasl import DIGESTS
from kraftlib.security.sasl_users import SaslUsers
from kraftlib.security.scram import ScramClient, ScramError
from kraftlib.wire.apis import ApiKey, ErrorCode, error_name
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftlib.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
"""The versions of every release with KRaft (Kafka 2.5 and later): they need not be asked for."""

SHOWN_MAX: Final = 200
"""The number of characters of a server's text that an error shows."""


class SaslClient:
    """One connection of ours until the server knows who we are: send `start()`, then what `receive` returns."""

    def __init__(self, users: SaslUsers, *, client_id: str) -> None:
        self._mechanism: Final = users.config.mechanism
        self._username: Final = users.username
        self._client_id: Final = client_id
        self._plain_token: Final = b"\0".join((b"", users.username.encode(), users.password))
        digest = DIGESTS.get(self._mechanism)
        self._scram = (
            ScramClient(digest, users.username, users.password, salted=users.salted) if digest is not None else None
        )
        self._asked = 0
        """Number of requests that were sent, which is the correlation id of the last."""
        self._tokens = 0

    def start(self) -> bytes:
        """Return the first frame."""
        return self._frame(SaslHandshakeRequest(mechanism=self._mechanism), HANDSHAKE_VERSION)

    def receive(self, frame: Buffer) -> bytes | None:
        """Take an answer; return the next frame, or None when the server knows us, and we the server.

        It may work for as long as the server asks for: up to a second, with a salt that is new.
        Raises: SaslError.
        """
        try:
            if self._asked == 1:
                self._mechanism_told(self._read(frame, ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION))
                return self._token(self._first())
            answer = self._read(frame, ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION)
            token = self._next(self._token_told(answer))
        except ScramError as error:
            raise SaslError(f"{error}; it is not a replica of ours, or its [sasl] has another password") from None
        except (ProtocolError, MemoryError) as error:
            raise SaslError(f"it sent what is no answer: {error}") from None
        return None if token is None else self._token(token)

    def _first(self) -> bytes:
        return self._plain_token if self._scram is None else self._scram.first()

    def _next(self, token: bytes) -> bytes | None:
        self._tokens += 1
        if self._scram is None:
            return None
        if self._tokens == 1:
            return self._scram.final(token)
        self._scram.check(token)
        return None

    def _mechanism_told(self, answer: Message) -> None:
        if not isinstance(answer, SaslHandshakeResponse) or answer.error_code == ErrorCode.NONE:
            return
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms)[:SHOWN_MAX]
            raise SaslError(f"it accepts {offered!r}, and [sasl] mechanism is {self._mechanism}")
        raise SaslError(f"it answers SaslHandshake with {error_name(answer.error_code)}: is SASL on at its listener?")

    def _token_told(self, answer: Message) -> bytes:
        if not isinstance(answer, SaslAuthenticateResponse):
            raise SaslError("it sent another answer")
        if answer.error_code != ErrorCode.NONE:
            text = (answer.error_message or "")[:SHOWN_MAX]
            raise SaslError(
                f"it refuses user {self._username!r} with {error_name(answer.error_code)} {text!r}: "
                "compare the secrets of [sasl] on both sides"
            )
        return bytes(answer.auth_bytes)

    def _token(self, token: bytes) -> bytes:
        return self._frame(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION)

    def _frame(self, request: Message, version: int) -> bytes:
        self._asked += 1
        return encode_request(request, version=version, correlation_id=self._asked, client_id=self._client_id)

    def _read(self, frame: Buffer, key: ApiKey, version: int) -> Message:
        correlation_id, message = decode_response(frame, api_key=key, version=version)
        if correlation_id != self._asked:
            raise SaslError(f"it answers request {correlation_id}, not {self._asked}")
        return message
