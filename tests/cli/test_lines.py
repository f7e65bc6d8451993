"""JSON lines over real sockets: answers find their requests, and no input ends the server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kraftlib.cli import lines
from kraftlib.cli.lines import LineClient, LineServer
from kraftlib.errors import StorageError
from kraftlib.types import Endpoint, parse_endpoint

ANYWHERE = Endpoint("127.0.0.1", 0)


class Held:
    """Answers `wait` when told to, and everything else at once."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.entered = asyncio.Semaphore(0)

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.entered.release()
        if "wait" in request:
            await self.go.wait()
        if "fail" in request:
            raise LookupError("not to be found")
        return {"echo": request.get("say")}


@pytest.fixture
async def held() -> Held:
    return Held()


@pytest.fixture
async def server(held: Held) -> AsyncIterator[Endpoint]:
    server = LineServer(held.answer)
    yield await server.start(ANYWHERE)
    await server.close()


@pytest.fixture
async def client(server: Endpoint) -> AsyncIterator[LineClient]:
    client = await LineClient.connect(server)
    yield client
    await client.close()


async def test_a_request_that_fails_in_an_unknown_way_is_answered_and_the_others_go_on(
    client: LineClient, held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(10):
        waiting = asyncio.create_task(client.ask({"wait": True, "say": 1}))
        failed = await client.ask({"fail": True})
        assert (failed["error"], failed["message"]) == ("LookupError", "not to be found")
        held.go.set()
        assert (await waiting)["echo"] == 1
    assert "a request was not answered" in caplog.text


async def test_json_too_deep_to_read_is_refused(server: Endpoint) -> None:
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b'{"a":' + b"[" * 200_000 + b"\n")
        assert "no JSON object" in json.loads(await reader.readline())["message"]
        writer.close()


async def test_a_later_request_may_be_answered_first(client: LineClient, held: Held) -> None:
    async with asyncio.timeout(10):
        first = asyncio.create_task(client.ask({"wait": True, "say": 1}))
        assert (await client.ask({"say": 2}))["echo"] == 2
        assert not first.done()
        held.go.set()
        assert (await first)["echo"] == 1


async def test_many_at_once_all_find_their_answers(client: LineClient) -> None:
    answers = await asyncio.gather(*(client.ask({"say": number}) for number in range(500)))

    assert [answer["echo"] for answer in answers] == list(range(500))


async def test_no_more_than_so_many_are_under_way(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "REQUESTS_MAX", 3)
    server = LineServer(held.answer)
    client = await LineClient.connect(await server.start(ANYWHERE))
    asked = [asyncio.create_task(client.ask({"wait": True})) for _ in range(10)]
    async with asyncio.timeout(10):
        for _ in range(3):
            await held.entered.acquire()
        for _ in range(100):
            await asyncio.sleep(0)
        assert held.entered.locked()
        held.go.set()
        await asyncio.gather(*asked)
    await client.close()
    await server.close()


async def talk(endpoint: Endpoint, *said: bytes) -> list[Any]:
    """Send lines without any care and return what comes back until the end."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    for line in said:
        writer.write(line)
    writer.write_eof()
    async with asyncio.timeout(10):
        answers = (await reader.read()).splitlines()
    writer.close()
    return [json.loads(answer) for answer in answers]


@pytest.mark.parametrize(
    "said", [b"nonsense\n", b"[1]\n", b'"text"\n', b"\xff\xfe\n", b'{"half": \n', b"GET / HTTP/1.1\n"]
)
async def test_what_is_no_json_object_ends_the_connection(said: bytes, server: Endpoint) -> None:
    """A web page can make a browser send lines of its choice, behind those of HTTP."""
    answers = await talk(server, b'{"say": 6}\n', said, b'{"say": 7}\n')

    assert {"error": "RemoteProtocolError", "message": f"{said!r} is no JSON object"} in answers
    assert {"echo": 6} in answers
    assert {"echo": 7} not in answers


async def test_a_web_page_puts_nothing(server: Endpoint, held: Held) -> None:
    post = b'POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n{"say": 7}\n'
    (answer,) = await talk(server, post)

    assert "no JSON object" in answer["message"]
    assert held.entered.locked()


async def test_a_unix_socket_is_for_the_own_user(held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end we are strangers to it: the server takes itself for another user than it is."""
    own = os.geteuid()
    server = LineServer(held.answer)
    endpoint = await server.start(parse_endpoint(f"unix:{tmp_path}/clients.sock"))
    assert stat.S_IMODE((tmp_path / "clients.sock").stat().st_mode) == 0o600
    client = await LineClient.connect(endpoint)
    async with asyncio.timeout(10):
        assert (await client.ask({"say": 1}))["echo"] == 1
        await client.close()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
        reader, writer = await asyncio.open_unix_connection(tmp_path / "clients.sock")
        refused = json.loads(await reader.readline())
        assert await reader.read() == b""
        writer.close()
    await server.close()

    assert f"is for processes of unix:{own + 1}, and not of unix:{own}" in refused["message"]
    assert os.listdir(tmp_path) == []


async def test_a_request_without_an_id_gets_an_answer_without_one(server: Endpoint) -> None:
    assert await talk(server, b'{"say": 7}\n') == [{"echo": 7}]
    assert await talk(server, b'{"say": 7, "id": "mine"}\n') == [{"id": "mine", "echo": 7}]


async def test_the_last_line_needs_no_line_break(server: Endpoint) -> None:
    assert await talk(server, b'{"say": 7}') == [{"echo": 7}]


async def test_a_line_that_is_too_long_is_refused(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_MAX_BYTES", 1_000)
    server = LineServer(held.answer)
    endpoint = await server.start(ANYWHERE)
    (answer,) = await talk(endpoint, b'{"say": "' + b"x" * 2_000 + b'"}\n')
    await server.close()

    assert "more than 1000 bytes" in answer["message"]


async def test_whoever_waits_hears_that_the_server_has_gone(held: Held) -> None:
    server = LineServer(held.answer)
    client = await LineClient.connect(await server.start(ANYWHERE))
    asked = asyncio.create_task(client.ask({"wait": True}))
    async with asyncio.timeout(10):
        await held.entered.acquire()
        await server.close()
        with pytest.raises(ConnectionError):
            await asked
        with pytest.raises(ConnectionError):
            await client.ask({"say": 1})
    await client.close()


async def test_an_answer_that_never_comes_is_a_timeout(client: LineClient) -> None:
    with pytest.raises(TimeoutError):
        await client.ask({"wait": True}, timeout_ms=10)


async def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        endpoint = Endpoint(*other.getsockname())
        with pytest.raises(StorageError, match=f"cannot listen on {endpoint} for clients: .*in use"):
            await LineServer(Held().answer).start(endpoint)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n", b"[1]\n", b'{"id": []}\n'])
async def test_a_server_of_another_kind_is_told(said: bytes) -> None:
    """The port of another service, by mistake: the error is that of a connection, which callers expect."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        client = await LineClient.connect(Endpoint(*server.sockets[0].getsockname()))
        with pytest.raises(ConnectionError, match="before the answer came: "):
            await client.ask({"snapshot": True})
        await client.close()
