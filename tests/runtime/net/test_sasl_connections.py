"""SASL on real sockets: row 16 of the security checklist, and a stranger who wants to own a quorum."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftlib import RaftClient, RaftConfig
from kraftlib.config import StaticVoter
from kraftlib.errors import ConfigError
from kraftlib.runtime.net.framing import framed
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.transport import Destination
from kraftlib.security import password_checks, sasl_users
from kraftlib.security.before_login import FRAME_MAX_BYTES, SaslError
from kraftlib.security.handshakes import UNPROVEN_COST
from kraftlib.security.limits import TcpLimits
from kraftlib.security.password_checks import ADDRESS_FAILURES
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.sasl_client import SaslClient
from kraftlib.security.sasl_server import TRIES_MAX
from kraftlib.security.sasl_users import SaslUsers, load_users
from kraftlib.security.scram import make_verifier
from kraftlib.testing.transport_contract import TRANSPORT_CHECKS, Station, TransportCheck, station
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import APIS, ApiKey, ErrorCode
from kraftlib.wire.frames import decode_response, encode_request
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftlib.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.ports import free_port
from tests.runtime.net.test_tcp_server import (
    LOOPBACK,
    Stranger,
    stranger,
    tcp,
)
from tests.runtime.quorum import PATIENCE_S, leader_of, on_sockets, until
from tests.security.authority import Authority
from tools.scenarios import handmade as msg

SECRET = "correct horse battery staple"


def users(
    node_id: int = 1, *, password: str = SECRET, encrypted: bool = False, insecure: bool = False, **options: Any
) -> SaslUsers:
    """Users of a quorum whose three replicas have the same password."""
    options = {"users": {f"replica-{number}": SECRET for number in (1, 2, 3)}, **options}
    return load_users(SaslConfig(password=password, **options), node_id, encrypted=encrypted, insecure=insecure)


@asynccontextmanager
async def server(sasl: SaslUsers | None = None, limits: TcpLimits | None = None, **how: Any) -> AsyncIterator[Station]:
    async with station(lambda at: TcpTransport(LOOPBACK, sasl=sasl or users(), limits=limits, **how)) as opened:
        yield opened


@asynccontextmanager
async def dialling(sasl: SaslUsers | None, **how: Any) -> AsyncIterator[Station]:
    async with station(lambda at: TcpTransport(LOOPBACK, sasl=sasl, **how)) as opened:
        yield opened


def request(message: Any, version: int | None = None) -> bytes:
    version = APIS[message.api_key].versions.last if version is None else version
    return encode_request(message, version=version, correlation_id=1, client_id="stranger")


async def log_in(who: Stranger, sasl: SaslUsers) -> list[bytes]:
    """Authenticate, and return the frames that were sent. Raises: SaslError."""
    client, sent = SaslClient(sasl, client_id="stranger"), []
    frame: bytes | None = client.start()
    while frame is not None:
        sent.append(frame)
        who.write(framed(frame))
        frame = client.receive(await who.answer())
    return sent


# What a login costs --------------------------------------------------------------------------------


async def test_wrong_passwords_cost_neither_the_event_loop_nor_more_than_their_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a login PLAIN has the server compute PBKDF2, for each name and password that anybody sends."""
    threads: list[int] = []
    really = sasl_users.salted_password

    def noted(*how: Any) -> bytes:
        threads.append(threading.get_ident())
        return really(*how)

    sasl = users(mechanism="PLAIN", insecure=True)
    monkeypatch.setattr(sasl_users, "salted_password", noted)
    monkeypatch.setattr(password_checks, "ADDRESS_FAILURES_PER_S", 0.0)
    token = b"\0nobody\0wrong"
    login = SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=token)
    limits = TcpLimits(connections_per_address_max=200)
    async with server(sasl, limits) as opened, AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
        strangers = [await stack.enter_async_context(stranger(opened.endpoint)) for _ in range(150)]
        for each in strangers:
            each.write(framed(request(login[0], 1)) + framed(request(login[1], 2)))
        for each in strangers:
            await each.answer()
            _, answer = decode_response(await each.answer(), api_key=ApiKey.SASL_AUTHENTICATE, version=2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert len(threads) == ADDRESS_FAILURES
        assert len(set(threads)) == 1
        assert threading.get_ident() not in threads


async def test_a_flood_of_wrong_passwords_keeps_no_voter_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has logged in at a replica that was just started, and strangers have used all tokens up."""
    monkeypatch.setattr(password_checks, "FAILURES", 0)
    monkeypatch.setattr(password_checks, "FAILURES_PER_S", 0.0)
    plain = {"mechanism": "PLAIN", "insecure": True}
    async with (
        server(users(**plain)) as opened,
        stranger(opened.endpoint, local_addr=("127.0.0.7", 0)) as voter,
        stranger(opened.endpoint, local_addr=("127.0.0.8", 0)) as other,
    ):
        tcp(opened).voters_at(["127.0.0.7"])
        await log_in(voter, users(2, **plain))
        with pytest.raises(SaslError, match="Authentication failed"):
            await log_in(other, users(2, **plain))


async def test_a_server_that_asks_for_a_million_rounds_keeps_nobody_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The threads that asyncio shares are for files and names, and there are few of them."""
    threads: list[str] = []
    monkeypatch.setattr(
        sasl_users, "salted_password", lambda *how: threads.append(threading.current_thread().name) or bytes(64)
    )
    async with server() as opened, dialling(users(2)) as replica:
        replica.ask(Destination(1, opened.endpoint))
        await replica.until_heard(1)
    assert threads == ["kraftlib-own-thread"]


async def test_a_user_that_is_removed_loses_its_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [
        sasl_users.user_line(name, "SCRAM-SHA-512", make_verifier("sha512", SECRET.encode())) for name in ("ann", "ben")
    ]
    path = tmp_path / "users"
    path.touch(mode=0o600)
    path.write_text("\n".join(lines))
    async with (
        server(users(users={}, users_file=path)) as opened,
        asyncio.timeout(PATIENCE_S),
        stranger(opened.endpoint) as ann,
        stranger(opened.endpoint) as ben,
    ):
        for who, name in ((ann, "ann"), (ben, "ben")):
            await log_in(who, users(username=name))
        path.write_text(lines[0])
        assert await ben.closed() == b""
        ann.write(framed(b"still here"))
        assert await ann.answer() == b"still here"
    assert "'ben' was removed, or has another password" in caplog.text


# The transport keeps its promises ------------------------------------------------------------------


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
async def test_it_keeps_the_promises_with_sasl_too(check: TransportCheck) -> None:
    await check(lambda at: TcpTransport(at or LOOPBACK, sasl=users(replicas={"replica-1": [1, 2]})))


async def test_a_voter_that_has_logged_in_has_a_slot_of_its_own() -> None:
    """It leaves that of a stranger to others, and its own one to nobody, not even to those that log in as well."""
    few = TcpLimits(connections_max=1, voter_connections_max=1, idle_ms=600_000)
    async with server(limits=few) as opened, stranger(opened.endpoint) as voter, AsyncExitStack() as stack:
        await log_in(voter, users(2))
        voter.write(framed(b"vote"))
        assert await voter.answer() == b"vote"
        tcp(opened).recognized(opened.requests[0][2], is_voter=True)
        other = await stack.enter_async_context(stranger(opened.endpoint))
        await log_in(other, users(3))
        other.write(framed(b"question"))
        assert await other.answer() == b"question"
        late = await stack.enter_async_context(stranger(opened.endpoint))
        assert await late.closed() == b""
        for each in (voter, other):
            each.write(framed(b"still here"))
            assert await each.answer() == b"still here"
        assert tcp(opened).trouble == {"too_many": 1}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
async def test_a_peer_is_named_after_its_user(mechanism: str) -> None:
    options = {"mechanism": mechanism, "insecure": True}
    async with server(users(**options)) as opened, dialling(users(2, **options)) as replica:
        replica.ask(Destination(1, opened.endpoint))
        await replica.until_heard(1)
        assert replica.heard == [b"question"]
        assert opened.requests[0][2].principals == ("User:replica-2",)


async def test_over_tls_a_peer_has_the_names_of_its_certificate_too(tmp_path: Path) -> None:
    authority, plain = Authority(tmp_path), {"mechanism": "PLAIN", "encrypted": True}
    ours, theirs = (authority.contexts(f"kraft://blue/{number}") for number in (1, 2))
    async with server(users(**plain), **ours) as opened, dialling(users(2, **plain), **theirs) as replica:
        replica.ask(Destination(1, opened.endpoint))
        await replica.until_heard(1)
        assert replica.heard == [b"question"]
        assert opened.requests[0][2].principals == ("User:replica-2", "kraft://blue/2")


async def test_what_is_sent_before_the_login_waits_for_it() -> None:
    async with server() as opened, dialling(users(2)) as replica:
        for number in range(50):
            replica.ask(Destination(1, opened.endpoint), b"question %d" % number)
        await replica.until_heard(50)
        assert replica.heard == [b"question %d" % number for number in range(50)]


# Who is not let in ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize("who", [{"password": "wrong"}, {"username": "stranger"}])
async def test_a_wrong_password_and_an_unknown_user_are_told_the_same(
    mechanism: str, who: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"mechanism": mechanism, "insecure": True}
    async with server(users(**options)) as opened, stranger(opened.endpoint) as peer:
        with pytest.raises(SaslError, match="SASL_AUTHENTICATION_FAILED 'Authentication failed: wrong mechanism"):
            await log_in(peer, users(2, **options, **who))
        assert opened.requests == []
        assert tcp(opened).trouble["sasl"] == 1
    assert "wrong password, or no such user; see [sasl]" in caplog.text
    assert SECRET not in caplog.text


async def test_a_login_that_fails_is_told_for_the_audit_log() -> None:
    told: list[tuple[str, str, str]] = []
    async with station(lambda _: telling(told)) as opened, stranger(opened.endpoint) as peer:
        with pytest.raises(SaslError):
            await log_in(peer, users(2, password="wrong"))
    ((address, name, reason),) = told
    assert (address.rpartition(":")[0], name) == ("127.0.0.1", "SaslLogin")
    assert "wrong password, or no such user" in reason


def telling(told: list[tuple[str, str, str]]) -> TcpTransport:
    transport = TcpTransport(LOOPBACK, sasl=users())
    transport.tell_refusals(lambda peer, name, reason: told.append((peer.address, name, reason)))
    return transport


async def test_a_replica_with_another_password_reaches_nobody_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as opened, dialling(users(2, password="wrong")) as replica:
        replica.ask(Destination(1, opened.endpoint))
        await replica.until_heard(1)
        assert replica.heard == [None]  # and no word of a lost connection: the peer lives
        assert opened.requests == []
    assert "refuses user 'replica-2'" in caplog.text
    assert "compare the secrets of [sasl]" in caplog.text


async def test_three_tries_are_the_last() -> None:
    async with server() as opened, stranger(opened.endpoint) as peer:
        for _ in range(TRIES_MAX):
            with pytest.raises(SaslError):
                await log_in(peer, users(2, password="wrong"))
        assert await peer.closed() == b""

    async with server() as opened, stranger(opened.endpoint) as peer:
        with pytest.raises(SaslError):
            await log_in(peer, users(2, password="wrong"))
        await log_in(peer, users(2))
        peer.write(framed(b"hello"))
        assert await peer.answer() == b"hello"


async def test_a_login_that_was_overheard_opens_nothing() -> None:
    """All frames of a good login again, on a new connection."""
    async with server() as opened:
        async with stranger(opened.endpoint) as replica:
            overheard = await log_in(replica, users(2))
        async with stranger(opened.endpoint) as thief:
            for frame in overheard[:2]:
                thief.write(framed(frame))
                await thief.answer()
            thief.write(framed(overheard[2]))
            _, answer = decode_response(await thief.answer(), api_key=ApiKey.SASL_AUTHENTICATE, version=2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED  # type: ignore[attr-defined]
        assert opened.requests == []


async def test_a_server_that_offers_plain_alone_learns_no_password(caplog: pytest.LogCaptureFixture) -> None:
    async with server(users(mechanism="PLAIN", insecure=True)) as opened, dialling(users(2)) as replica:
        replica.ask(Destination(1, opened.endpoint))
        await replica.until_heard(1)
        assert replica.heard == [None]
    assert "it accepts 'PLAIN', and [sasl] mechanism is SCRAM-SHA-512" in caplog.text


@pytest.mark.parametrize(
    "message",
    [
        msg.fetch(ReplicaKey(2), 3, cluster_id=None, offset=1, last_epoch=1),
        msg.begin(2, 3, cluster_id=None),
        SaslAuthenticateRequest(auth_bytes=b"n,,n=replica-2,r=abc"),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_a_request_before_the_login_closes_the_connection(message: Any) -> None:
    async with server() as opened, stranger(opened.endpoint) as peer:
        peer.write(framed(request(message)))
        assert await peer.closed() == b""
        assert opened.requests == []
        assert tcp(opened).trouble["sasl"] == 1


async def test_a_request_behind_an_unfinished_login_closes_the_connection() -> None:
    async with server() as opened, stranger(opened.endpoint) as peer:
        hello = framed(request(SaslHandshakeRequest(mechanism="SCRAM-SHA-512")))
        peer.write(hello + framed(request(msg.begin(2, 3, cluster_id=None))))
        await peer.closed()
        assert opened.requests == []


async def test_only_the_question_for_versions_is_served_before_the_login() -> None:
    async with server() as opened, stranger(opened.endpoint) as peer:
        question = request(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        peer.write(framed(question))
        assert await peer.answer() == question  # this engine echoes
        await log_in(peer, users(2))
        assert [frame for frame, _, _ in opened.requests] == [question]
        assert opened.requests[0][2].principals == ()


async def test_frames_are_small_before_the_login_and_large_after_it() -> None:
    large = bytes(FRAME_MAX_BYTES + 1)
    async with server(frame_max_bytes=1_000_000) as opened:
        async with stranger(opened.endpoint) as peer:
            peer.write(framed(large))
            assert await peer.closed() == b""
            assert tcp(opened).trouble == {"bad_frame": 1}
        async with stranger(opened.endpoint) as peer:
            await log_in(peer, users(2))
            peer.write(framed(large))
            assert await peer.answer() == large


async def test_logins_that_fail_cost_an_address_more_of_its_handshakes() -> None:
    known = users(2)
    limits = TcpLimits(connections_per_address_max=2, handshakes_per_second=1)
    async with server(limits=limits) as opened:
        for _ in range(UNPROVEN_COST):
            async with stranger(opened.endpoint) as user:
                await log_in(user, known)
                user.write(framed(b"in"))
                assert await user.answer() == b"in"
        for is_first in (True, False):  # the users' handshakes took half of the budget
            async with stranger(opened.endpoint) as other:
                other.write(framed(request(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))))
                assert bool(await (other.answer() if is_first else other.closed())) is is_first


async def test_who_never_finishes_the_login_is_closed() -> None:
    limits = TcpLimits(handshake_ms=50)
    async with server(limits=limits) as opened, stranger(opened.endpoint) as peer:
        peer.write(framed(request(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))))
        await peer.answer()
        assert await peer.closed() == b""
        assert tcp(opened).trouble == {"sasl": 1}


async def test_a_server_that_never_answers_the_login_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """It listens, and does not speak SASL: the transport of a station that does not echo."""
    async with (
        station(lambda at: TcpTransport(LOOPBACK), echo=False) as silent,
        dialling(users(2), limits=TcpLimits(connect_ms=100)) as replica,
    ):
        replica.ask(Destination(1, silent.endpoint))
        await replica.until_heard(1)
        assert replica.heard == [None]
        await until(lambda: tcp(silent).accepted_connections == 0)
    assert "no authentication within 100 ms" in caplog.text


async def test_sasl_of_this_replica_is_no_open_door() -> None:
    """Beyond loopback it needs no word of the operator: nobody gets in without a password."""
    await (transport := TcpTransport(Endpoint("0.0.0.0", 0), sasl=users())).start(Station(TcpTransport(LOOPBACK)))
    await transport.close()


# Whole quorums -------------------------------------------------------------------------------------


def quorum(
    sasl: Mapping[int, SaslConfig | None], **config: Any
) -> AbstractAsyncContextManager[dict[int, RaftClient[bytes]]]:
    """Run a replica for each entry."""
    return on_sockets({number: {"sasl": own} for number, own in sasl.items()}, **config)


def secret_file(directory: Path, text: str = SECRET) -> Path:
    path = directory / "quorum.secret"
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256"])
async def test_replicas_with_one_secret_elect_and_commit(tmp_path: Path, mechanism: str) -> None:
    sasl = SaslConfig(secret_file=secret_file(tmp_path), mechanism=mechanism)
    async with quorum(dict.fromkeys((1, 2, 3), sasl)) as clients:
        leader = await leader_of(clients.values())
        assert leader.high_watermark() is not None


async def test_replicas_that_share_a_user_elect_and_commit() -> None:
    """As Kafka's controllers do: one user, bound to all of them."""
    sasl = SaslConfig(username="controller", password=SECRET, replicas={"controller": (1, 2, 3)})
    async with quorum(dict.fromkeys((1, 2, 3), sasl)) as clients:
        await leader_of(clients.values())


async def test_a_replica_without_the_secret_is_not_heard(tmp_path: Path) -> None:
    ours = SaslConfig(secret_file=secret_file(tmp_path))
    (tmp_path / "other").mkdir()
    theirs = SaslConfig(secret_file=secret_file(tmp_path / "other", "another secret of another quorum"))
    async with quorum({1: ours, 2: ours, 3: theirs}) as clients:
        assert (await leader_of(clients.values())).node_id in (1, 2)
        assert clients[3].log_end_offset() == 0


async def test_a_replica_that_speaks_as_another_is_not_heard(caplog: pytest.LogCaptureFixture) -> None:
    """Three replicas, the third of which logs in as the second: it has a password, and not its own id."""
    passwords = {f"replica-{number}": f"password {number}" for number in (1, 2, 3)}
    sasl: dict[int, SaslConfig | None] = {
        number: SaslConfig(username=f"replica-{named}", password=f"password {named}", users=passwords)
        for number, named in ((1, 1), (2, 2), (3, 2))
    }
    async with quorum(sasl) as clients:
        assert (await leader_of(clients.values())).node_id in (1, 2)
        await until(lambda: "it speaks as replica 3, and its user 'replica-2' is bound to 2" in caplog.text)
        assert clients[3].log_end_offset() == 0


async def ask(who: Stranger, message: Any) -> bool:
    """Send a request; return whether it was answered."""
    who.write(framed(request(message)))
    return await who.closed_or_answered()


async def test_a_stranger_without_the_secret_owns_nothing(tmp_path: Path) -> None:
    """The attack: Fetches in the names of two voters that are gone, and the BeginQuorumEpoch of a leader that is none.

    Without a secret the leader commits what the Fetches claim to hold, and follows the leader of the next epoch.
    """
    sasl = SaslConfig(secret_file=secret_file(tmp_path))
    async with quorum(dict.fromkeys((1, 2, 3), sasl), election_timeout_ms=5_000, fetch_timeout_ms=60_000) as clients:
        leader = await leader_of(clients.values())
        epoch, others = leader.leader_and_epoch().epoch, [id for id in clients if id != leader.node_id]
        for id in others:
            await clients[id].shutdown(timeout_ms=0)
        lonely = asyncio.create_task(leader.append_one(b"nobody else has it"))
        await asyncio.sleep(0)
        forged = [
            *(
                msg.fetch(ReplicaKey(id), epoch, cluster_id="blue", offset=leader.log_end_offset(), last_epoch=epoch)
                for id in others
            ),
            msg.begin(others[0], epoch + 1, cluster_id="blue"),
            msg.end(leader.node_id, epoch, cluster_id="blue"),
            msg.vote(
                ReplicaKey(others[0]), epoch + 1, cluster_id="blue", end=OffsetAndEpoch(epoch=epoch + 1, offset=10**6)
            ),
        ]
        for message in forged:
            async with stranger(leader.endpoint) as thief:
                assert not await ask(thief, message)
            async with stranger(leader.endpoint) as thief:
                with pytest.raises(SaslError):
                    await log_in(thief, users(others[0], password="a guess at the secret"))
                assert not await ask(thief, message)

        assert leader.leader_and_epoch().epoch == epoch
        assert leader.leader_and_epoch().leader_id == leader.node_id
        assert not lonely.done()
        lonely.cancel()


async def test_a_client_with_the_secret_speaks_as_no_replica(tmp_path: Path) -> None:
    """It may ask for versions and for what the application allows; a login is for once."""
    sasl = SaslConfig(secret_file=secret_file(tmp_path))
    client = SaslConfig(secret_file=sasl.secret_file, username="visitor")
    async with quorum({1: sasl}) as clients:
        await leader_of(clients.values())
        endpoint = clients[1].endpoint
        async with stranger(endpoint) as visitor:
            await log_in(visitor, load_users(client, 9, encrypted=False, insecure=False))
            visitor.write(framed(request(ApiVersionsRequest(client_software_name="a", client_software_version="1"))))
            _, versions = decode_response(await visitor.answer(), api_key=ApiKey.API_VERSIONS, version=5)
            served = {row.api_key for row in versions.api_keys}  # type: ignore[attr-defined]
            assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= served
            visitor.write(framed(request(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"))))
            _, again = decode_response(await visitor.answer(), api_key=ApiKey.SASL_HANDSHAKE, version=1)
            assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE  # type: ignore[attr-defined]
            assert not await ask(visitor, msg.fetch(ReplicaKey(1), 1, cluster_id="blue", offset=0, last_epoch=0))


async def test_a_transport_of_ones_own_does_its_own_login() -> None:
    voters = (StaticVoter(1, Endpoint("127.0.0.1", free_port())),)
    config = RaftConfig(node_id=1, voters=voters, sasl=SaslConfig(password=SECRET))
    with pytest.raises(ConfigError, match="sasl is of the TCP transport"):
        await RaftClient(config, transport=TcpTransport(LOOPBACK)).start()


async def test_files_are_looked_at_before_anything_listens(tmp_path: Path) -> None:
    path = secret_file(tmp_path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        async with quorum({1: SaslConfig(secret_file=path)}):
            pass


@pytest.fixture(autouse=True)
def _hear(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
