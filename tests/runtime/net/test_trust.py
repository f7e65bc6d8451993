"""Three replicas with the files of `[tls]`: they elect, commit and renew; strangers and half a TLS are refused."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from cryptography import x509

from kraftlib import RaftClient, RaftConfig
from kraftlib.errors import ConfigError
from kraftlib.runtime.net import api_versions
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.security.contexts import Contexts, Trust, client_context
from kraftlib.security.tls import TlsConfig
from kraftlib.types import Endpoint
from kraftlib.wire.frames import encode_request
from tests.ports import local_voters
from tests.runtime.quorum import PATIENCE_S, TIMING, leader_of, on_sockets, until
from tests.runtime.wired import engine, vote, vote_answer
from tests.security.authority import DAY, Authority, now, replace

LOOPBACK: Final = Endpoint("127.0.0.1", 0)


def files_of(authority: Authority, number: int, **settings: Any) -> TlsConfig:
    return authority.files(str(number), authority.issue(f"kraft://blue/{number}", ends=40 * DAY), **settings)


def quorum(authority: Authority, **settings: Any) -> AbstractAsyncContextManager[dict[int, RaftClient[bytes]]]:
    return on_sockets({number: {"tls": files_of(authority, number, **settings)} for number in (1, 2, 3)})


async def shown_by(endpoint: Endpoint, files: TlsConfig) -> int:
    """Return the serial number of the certificate that a server shows to a newcomer."""
    _reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=client_context(files))
    writer.close()
    return int(writer.get_extra_info("peercert")["serialNumber"], 16)


async def test_certificates_are_renewed_without_a_lost_commit_connection_or_election(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    async with quorum(authority) as clients:
        leader = await leader_of(clients.values())
        epoch = leader.leader_and_epoch().epoch
        caplog.clear()
        done = asyncio.Event()

        async def append_on() -> int:
            count = 0
            while not done.is_set():
                await leader.append_one(b"%d" % count)
                count += 1
            return count

        appending = asyncio.ensure_future(append_on())
        serials = {}
        for number in clients:
            issued = authority.issue(f"kraft://blue/{number}", ends=90 * DAY)
            authority.files(str(number), issued)
            serials[number] = issued.serial
        stranger = files_of(authority, 9)
        async with asyncio.timeout(PATIENCE_S):
            for number, client in clients.items():
                while await shown_by(client.endpoint, stranger) != serials[number]:
                    pass  # each look takes a handshake
        done.set()

        assert await appending > 0, "every one of them was committed, or this would have raised"
        assert leader.leader_and_epoch().epoch == epoch
        assert "closed the connection" not in caplog.text
        assert "broke off" not in caplog.text
        assert all(float(client.metrics()["certificate-days-left"]) > 80 for client in clients.values())


async def test_a_replica_whose_certificate_is_revoked_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connections are as old as the quorum, and end with the new list."""
    authority = Authority(tmp_path)
    async with quorum(authority, crl=authority.revoke()) as clients:
        leader = await leader_of(clients.values())
        outcast = next(client for number, client in clients.items() if client is not leader)
        await until(outcast.high_watermark)
        serial = await shown_by(outcast.endpoint, files_of(authority, 9))
        for number, client in clients.items():
            if client is not outcast:
                replace(tmp_path / str(number) / "crl.pem", authority.revoke(serial))
        await until(lambda: "certificate revoked" in caplog.text)
        left_behind = outcast.log_end_offset()
        others = {number: client for number, client in clients.items() if client is not outcast}
        for _ in range(3):
            leader = await leader_of(others.values())

        assert outcast.log_end_offset() <= left_behind + 1
        assert leader.log_end_offset() > outcast.log_end_offset()


async def test_an_accepted_connection_ends_with_the_certificate_of_its_peer(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours = Trust(contexts=Contexts(*authority.contexts("kraft://blue/1").values()), cluster_id="blue")
    theirs = authority.contexts("kraft://blue/2", ends=timedelta(seconds=2))["client_ssl"]
    async with asyncio.timeout(PATIENCE_S), engine(TcpTransport(LOOPBACK, trust=ours)) as serving:
        reader, writer = await asyncio.open_connection(*attrs.astuple(serving.endpoint), ssl=theirs)
        frame = encode_request(api_versions.question(), version=4, correlation_id=7, client_id="x")
        writer.write(len(frame).to_bytes(4, "big") + frame)

        assert int.from_bytes(await reader.readexactly(4), "big") > 0, "it was served"
        await reader.read(-1)  # until it is closed
        writer.close()


async def test_a_session_that_is_resumed_ends_with_the_certificate_of_its_peer(tmp_path: Path) -> None:
    """TLS 1.2 resumes by session id: no certificate is shown or verified."""
    authority = Authority(tmp_path)
    ours = Trust(contexts=Contexts(*authority.contexts("kraft://blue/1").values()), cluster_id="blue")
    issued = authority.issue("kraft://blue/2", ends=timedelta(seconds=4))
    ends = x509.load_pem_x509_certificate(issued.certificate).not_valid_after_utc
    theirs = client_context(authority.files("2", issued))
    theirs.maximum_version = ssl.TLSVersion.TLSv1_2
    frame = encode_request(api_versions.question(), version=4, correlation_id=7, client_id="x")

    def ask(place: tuple[str, int], session: ssl.SSLSession | None) -> tuple[bytes, bool, ssl.SSLSession | None]:
        answer = b""
        with (
            socket.create_connection(place, PATIENCE_S) as bare,
            theirs.wrap_socket(bare, server_hostname="127.0.0.1", session=session) as secured,
        ):
            with suppress(OSError):
                secured.sendall(len(frame).to_bytes(4, "big") + frame)
                answer = secured.recv(4096)
            made, reused = secured.session, bool(secured.session_reused)
            with suppress(OSError):
                secured.unwrap()  # else the server forgets the session
            return answer, reused, made

    async with asyncio.timeout(PATIENCE_S), engine(TcpTransport(LOOPBACK, trust=ours)) as serving:
        place = (serving.endpoint.host, serving.endpoint.port)
        first = [await asyncio.to_thread(ask, place, None) for _ in range(5)]
        assert all(answer for answer, _, _ in first)
        await until(lambda: now() > ends)
        later = [await asyncio.to_thread(ask, place, session) for _, _, session in first]

    assert [(answer, reused) for answer, reused, _ in later] == [(b"", True)] * 5


def not_a_text() -> x509.ExtensionType:
    """Return alternative names with one URI whose bytes are no UTF-8."""
    return x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), b"\x30\x04\x86\x02\xff\xfe")


