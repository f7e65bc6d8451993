"""One connection of a client to a replica: TLS, a password and ApiVersions first, then requests, any number at a time.

When it breaks, all pending calls get a LostError, which says whether their request may have arrived. A replica answers
everything within a time that the request names, so silence beyond it is a broken connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from typing import Any, Final, TypeVar, cast

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.errors import ProtocolError
from kraftlib.runtime.net.api_versions import ASKED, SERVICE, question, ranges
from kraftlib.runtime.net.framing import BadFrameError, FrameReader, framed
from kraftlib.runtime.net.sockets import handshake_trouble, on_its_way, reach
from kraftlib.runtime.net.unix_sockets import dial
from kraftlib.security.before_login import SaslError
from kraftlib.security.own_thread import in_own_thread
from kraftlib.security.sasl_client import SaslClient
from kraftlib.types import Endpoint, socket_path
from kraftlib.wire.apis import ErrorCode, error_name
from kraftlib.wire.frames import MAX_FRAME_BYTES, decode_response, encode_request
from kraftlib.wire.messages.api_versions import ApiVersionsResponse

CLIENT_ID: Final = "kraftlib-client"
READ_BYTES: Final = 64 * 1024

M = TypeVar("M", bound=Message)


class LostError(Exception):
    """The connection is lost, or could not be made: the text says why. It never leaves this package."""

    def __init__(self, reason: str, *, may_have_arrived: bool = False) -> None:
        super().__init__(reason)
        self.may_have_arrived = may_have_arrived
        """Whether the request had left."""


@attrs.define(eq=False)
class _Asked:
    correlation_id: int
    api_key: int
    sent: float
    answer: asyncio.Future[Message]


class Connection:
    """An open connection. Make one with `connected_to`."""

    def __init__(self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.endpoint: Final = endpoint
        self._reader: Final = reader
        self._writer: Final = writer
        self._frames: Final = FrameReader(MAX_FRAME_BYTES)
        self._asked: deque[_Asked] = deque()
        self._last_id = 0
        self._lost: LostError | None = None
        self._reading: asyncio.Task[None] | None = None
        self._heard = 0.0
        self._arrived = 0

    @property
    def is_lost(self) -> bool:
        """Whether it is of no more use."""
        return self._lost is not None

    async def begin(self, sasl: SaslClient | None) -> None:
        """Log in, and ask for the versions. Raises: LostError."""
        try:
            if sasl is not None:
                await self._log_in(sasl)
            frame = encode_request(question(), version=ASKED, correlation_id=0, client_id=CLIENT_ID)
            self._writer.write(framed(frame))
            _, answer = decode_response(await self._frame(), api_key=question().api_key, version=ASKED)
        except (OSError, ProtocolError, BadFrameError, SaslError) as error:
            raise LostError(f"{self.endpoint}: {error}") from None
        versions = cast(ApiVersionsResponse, answer)
        if versions.error_code != ErrorCode.NONE:
            raise LostError(f"{self.endpoint} refuses ApiVersions with {error_name(versions.error_code)}")
        if not set(SERVICE) <= set(ranges(versions)):
            raise LostError(f"{self.endpoint} serves no clients: open that replica with kraftlib.open")
        self._reading = asyncio.ensure_future(self._read())

    async def _log_in(self, sasl: SaslClient) -> None:
        frame: bytes | None = sasl.start()
        while frame is not None:
            self._writer.write(framed(frame))
            # With a new salt this computes for up to a second.
            frame = await in_own_thread(sasl.receive, await self._frame())

    async def ask(self, request: Message, response_class: type[M], *, silence_s: float) -> M:
        """Return the answer. Nothing may come over the connection for `silence_s`, or it is lost. Raises: LostError."""
        if self._lost is not None:
            raise self._lost
        self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        frame = encode_request(request, version=0, correlation_id=self._last_id, client_id=CLIENT_ID)
        loop = asyncio.get_running_loop()
        asked = _Asked(self._last_id, request.api_key, loop.time(), loop.create_future())
        self._asked.append(asked)
        self._writer.write(framed(frame))
        while not asked.answer.done():
            # It owes the first answer longest, also where the caller of that has gone.
            left_s = max(self._asked[0].sent, self._heard) + silence_s - loop.time()
            if left_s <= 0:
                self.lose(f"no answer within {silence_s:.1f} s")
            if not (await asyncio.wait((asked.answer,), timeout=min(left_s, silence_s / 6)))[0]:
                self._look()
        return cast(M, asked.answer.result())

    def _look(self) -> None:
        """Take bytes of requests that arrive for a sign of life: on a slow line, a large one takes its time."""
        waiting, arrived = on_its_way(self._writer.get_extra_info("socket"))
        if waiting and arrived > self._arrived:
            self._heard = asyncio.get_running_loop().time()
        self._arrived = arrived

    def lose(self, reason: str) -> None:
        """Break it off: all that wait get a LostError."""
        if self._lost is None:
            self._lost = LostError(f"{self.endpoint}: {reason}")
            self._writer.transport.abort()  # nothing that is left to send counts, and a replica may read no more
            for asked in self._asked:
                if not asked.answer.done():
                    asked.answer.set_exception(LostError(str(self._lost), may_have_arrived=True))
                    asked.answer.exception()  # a caller that was cancelled does not ask
            self._asked.clear()

    async def close(self) -> None:
        """Close it."""
        self.lose("closed")
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _frame(self) -> Any:
        while (frame := self._frames.next_frame()) is None:
            data = await self._reader.read(READ_BYTES)
            if not data:
                raise ConnectionResetError("it closed the connection")
            self._heard = asyncio.get_running_loop().time()
            self._frames.feed(data)
        return frame

    async def _read(self) -> None:
        try:
            while True:
                frame = await self._frame()
                if not self._asked:
                    raise ConnectionResetError("it answers what was not asked")
                asked = self._asked[0]  # it stays there until its answer is right: otherwise it is told of the loss
                number, message = decode_response(frame, api_key=asked.api_key, version=0)
                if number != asked.correlation_id:
                    raise ConnectionResetError(f"it answers request {number}, not {asked.correlation_id}")
                self._asked.popleft()
                if not asked.answer.done():
                    asked.answer.set_result(message)
        except (OSError, ProtocolError, BadFrameError, MemoryError) as error:
            self.lose(str(error))


async def connected_to(
    endpoint: Endpoint, *, tls: ssl.SSLContext | None, sasl: SaslClient | None, timeout_s: float
) -> Connection:
    """Return a connection on which requests can be asked. Raises: LostError."""
    path = socket_path(endpoint.host)
    connection: Connection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            if path is not None:
                reader, writer = await asyncio.open_unix_connection(sock=await dial(path, frozenset()))
            else:
                name = None if tls is None else endpoint.host
                where = await reach(endpoint, timeout_s)
                reader, writer = await asyncio.open_connection(**where, ssl=tls, server_hostname=name)
            connection = Connection(endpoint, reader, writer)
            await connection.begin(sasl if path is None else None)
            return connection
    except BaseException as error:
        if connection is not None:
            connection.lose("closed")
        if isinstance(error, TimeoutError):
            raise LostError(f"{endpoint} gave no answer within {timeout_s:.1f} s") from None
        if isinstance(error, OSError | ValueError | OverflowError):
            raise LostError(f"{endpoint} cannot be reached: {handshake_trouble(error)}") from None
        raise
