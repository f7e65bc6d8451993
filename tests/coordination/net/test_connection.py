"""The connection of a client: over TLS, with a password, over a Unix socket; and servers that are none."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.coordination.net.client import connect
from kraftlib.coordination.net.connection import Connection, LostError, connected_to
from kraftlib.coordination.net.replica import open
from kraftlib.errors import RefusedError
from kraftlib.runtime.net.api_versions import ASKED, SERVICE
from kraftlib.runtime.net.framing import FrameReader, framed
from kraftlib.security.access import AccessConfig
from kraftlib.security.contexts import server_context
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.tool_context import tool_context
from kraftlib.types import Endpoint, parse_endpoint
from kraftlib.wire.frames import decode_request, encode_response
from kraftlib.wire.messages.api_versions import ApiVersionsResponse
from kraftlib.wire.messages.call import CallRequest, CallResponse
from tests.coordination.net.ways import EVERYTHING, Caller, replicas, value
from tests.runtime.net.test_tcp_client import silent
from tests.runtime.quorum import PATIENCE_S
from tests.security.authority import Authority

SECRET = "a secret of sixteen characters"


async def test_over_tls_with_a_certificate_and_with_none_of_the_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    def files(name: str, *uris: str) -> object:
        return authority.files(name, authority.issue(*uris))

    access = AccessConfig(writers=("cert:CN=a replica",))
    async with replicas(of_one=lambda n: {"tls": files(f"{n}", f"kraft://ways/{n}")}, access=access) as quorum:
        async with connect(quorum.servers, tls=files("visitor")) as visitor:  # type: ignore[arg-type]
            caller = await Caller(visitor).begin()
            await caller.add("sum")
            await quorum.change_leader(kill=True)
            await caller.add("sum")
            assert await value(visitor, "sum") == b"2"
        async with connect(quorum.servers) as plain:
            with pytest.raises(RefusedError, match="within 300 ms"):
                await plain.call(b"x", timeout_ms=300)


async def test_with_a_password_and_with_a_wrong_one(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    table = AccessConfig(writers=("User:kraft-1",))
    async with replicas(1, sasl=SaslConfig(secret_file=secret), access=table) as quorum:
        reader = SaslConfig(secret_file=secret, username="kraft-2")
        async with connect(quorum.servers, sasl=reader) as access:
            with pytest.raises(RefusedError, match=r"needs the role writer \(\[access\] writers\), which User:kraft-2"):
                await Caller(access).begin()
            assert await value(access, "sum") is None
        right = SaslConfig(secret_file=secret, username="kraft-1")
        async with connect(quorum.servers, sasl=right) as access:
            await (await Caller(access).begin()).add("sum")
        secret.write_text("another secret of the same length")
        async with connect(quorum.servers, sasl=right) as access:
            with pytest.raises(RefusedError, match="compare the secrets"):
                await access.call(b"x", timeout_ms=1_000)


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    place = parse_endpoint(f"unix:{tmp_path}/1.sock")
    config = RaftConfig(node_id=1, voters=(StaticVoter(1, place),), cluster_id="ways", listen=place)
    async with open(config) as replica, connect(str(place)) as one, connect(str(place)) as other:
        watching = asyncio.create_task(anext(aiter(other.watch(EVERYTHING, -1))))
        await (await Caller(one).begin()).add("sum")
        assert (await watching).offset > 0
        assert await value(replica, "sum") == b"1"


# Servers that are none ---------------------------------------------------------------------------------


async def ask(*answers: bytes | None, silence_s: float = 20.0) -> CallResponse:
    """Ask a server that says `answers`, one for each request, and then nothing; None closes the connection."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(1_000_000)
        while data := await reader.read(10_000):
            frames.feed(data)
            while (frame := frames.next_frame()) is not None:
                request = decode_request(frame)
                if request.api_key == 18:
                    writer.write(framed(encode_response(versions(), version=ASKED, correlation_id=0)))
                elif left and (answer := left.pop(0)) is not None:
                    writer.write(answer)
                elif answers:
                    writer.close()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        place = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        connection = await connected_to(place, tls=None, sasl=None, timeout_s=20)
        try:
            return await connection.ask(CallRequest(command=b"x"), CallResponse, silence_s=silence_s)
        finally:
            await connection.close()


def versions() -> ApiVersionsResponse:
    row = ApiVersionsResponse.ApiVersion
    return ApiVersionsResponse(api_keys=tuple(row(api_key=key, min_version=0, max_version=0) for key in SERVICE))


RIGHT = encode_response(CallResponse(offset=7), version=0, correlation_id=1)