@pytest.mark.parametrize("made_by", ["files", "the application"])
async def test_a_certificate_that_cannot_be_read_leaves_nothing_behind(
    made_by: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    ours = authority.contexts("kraft://blue/1")
    if made_by == "the application":
        for context in ours.values():
            context.sslobject_class = ssl.SSLObject
    transport = TcpTransport(LOOPBACK, trust=Trust(contexts=Contexts(*ours.values()), cluster_id="blue"))
    theirs = authority.contexts(extensions=[not_a_text()])["client_ssl"]
    async with asyncio.timeout(PATIENCE_S), engine(transport) as serving:
        reader, writer = await asyncio.open_connection(*attrs.astuple(serving.endpoint), ssl=theirs)
        with suppress(OSError):
            await reader.read()
        writer.close()
        await until(lambda: transport.accepted_connections == 0)
    assert transport.trouble == {"handshake": 1}
    assert re.search("no connection with 127.0.0.1.*(no UTF-8|can't decode)", caplog.text)
    if made_by == "files":
        assert "Traceback" not in caplog.text


async def test_a_server_without_a_certificate_hears_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Cipher suites of aNULL get past CERT_REQUIRED."""
    given = Authority(tmp_path).contexts("kraft://blue/7")
    given["client_ssl"].set_ciphers("ALL:@SECLEVEL=0")
    ours = TcpTransport(LOOPBACK, trust=Trust(contexts=Contexts(*given.values()), cluster_id="blue"))
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    nobody.maximum_version = ssl.TLSVersion.TLSv1_2
    nobody.set_ciphers("aNULL:@SECLEVEL=0")
    there = TcpTransport(LOOPBACK, trust=Trust(contexts=Contexts(nobody)))
    async with asyncio.timeout(PATIENCE_S):
        async with engine(there, answer=lambda _: vote_answer()) as serving, engine(ours) as asking:
            asking.network.send(1, 2, serving.endpoint, vote())
            await until(lambda: "it has shown no certificate: the cipher suite asks for none" in caplog.text)
            assert serving.heard == []


async def test_a_connection_of_ours_ends_with_the_certificate_of_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    ours = Trust(contexts=Contexts(*authority.contexts("kraft://blue/7").values()), cluster_id="blue")
    theirs = authority.contexts("kraft://blue/2", ends=timedelta(seconds=2))
    there = Trust(contexts=Contexts(*theirs.values()), cluster_id="blue")
    async with asyncio.timeout(PATIENCE_S):
        async with (
            engine(TcpTransport(LOOPBACK, trust=there), answer=lambda _: vote_answer()) as serving,
            engine(TcpTransport(LOOPBACK, trust=ours)) as asking,
        ):
            asking.network.send(1, 2, serving.endpoint, vote())
            await asking.until(2)

            assert asking.heard == [("response", 1, vote_answer()), ("lost", 2, False)]
            assert "its certificate has ended" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda given: given.pop("client_ssl"), "server_ssl= without client_ssl="),
        (lambda given: given.pop("server_ssl"), "client_ssl= without server_ssl="),
        (lambda given: setattr(given["server_ssl"], "verify_mode", ssl.CERT_NONE), "lets peers in without a certif"),
    ],
)
async def test_half_a_tls_is_refused_at_the_start(change: Any, message: str, tmp_path: Path) -> None:
    given = Authority(tmp_path).contexts("kraft://blue/1")
    change(given)
    config = RaftConfig(node_id=1, voters=local_voters(), cluster_id="blue", strict=True)
    with pytest.raises(ConfigError, match=message):
        await RaftClient(config, **given).start()


async def test_a_certificate_of_another_replica_is_refused_at_the_start(tmp_path: Path) -> None:
    config = RaftConfig(node_id=1, voters=local_voters(), cluster_id="blue", tls=files_of(Authority(tmp_path), 2))
    with pytest.raises(ConfigError, match="is not for replica 1: its certificate is that of 2"):
        await RaftClient(config).start()


async def test_a_follower_of_another_quorum_needs_no_server_certificate(tmp_path: Path) -> None:
    given = Authority(tmp_path).contexts("kraft://blue/7")
    config = RaftConfig(node_id=7, bootstrap_servers=(Endpoint("127.0.0.1", 1),), **TIMING)
    async with RaftClient(config, client_ssl=given["client_ssl"]) as client:
        assert client.metrics()["current-leader"] == -1
