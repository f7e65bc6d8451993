"""JSON lines over a socket: one object a line, answers matched to requests by the `id` that both carry.

No client has to log in. So a port is for loopback on a machine without other users, and on a Unix socket only processes
of the server's own user are served. The first line that is no JSON object ends the connection: it comes from a web
browser, or from another program that was made to connect, and its next line may well look like a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from kraftlib.errors import ConfigError, StorageError
from kraftlib.runtime.net.unix_sockets import bind_unix, dial, remove
from kraftlib.security.unix_users import own_principal, user_of
from kraftlib.types import Endpoint, socket_path

logger = logging.getLogger("kraftlib.cli.lines")

LINE_MAX_BYTES: Final = 64 * 1024 * 1024
SOCKET_MODE: Final = 0o600
REQUESTS_MAX: Final = 1_024
"""Requests of one connection that are under way at once; the next one is read when one of them is answered."""

Answerer = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


class LineServer:
    """Hands every line that is a JSON object to `answer`, and writes what comes back."""

    def __init__(self, answer: Answerer) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._path: str | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, endpoint: Endpoint) -> Endpoint:
        """Listen; return where. Raises: StorageError, if the address is in use or not ours."""
        path = socket_path(endpoint.host)
        try:
            if path is not None:
                listener = bind_unix(path, SOCKET_MODE)
                self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LINE_MAX_BYTES)
                self._path = path
                return endpoint
            self._server = await asyncio.start_server(self._serve, endpoint.host, endpoint.port, limit=LINE_MAX_BYTES)
        except OSError as error:
            raise StorageError(f"cannot listen on {endpoint} for clients: {error.strerror or error}") from error
        except ConfigError as error:
            raise StorageError(f"no clients are served: {error}") from error
        return Endpoint(endpoint.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and drop all connections."""
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            remove(self._path)
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        room = asyncio.Semaphore(REQUESTS_MAX)
        try:
            if self._path is not None and (reason := _why_not(writer)) is not None:
                writer.write(_refusal(reason))
                return
            async with asyncio.TaskGroup() as requests:
                while line := await _read_line(reader, writer):
                    if (request := _parsed(line)) is None:
                        writer.write(_refusal(f"{line[:80]!r} is no JSON object"))
                        break
                    await room.acquire()
                    requests.create_task(self._respond(request, writer)).add_done_callback(lambda _: room.release())
                    await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # gone, or told to go: the client sees the end of the connection
        finally:
            writer.close()

    async def _respond(self, request: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(request)
        except Exception as error:  # the other requests of this connection go on
            logger.exception("a request was not answered")
            answer = {"error": type(error).__name__, "message": str(error)}
        if "id" in request:
            answer = {"id": request["id"], **answer}
        writer.write(encode_line(answer))


def _why_not(writer: asyncio.StreamWriter) -> str | None:
    """Return why the process at the other end of a Unix socket is not served; None if it is one of our own user."""
    user = user_of(writer.get_extra_info("socket")).principal
    return None if user == own_principal() else f"this socket is for processes of {own_principal()}, and not of {user}"


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the request of a line; None if it is none."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return request if isinstance(request, dict) else None


async def _read_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return the next line; empty at the end, and after a line that is too long."""
    try:
        return await reader.readline()
    except ValueError:
        writer.write(_refusal(f"a line has more than {LINE_MAX_BYTES} bytes"))
        return b""


def _refusal(message: str) -> bytes:
    return encode_line({"error": "RemoteProtocolError", "message": message})


def encode_line(value: Mapping[str, Any]) -> bytes:
    """Return `value` as one line of JSON."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


class LineClient:
    """One connection to a LineServer, for any number of requests at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._closed = False
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, endpoint: Endpoint) -> LineClient:
        """Connect; on a Unix socket to a process of our own user, or of one that root trusts. Raises: OSError."""
        if (path := socket_path(endpoint.host)) is not None:
            made = await dial(path, frozenset())
            return cls(*await asyncio.open_unix_connection(sock=made, limit=LINE_MAX_BYTES))
        return cls(*await asyncio.open_connection(endpoint.host, endpoint.port, limit=LINE_MAX_BYTES))

    async def ask(self, request: Mapping[str, Any], *, timeout_ms: int = 10_000) -> dict[str, Any]:
        """Return the answer to `request`.

        Raises: ConnectionError, if the connection ends first; TimeoutError. The outcome is then unknown.
        """
        if self._closed or self._writer.is_closing():
            raise ConnectionResetError("the connection has ended")
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._writer.write(encode_line({"id": number, **request}))
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await answer
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """End the connection."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _read(self) -> None:
        reason = "the connection ended before the answer came"
        try:
            while line := await self._reader.readline():
                answer = json.loads(line)
                waiting = self._waiting.get(answer.get("id"))
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except (ConnectionError, ValueError, TypeError, AttributeError, RecursionError) as error:
            reason += f": {error}"  # also a server of another kind
        finally:
            self._closed = True
            self._writer.close()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionResetError(reason))