async def test_an_answer_is_matched_with_its_request() -> None:
    assert (await ask(framed(RIGHT))).offset == 7


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "closed the connection"),
        (b"\x7f\xff\xff\xff", "announced"),
        (framed(RIGHT[:-2]), "CallResponse"),
        (framed(encode_response(CallResponse(), version=0, correlation_id=2)), "answers request 2, not 1"),
    ],
    ids=["closed", "a length that none has", "cut", "another request"],
)
async def test_whatever_breaks_it_the_request_may_have_arrived(answer: bytes | None, reason: str) -> None:
    with pytest.raises(LostError, match=reason) as lost:
        await ask(answer)
    assert lost.value.may_have_arrived


async def test_a_server_that_says_nothing_is_given_up() -> None:
    with pytest.raises(LostError, match=r"no answer within 0\.1 s") as lost:
        await ask(silence_s=0.1)
    assert lost.value.may_have_arrived


async def test_a_server_that_says_nothing_is_given_up_though_every_caller_leaves_before() -> None:
    async def call_again_and_again(connection: Connection) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await connection.ask(CallRequest(command=b"x"), CallResponse, silence_s=0.2)

    async with silent_one() as connection, asyncio.timeout(PATIENCE_S):
        with pytest.raises(LostError, match=r"no answer within 0\.2 s"):
            await call_again_and_again(connection)


async def test_a_server_whose_answer_comes_slowly_is_not_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(framed(encode_response(versions(), version=ASKED, correlation_id=0)))
        await reader.read(1_000)
        answer = framed(RIGHT)
        for at in range(0, len(answer), len(answer) // 5 + 1):
            await asyncio.sleep(0.5)
            writer.write(answer[at : at + len(answer) // 5 + 1])
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        place = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        connection = await connected_to(place, tls=None, sasl=None, timeout_s=20)
        assert (await connection.ask(CallRequest(command=b"x"), CallResponse, silence_s=2.0)).offset == 7
        await connection.close()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_large_request_on_a_slow_line_is_no_silence(tmp_path: Path, *, encrypted: bool) -> None:
    """It takes longer to arrive than a replica may be silent."""
    authority = Authority(tmp_path)
    files = authority.files("1", authority.issue("kraft://ways/1"))
    context = server_context(files) if encrypted else None
    size, step = 4_000_000, 400_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(framed(encode_response(versions(), version=ASKED, correlation_id=0)))
        for _ in range(size // step):
            await asyncio.sleep(0.3)
            await reader.readexactly(step)
        writer.write(framed(RIGHT))
        await reader.read()
        writer.close()

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        listener.bind(("127.0.0.1", 0))
        async with await asyncio.start_server(serve, sock=listener, limit=step // 2, ssl=context):
            place = Endpoint("127.0.0.1", listener.getsockname()[1])
            tls = tool_context(files) if encrypted else None
            connection = await connected_to(place, tls=tls, sasl=None, timeout_s=20)
            asking = connection.ask(CallRequest(command=bytes(size)), CallResponse, silence_s=1.2)
            assert (await asking).offset == 7
            with pytest.raises(LostError, match=r"no answer within 1\.2 s"):
                await connection.ask(CallRequest(command=bytes(size)), CallResponse, silence_s=1.2)
            await connection.close()


@contextlib.asynccontextmanager
async def taciturn() -> AsyncIterator[int]:
    """A server that answers ApiVersions, and nothing else; yield its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(framed(encode_response(versions(), version=ASKED, correlation_id=0)))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def silent_one() -> AsyncIterator[Connection]:
    """A connection to such a server."""
    async with taciturn() as port:
        connection = await connected_to(Endpoint("127.0.0.1", port), tls=None, sasl=None, timeout_s=20)
        try:
            yield connection
        finally:
            await connection.close()


async def test_a_close_does_not_wait_for_a_server_that_reads_no_more() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(framed(encode_response(versions(), version=ASKED, correlation_id=0)))
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        place = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        connection = await connected_to(place, tls=None, sasl=None, timeout_s=20)
        much = CallRequest(command=bytes(32 * 1024 * 1024))
        asking = asyncio.create_task(connection.ask(much, CallResponse, silence_s=20.0))
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(5):
                await connection.close()
            with pytest.raises(LostError, match="closed"):
                await asking
        finally:
            ended.set()


async def test_a_server_that_speaks_something_else_is_lost_before_anything_is_asked() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        place = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(LostError) as lost:
            await connected_to(place, tls=None, sasl=None, timeout_s=20)
    assert not lost.value.may_have_arrived


async def test_a_replica_is_reached_though_the_first_address_of_its_name_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That of IPv6, say, on a network that drops it."""
    async with taciturn() as port, silent("127.0.0.2", port):
        places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", port)) for last in (2, 1)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
        connection = await connected_to(Endpoint("two-addresses.example", port), tls=None, sasl=None, timeout_s=2)
        await connection.close()


async def test_a_name_that_no_host_can_have_is_not_reached() -> None:
    with pytest.raises(LostError, match=r"'a\.\.b':9 cannot be reached"):
        await connected_to(Endpoint("a..b", 9), tls=None, sasl=None, timeout_s=20)
