"""JSON lines over a socket: one object a line, answers matched to requests by the `id` that both carry."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from kraftlib.errors import StorageError
from kraftlib.types import Endpoint

logger = logging.getLogger("kraftlib.cli.lines")

LINE_MAX_BYTES: Final = 64 * 1024 * 1024
REQUESTS_MAX: Final = 1_024
"""Requests of one connection that are under way at once; the next one is read when one of them is answered."""

Answerer = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


class LineServer:
    """Hands every line that is a JSON object to `answer`, and writes what comes back."""

    def __init__(self, answer: Answerer) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, endpoint: Endpoint) -> Endpoint:
        """Listen; return where. Raises: StorageError, if the address is in use or not ours."""
        try:
            self._server = await asyncio.start_server(self._serve, endpoint.host, endpoint.port, limit=LINE_MAX_BYTES)
        except OSError as error:
            raise StorageError(f"cannot listen on {endpoint} for clients: {error.strerror or error}") from error
        return Endpoint(endpoint.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and drop all connections."""
        if self._server is not None:
            self._server.close()
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
            async with asyncio.TaskGroup() as requests:
                while line := await _read_line(reader, writer):
                    await room.acquire()
                    requests.create_task(self._respond(line, writer)).add_done_callback(lambda _: room.release())
                    await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # gone, or told to go: whoever asked hears of it by the end of the connection
        finally:
            writer.close()

    async def _respond(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            request = error
        if isinstance(request, dict):
            try:
                answer = await self._answer(request)
            except Exception as error:  # the other requests of this connection go on
                logger.exception("a request was not answered")
                answer = {"error": type(error).__name__, "message": str(error)}
            if "id" in request:
                answer = {"id": request["id"], **answer}
        else:
            answer = _refusal(f"{line[:80]!r} is no JSON object")
        writer.write(encode_line(answer))


async def _read_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return the next line; empty at the end, and after a line that is too long."""
    try:
        return await reader.readline()
    except ValueError:
        writer.write(encode_line(_refusal(f"a line has more than {LINE_MAX_BYTES} bytes")))
        return b""


def _refusal(message: str) -> dict[str, Any]:
    return {"error": "RemoteProtocolError", "message": message}


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
        """Connect. Raises: OSError."""
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
        try:
            while line := await self._reader.readline():
                answer = json.loads(line)
                waiting = self._waiting.get(answer.get("id"))
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except ConnectionError:
            pass  # like an end: whoever waits hears of it below
        finally:
            self._closed = True
            self._writer.close()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionResetError("the connection ended before the answer came"))
