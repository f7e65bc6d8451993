"""Asks a controller, ours or Kafka's, one question after the other: a blocking connection in Kafka's protocol.

The first thing on the connection is ApiVersions; after that every request goes in the highest version that both sides
know. Nothing here belongs to a replica: it is what a tool needs.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from types import TracebackType
from typing import Any, Final, TypeVar, cast

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.errors import KraftError, RemoteProtocolError
from kraftlib.runtime.net.api_versions import ASKED, question
from kraftlib.runtime.net.sockets import connected, handshake_trouble
from kraftlib.security.before_login import SaslError
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_client import SaslClient
from kraftlib.security.sasl_users import load_users
from kraftlib.security.tls import TlsConfig
from kraftlib.security.tool_context import tool_context
from kraftlib.types import Endpoint
from kraftlib.wire.apis import ApiKey, ErrorCode, PrivateApiKey, api_of, error_name
from kraftlib.wire.frames import MAX_FRAME_BYTES, decode_response, describe_foreign_bytes, encode_request

CLIENT_ID: Final = "kraftlib-cli"
NO_REPLICA: Final = -1
_SIZE: Final = struct.Struct(">i")
_REFUSED: Final = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)

R = TypeVar("R", bound=Message)


class UnreachableError(KraftError):
    """The endpoint does not answer."""


@attrs.frozen(kw_only=True)
class Login:
    """The TLS and the password of a tool; None: without."""

    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None

    def client(self) -> SaslClient | None:
        """Return the exchange that a connection begins with. Raises: ConfigError, for files that cannot be read."""
        if self.sasl is None:
            return None
        return SaslClient(
            load_users(self.sasl, NO_REPLICA, encrypted=self.tls is not None, insecure=False), client_id=CLIENT_ID
        )


class WireClient:
    """One connection, as `login` says: over TLS, or with a password, or both; a Unix socket needs neither.

    Use it in a `with`. An answer is waited for as long as `timeout_s`, however many bytes of it come.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, login: Login | None = None) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._correlation_id = 0
        login = login or Login()
        context = None if login.tls is None else tool_context(login.tls)
        sasl = login.client()
        try:
            self._socket = _connected(endpoint, timeout_s, context)
        except (OSError, UnicodeError) as error:  # IDNA refuses some names that a peer may tell
            raise UnreachableError(f"{endpoint} cannot be reached: {_reason(error)}") from error
        try:
            if sasl is not None and self._socket.family != socket.AF_UNIX:
                self._authenticate(sasl)
            self._versions = self._ask_versions()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def knows(self, key: ApiKey | PrivateApiKey) -> bool:
        """Whether the other side answers this kind of request."""
        return key in self._versions

    def ask(self, request: Message, response_class: type[R]) -> R:
        """Return the answer to `request`.

        Raises: UnreachableError, if none comes; RemoteProtocolError, if it cannot be understood, or if both sides know
        no version in common.
        """
        known = api_of(type(request))
        first, last = self._versions.get(request.api_key, (0, -1))
        version = min(last, known.versions.last) if known else -1
        if known is None or version < max(first, known.versions.first):
            raise RemoteProtocolError(f"{self._endpoint} supports no version of {type(request).__name__} that we have")
        return cast("R", self._exchange(request, version))

    def _authenticate(self, sasl: SaslClient) -> None:
        frame: bytes | None = sasl.start()
        try:
            while frame is not None:
                frame = sasl.receive(self._answer_to(frame))
        except SaslError as error:
            raise UnreachableError(f"{self._endpoint} cannot be logged in at: {error}") from error
        except OSError as error:
            raise UnreachableError(f"{self._endpoint} gave no answer to the login: {_reason(error)}") from error

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        answer = self._exchange(question(), ASKED)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self._exchange(question(), min([ASKED, *(key.max_version for key in answer.api_keys)]))
        if answer.error_code != ErrorCode.NONE:
            raise RemoteProtocolError(f"{self._endpoint} refuses ApiVersions: {error_name(answer.error_code)}")
        return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}

    def _exchange(self, request: Message, version: int) -> Any:
        self._correlation_id += 1
        frame = encode_request(request, version=version, correlation_id=self._correlation_id, client_id=CLIENT_ID)
        try:
            answer = self._answer_to(frame)
        except OSError as error:
            raise UnreachableError(f"{self._endpoint} gave no answer: {_reason(error)}") from error
        # A refusal of ApiVersions is always in version 0; its error stands where it always does.
        refused = request.api_key == ApiKey.API_VERSIONS and answer[4:6] == _REFUSED
        correlation_id, message = decode_response(answer, api_key=request.api_key, version=0 if refused else version)
        if correlation_id != self._correlation_id:
            raise RemoteProtocolError(f"{self._endpoint} answers request {correlation_id}, not {self._correlation_id}")
        return message

    def _answer_to(self, frame: bytes) -> bytes:
        deadline = time.monotonic() + self._timeout_s
        self._socket.settimeout(self._timeout_s)
        self._socket.sendall(_SIZE.pack(len(frame)) + frame)
        head = self._read(_SIZE.size, deadline)
        (size,) = _SIZE.unpack(head)
        if not 0 < size <= MAX_FRAME_BYTES:
            what = describe_foreign_bytes(head) or f"a frame of {size} bytes"
            raise RemoteProtocolError(f"{self._endpoint} does not speak Kafka's protocol: it sent {what}")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            if (left_s := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            chunk = self._socket.recv(min(size - len(data), 1024 * 1024))
            if not chunk:
                raise ConnectionResetError("it closed the connection")
            data += chunk
        return bytes(data)


def _connected(endpoint: Endpoint, timeout_s: float, context: ssl.SSLContext | None) -> socket.socket:
    connection = connected(endpoint, timeout_s)
    try:
        return (
            connection
            if context is None or connection.family == socket.AF_UNIX
            else context.wrap_socket(connection, server_hostname=endpoint.host)
        )
    except BaseException:
        connection.close()
        raise


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, ssl.SSLError):
        return handshake_trouble(error)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
