"""`kraftlib.connect`: a client of replicas elsewhere, over one connection at a time.

The client keeps to one replica, which forwards to the leader. It looks for another one where the connection is lost,
where nothing comes, and where the replica finds no leader. A request is repeated as the same bytes until the deadline
of its caller: commands bear the identity by which the machine recognises a repetition.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Final, TypeVar

from kraftlib.codec.declarations import Message
from kraftlib.coordination.access import LINEARIZABLE, AtLeast, Change, Consistency, Done, Linearizable
from kraftlib.coordination.arguments import check_bytes, check_consistency, check_since
from kraftlib.coordination.net.connection import Connection, LostError, connected_to
from kraftlib.coordination.net.watching import Watching
from kraftlib.errors import (
    ClosedError,
    ConfigError,
    KraftError,
    OutcomeUnknownError,
    RefusedError,
    TimedOutError,
    UnavailableError,
)
from kraftlib.proposals.outcomes import error_of
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.tls import TlsConfig
from kraftlib.security.tool_context import tool_context
from kraftlib.types import Endpoint, Offset, parse_endpoint
from kraftlib.validators import check_whole_timeout
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.bounds import PROPOSED_BYTES, QUESTION_BYTES
from kraftlib.wire.messages.call import CallRequest, CallResponse
from kraftlib.wire.messages.query import QueryRequest, QueryResponse
from kraftlib.wire_client import Login

ATTEMPT_MS: Final = 2_000
"""A replica is given so long for one attempt; then it says how far it has come, and is asked again."""

SILENCE_S: Final = 3.0
"""A replica that sends nothing for this long while it owes an answer is given up."""

CONNECT_S: Final = 2.0
PAUSE_S: Final = 0.02
PAUSE_MAX_S: Final = 0.5

FINAL: Final = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.MESSAGE_TOO_LARGE}
)
"""Errors that a further attempt would meet again."""

BUSY: Final = frozenset({ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.KAFKA_STORAGE_ERROR})
"""Errors of the leader, which every replica would pass on."""

M = TypeVar("M", bound=Message)


def connect(
    servers: str | Iterable[Endpoint], *, tls: TlsConfig | None = None, sasl: SaslConfig | None = None
) -> ClientAccess:
    """Return the access of a client; use it in an `async with`. It connects when it is first asked.

    `servers` are replicas that were opened with `kraftlib.open`: `host:port` or `unix:/path`, separated by commas.
    `tls` and `sasl` are the tables `[tls]` and `[sasl]` of a configuration. Raises: ConfigError.
    """
    for name, value, wanted in (("tls", tls, TlsConfig), ("sasl", sasl, SaslConfig)):
        if value is not None and not isinstance(value, wanted):
            raise ConfigError(f"{name}={value!r} must be a {wanted.__name__} of kraftlib.security.{name}, or None")
    if isinstance(servers, str):
        servers = [parse_endpoint(text.strip()) for text in servers.split(",") if text.strip()]
    endpoints = tuple(servers) if isinstance(servers, Iterable) else ()
    if not endpoints or not all(isinstance(endpoint, Endpoint) for endpoint in endpoints):
        raise ConfigError(f"servers={servers!r} must name the replicas to ask, such as '10.0.0.1:9191,10.0.0.2:9191'")
    return ClientAccess(endpoints, Login(tls=tls, sasl=sasl))


class ClientAccess:
    """The machine of replicas elsewhere. It is a `kraftlib.coordination.access.Access`."""

    def __init__(self, servers: tuple[Endpoint, ...], login: Login) -> None:
        self._servers: Final = list(servers)
        random.shuffle(self._servers)  # many clients with one list spread over the replicas
        self._login: Final = login
        self._tls: Final = None if login.tls is None else tool_context(login.tls)
        login.client()  # files that cannot be read are told now
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._failures = 0
        self._closed = False
        self._watching: Final = Watching(self)

    async def __aenter__(self) -> ClientAccess:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Everything that waits ends with ClosedError."""
        self._closed = True
        await self._watching.close()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        if self._connection is not None:
            await self._connection.close()

    def use(self, servers: Iterable[Endpoint]) -> None:
        """Ask these replicas from the next connection on."""
        self._servers[:] = servers
        random.shuffle(self._servers)

    # --- asking ------------------------------------------------------------------------------------------------------

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        """Have a command committed and applied. See `Access.call`."""
        check_bytes("command", command)
        check_whole_timeout(timeout_ms, least=1)
        self.check_open()
        if len(command) > PROPOSED_BYTES:
            raise RefusedError(too_large("a command", len(command), PROPOSED_BYTES))
        attempts = _Attempts(timeout_ms)
        try:
            async with asyncio.timeout_at(attempts.deadline):
                while True:
                    answer = await self._try(
                        lambda left_ms: CallRequest(timeout_ms=left_ms, command=command), CallResponse, attempts
                    )
                    if answer is not None:
                        return Done(offset=answer.offset, epoch=answer.epoch, result=answer.result)
        except (TimeoutError, ClosedError):
            if attempts.in_doubt:
                raise OutcomeUnknownError(
                    f"the command was sent, and whether it is applied is not known after {timeout_ms} ms: "
                    f"{attempts.reason}; call again with the same bytes"
                ) from None
            self.check_open()
            raise UnavailableError(f"nothing was appended within {timeout_ms} ms: {attempts.reason}") from None
        except KraftError as error:
            if attempts.in_doubt:
                raise OutcomeUnknownError(f"a repetition was refused ({error}), and the first may be applied") from None
            raise RefusedError(str(error)) from None

    async def query(
        self, question: bytes, *, consistency: Consistency = LINEARIZABLE, timeout_ms: int
    ) -> tuple[Offset, bytes]:
        """Ask the applied state. See `Access.query`."""
        check_bytes("question", question)
        check_consistency(consistency)
        check_whole_timeout(timeout_ms, least=1)
        self.check_open()
        if len(question) > QUESTION_BYTES:
            raise ConfigError(too_large("a question", len(question), QUESTION_BYTES))
        attempts = _Attempts(timeout_ms)
        code, offset = (0, -1) if isinstance(consistency, Linearizable) else (2, -1)
        if isinstance(consistency, AtLeast):
            code, offset = 1, consistency.offset

        def request(left_ms: int) -> QueryRequest:
            return QueryRequest(timeout_ms=left_ms, consistency=code, offset=offset, question=question)

        try:
            async with asyncio.timeout_at(attempts.deadline):
                while True:
                    answer = await self._try(request, QueryResponse, attempts)
                    if answer is not None:
                        return answer.offset, answer.answer
        except TimeoutError:
            raise TimedOutError(f"no answer within {timeout_ms} ms: {attempts.reason}") from None

    def watch(self, selector: bytes, since: Offset | None) -> AsyncIterator[Change]:
        """Yield what changes. See `Access.watch`."""
        if len(check_bytes("selector", selector)) > QUESTION_BYTES:
            raise ConfigError(too_large("a selector", len(selector), QUESTION_BYTES))  # it would end all watches
        return self._watching.watch(selector, check_since(since))

    async def _try(self, request: Callable[[int], Message], response_class: type[M], attempts: _Attempts) -> M | None:
        """Ask once; None, if another attempt may do better. Raises: an error that another attempt would meet again."""
        try:
            connection = await self.connection()
            answer: Any = await self.ask(connection, request(attempts.next_ms()), response_class, attempts)
        except LostError as error:
            attempts.reason = str(error)
            return None
        code = answer.error_code
        if code == ErrorCode.NONE:
            return answer  # type: ignore[no-any-return]
        refusal = error_of(code, answer.error_message)
        if code in FINAL:
            raise refusal
        attempts.reason = f"{connection.endpoint}: {refusal}"
        attempts.in_doubt |= isinstance(refusal, OutcomeUnknownError)
        if code in BUSY:
            await asyncio.sleep(PAUSE_S)
        else:
            await self.leave(connection)
        return None

    async def ask(
        self, connection: Connection, request: Message, response_class: type[M], attempts: _Attempts | None = None
    ) -> M:
        """Ask over this connection. Raises: LostError."""
        attempts = attempts or _Attempts(timeout_ms=0)
        was_in_doubt, attempts.in_doubt = attempts.in_doubt, True
        try:
            answer = await connection.ask(request, response_class, silence_s=SILENCE_S)
        except LostError as error:
            attempts.in_doubt = was_in_doubt or error.may_have_arrived
            raise
        attempts.in_doubt = was_in_doubt
        if answer.error_code == ErrorCode.NONE:  # type: ignore[attr-defined]
            self._failures = 0
        return answer

    # --- the connection ----------------------------------------------------------------------------------------------

    async def connection(self) -> Connection:
        """Return the connection, or make one with the next replica. Raises: LostError; ClosedError."""
        self.check_open()
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.ensure_future(self._connect())
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and not (task is not None and task.cancelling()):
                raise ClosedError("this client was closed meanwhile") from None
            raise

    async def _connect(self) -> Connection:
        if self._failures > 0:
            longest_s = min(PAUSE_MAX_S, PAUSE_S * 2 ** min(self._failures // len(self._servers), 8))
            await asyncio.sleep(random.uniform(longest_s / 2, longest_s))
        endpoint = self._servers[0]
        self._failures += 1
        self._servers.append(self._servers.pop(0))  # the next attempt asks the next one
        self._connection = await connected_to(endpoint, tls=self._tls, sasl=self._login.client(), timeout_s=CONNECT_S)
        return self._connection

    async def leave(self, connection: Connection) -> None:
        """Look for another replica: this one cannot help now."""
        if len(self._servers) > 1:
            connection.lose("another replica is asked")
        else:
            await asyncio.sleep(PAUSE_MAX_S / 5)

    def check_open(self) -> None:
        """Raises: ClosedError."""
        if self._closed:
            raise ClosedError("this client is closed")


def too_large(what: str, size: int, most: int) -> str:
    """Return why it is not sent: a replica would break off the connection, and all that wait for it."""
    return f"{what} of {size} bytes is larger than the {most} that a replica takes of a client"


class _Attempts:
    """The attempts at one request so far."""

    def __init__(self, timeout_ms: int) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self.deadline: Final = self._loop.time() + timeout_ms / 1_000
        self.in_doubt = False
        self.reason = "no replica has answered"

    def next_ms(self) -> int:
        """Return the time for the next one: of what is left, enough stays to ask another replica after an error."""
        left_ms = (self.deadline - self._loop.time()) * 1_000
        return min(ATTEMPT_MS, max(1, round(left_ms * 2 / 3)))
