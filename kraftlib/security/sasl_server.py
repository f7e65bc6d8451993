"""The accepting side of SASL: the tokens that may come on a connection before its peer is known.

    SaslHandshake   -> the mechanism is taken, or the accepted ones are named
    SaslAuthenticate -> one token of the mechanism in each direction, until the user is known

ApiVersions may come before, and nothing else. After a failure the client may begin again, `TRIES_MAX` times in all. The
order, the versions and the errors are those of Kafka (KIP-43, KIP-152); version 0 of SaslHandshake, which sends tokens
without a frame of their own, is not served. A session has no lifetime (KIP-368): it ends with its connection.

A state machine over frames: it knows no socket and no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kraftlib.codec.declarations import Message
from kraftlib.codec.reader import Buffer
from kraftlib.errors import ProtocolError
from kraftlib.frozen import immutable
from kraftlib.security.before_login import SERVED, too_early
from kraftlib.security.sasl import DIGESTS, NAME_MAX
from kraftlib.security.sasl_users import Login, SaslUsers
from kraftlib.security.scram import ScramError, ScramServer, ScramVerifier, is_name
from kraftlib.wire.apis import ApiKey, ErrorCode
from kraftlib.wire.frames import decode_request, encode_response
from kraftlib.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kraftlib.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

TRIES_MAX: Final = 3
"""Failures on one connection before it is closed."""

VERSIONS_MAX: Final = 3
"""Requests for ApiVersions before authentication: a client asks again if it knows other versions than we do."""

REFUSAL: Final = "Authentication failed: wrong mechanism, user or password"
"""The text that a client is told at any failure."""


@immutable(kw_only=True)
class Check:
    """The password of a client is to be checked, and its next step depends on that."""

    run: Callable[[], bool]
    """Milliseconds of work, in any thread: whether it is right."""
    then: Callable[[bool | None], Step]
    """Returns the step. None: it was not looked at, since there are too many."""


@immutable(kw_only=True)
class Step:
    """The reaction to one frame. Exactly one of `pass_on`, `check`, `answer` and `close` says how it is answered."""

    pass_on: bool = False
    """It is ApiVersions, which is answered as ever."""

    check: Check | None = None
    """The next step takes milliseconds of work."""

    answer: bytes | None = None
    user: str | None = None
    """The client has proved to be this user: send `answer`, and serve its requests."""

    failure: str | None = None
    """The reason for which a try failed, for our log: send `answer` after a pause."""

    close: bool = False
    """Close the connection, after `answer` if there is one. `failure` says why."""


class _Scram:
    def __init__(self, users: SaslUsers, mechanism: str) -> None:
        self._users: Final = users
        self._server: Final = ScramServer(DIGESTS[mechanism], partial(self._verifier_of, mechanism))
        self._login: Login = ()
        self._is_first = True
        self.user: str | None = None

    def _verifier_of(self, mechanism: str, name: str) -> tuple[ScramVerifier, bool]:
        _refuse_our_own(self._users, name)
        self._login = self._users.login_of(name)
        return self._users.verifier_of(mechanism, name)

    def next(self, token: bytes) -> bytes:
        if self._is_first:
            self._is_first = False
            return self._server.first(token)
        answer = self._server.final(token)
        _refuse_changed(self._users, self._server.username, self._login)
        self.user = self._server.username
        return answer


class _Plain:
    """RFC 4616: a user to act as, which is empty or the user itself; the user; the password; zero bytes between."""

    def __init__(self, users: SaslUsers) -> None:
        self._users: Final = users

    def read(self, token: bytes) -> tuple[str, bytes]:
        """Return the name and the password of a token. Raises: ScramError, if it does not fit."""
        parts = bytes(token).split(b"\0")
        if len(parts) != len(("authzid", "name", "password")) or not 0 < len(parts[1]) <= NAME_MAX * 4:
            raise ScramError("a token that is no PLAIN")
        try:
            name = parts[1].decode()
        except UnicodeDecodeError:
            raise ScramError("a user name that is no UTF-8") from None
        if parts[0] not in (b"", parts[1]) or not is_name(name):
            raise ScramError("a user name that is none, or one that wants to act as another")
        _refuse_our_own(self._users, name)
        return name, parts[2]


def _refuse_our_own(users: SaslUsers, name: str) -> None:
    """Raises: ScramError, for the user that is this replica alone: it does not connect to itself.

    Without TLS a server that this replica dials could pass its login on, to this very replica.
    """
    if users.is_own(name):
        raise ScramError(f"{name!r} is the user of this replica itself; two with one node_id, or a login passed on")


def _refuse_changed(users: SaslUsers, name: str, login: Login) -> None:
    """Raises: ScramError, if a user was removed or has another password since its login began, maybe long ago."""
    if users.login_of(name) != login:
        raise ScramError(f"{name!r} was removed, or has another password, while it logged in")


class SaslServer:
    """One accepted connection until its user is known."""

    def __init__(self, users: SaslUsers) -> None:
        self._users: Final = users
        self._accepted: Final = users.config.accepted
        self._mechanism: _Scram | _Plain | None = None
        self._tries = 0
        self._versions_asked = 0

    def receive(self, frame: Buffer) -> Step:
        """Take a frame. Nothing raises: a wrong frame is a failure, or the end of the connection."""
        key = int.from_bytes(frame[:2], "big", signed=True)
        if key == ApiKey.API_VERSIONS and self._mechanism is None and self._versions_asked < VERSIONS_MAX:
            self._versions_asked += 1
            return Step(pass_on=True)
        if key not in SERVED:
            return Step(close=True, failure=too_early(key))
        try:
            request = decode_request(frame)
        except (ProtocolError, MemoryError) as error:
            return Step(close=True, failure=f"{type(error).__name__}: {error}")
        version, message = request.api_version, request.message

        def answer(response: Message) -> bytes:
            return encode_response(response, version=version, correlation_id=request.correlation_id)

        if isinstance(message, SaslHandshakeRequest) and self._mechanism is None and version in SERVED[request.api_key]:
            return self._handshake(message, answer)
        if isinstance(message, SaslAuthenticateRequest) and self._mechanism is not None:
            return self._authenticate(self._mechanism, message, answer)
        name = ApiKey(request.api_key).name
        return Step(close=True, failure=f"{name} version {version} came out of order")

    def _handshake(self, message: SaslHandshakeRequest, answer: Callable[[Message], bytes]) -> Step:
        name = message.mechanism
        if name not in self._accepted:
            refused = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=tuple(self._accepted)
            )
            return self._failed(answer(refused), f"mechanism {name[:64]!r}, accepted is {', '.join(self._accepted)}")
        self._mechanism = _Scram(self._users, name) if name in DIGESTS else _Plain(self._users)
        return Step(answer=answer(SaslHandshakeResponse(mechanisms=tuple(self._accepted))))

    def _authenticate(
        self, mechanism: _Scram | _Plain, message: SaslAuthenticateRequest, answer: Callable[[Message], bytes]
    ) -> Step:
        try:
            if isinstance(mechanism, _Plain):
                return self._check(*mechanism.read(message.auth_bytes), answer)
            token = mechanism.next(bytes(message.auth_bytes))
        except ScramError as error:
            return self._refused(answer, str(error))
        return Step(answer=answer(SaslAuthenticateResponse(auth_bytes=token, error_message=None)), user=mechanism.user)

    def _check(self, name: str, password: bytes, answer: Callable[[Message], bytes]) -> Step:
        login = self._users.login_of(name)

        def then(is_right: bool | None) -> Step:
            if is_right is None:
                return self._refused(answer, "too many wrong passwords, from there or in all: not looked at")
            if not is_right:
                return self._refused(answer, "wrong password, or no such user")
            try:
                _refuse_changed(self._users, name, login)
            except ScramError as error:
                return self._refused(answer, str(error))
            return Step(answer=answer(SaslAuthenticateResponse(error_message=None)), user=name)

        return Step(check=Check(run=lambda: self._users.is_password(name, password), then=then))

    def _refused(self, answer: Callable[[Message], bytes], failure: str) -> Step:
        self._mechanism = None
        refused = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=REFUSAL)
        return self._failed(answer(refused), failure)

    def _failed(self, answer: bytes, failure: str) -> Step:
        self._tries += 1
        return Step(answer=answer, failure=failure, close=self._tries >= TRIES_MAX)
