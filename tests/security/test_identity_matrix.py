"""24 cases: 12 certificates, held by a peer that asks as replica 2 and by a server that is dialled as replica 2.

Unix sockets have no certificates: there the cases are the users of the system.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kraftlib.config import RaftConfig
from kraftlib.consensus.extensions import priority, read_index, state_digests
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.own_requests import FIRST_DESTINATION, PROPOSALS
from kraftlib.security.access import AccessConfig
from kraftlib.security.contexts import Contexts, Trust
from kraftlib.types import Endpoint, OffsetAndEpoch, ReplicaKey, parse_endpoint
from kraftlib.wire.frames import encode_request
from tests.runtime.wired import engine, vote_answer
from tests.security.authority import Authority
from tools.scenarios import handmade as msg

LOOPBACK: Final = Endpoint("127.0.0.1", 0)
PATIENCE_S: Final = 30
BLUE_2: Final = "kraft://blue/2"

Make = Callable[[Authority, Authority], dict[str, ssl.SSLContext]]

CASES: Final[dict[str, tuple[Make, bool]]] = {
    "right": (lambda ours, foreign: ours.contexts(BLUE_2), True),
    "another replica": (lambda ours, foreign: ours.contexts("kraft://blue/3"), False),
    "another cluster": (lambda ours, foreign: ours.contexts("kraft://green/2"), False),
    "no URI": (lambda ours, foreign: ours.contexts(), False),
    "the right URI is the second": (lambda ours, foreign: ours.contexts("spiffe://blue/2", BLUE_2), True),
    "the second URI is of another replica": (lambda ours, foreign: ours.contexts("urn:2", "kraft://blue/3"), False),
    "common name only": (lambda ours, foreign: ours.contexts(common_name=BLUE_2), False),
    "upper-case scheme": (lambda ours, foreign: ours.contexts("KRAFT://blue/2"), True),
    "upper-case scheme, another replica": (lambda ours, foreign: ours.contexts("KRAFT://blue/3"), False),
    "unreadable beside the right one": (lambda ours, foreign: ours.contexts("kraft://blue/2/3", BLUE_2), False),
    "expired": (lambda ours, foreign: ours.contexts(BLUE_2, ends=-datetime.timedelta(seconds=1)), False),
    "another authority": (lambda ours, foreign: foreign.contexts(BLUE_2, trusted=[ours, foreign]), False),
}


@pytest.fixture
def authorities(tmp_path: Path) -> tuple[Authority, Authority]:
    (tmp_path / "ours").mkdir()
    (tmp_path / "foreign").mkdir()
    return Authority(tmp_path / "ours"), Authority(tmp_path / "foreign", name="another authority")


def our_transport(authority: Authority) -> TcpTransport:
    return TcpTransport(
        LOOPBACK, trust=Trust(contexts=Contexts(*authority.contexts("kraft://blue/1").values()), cluster_id="blue")
    )


def vote_of_2() -> Any:
    return msg.vote(ReplicaKey(2), 3, cluster_id="blue", end=OffsetAndEpoch(epoch=1, offset=1))


@pytest.mark.parametrize("case", CASES)
async def test_who_asks_as_replica_2_is_heard_with_its_certificate_only(
    case: str, authorities: tuple[Authority, Authority]
) -> None:
    make, is_heard = CASES[case]
    frame = encode_request(vote_of_2(), version=2, correlation_id=7, client_id="x")
    async with asyncio.timeout(PATIENCE_S):
        async with engine(our_transport(authorities[0]), cluster_id="blue", answer=lambda _: vote_answer()) as ours:
            answer = await answer_to(frame, ours.endpoint, make(*authorities)["client_ssl"])

    assert bool(answer) == is_heard
    assert len(ours.heard) == is_heard


async def answer_to(frame: bytes, endpoint: Endpoint, context: ssl.SSLContext) -> bytes:
    """Send a frame; return what comes back until an answer is whole or the connection is closed."""
    try:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
        writer.write(len(frame).to_bytes(4, "big") + frame)
        try:
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        finally:
            writer.close()
    except (OSError, asyncio.IncompleteReadError):
        return b""


class Listening:
    """A server that notes what it is sent, and answers nothing."""

    def __init__(self) -> None:
        self.got = b""
        self.over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.got = await reader.read(100)
        except OSError:
            self.got = b""
        writer.close()
        self.over.set()


@pytest.mark.parametrize("case", CASES)
async def test_who_is_dialled_as_replica_2_is_spoken_to_with_its_certificate_only(
    case: str, authorities: tuple[Authority, Authority], caplog: pytest.LogCaptureFixture
) -> None:
    make, is_heard = CASES[case]
    there = Listening()
    context = make(*authorities)["server_ssl"]
    async with asyncio.timeout(PATIENCE_S):
        server = await asyncio.start_server(there.serve, "127.0.0.1", 0, ssl=context)
        endpoint = Endpoint(*server.sockets[0].getsockname()[:2])
        async with server, engine(our_transport(authorities[0]), cluster_id="blue") as ours:
            ours.network.send(1, 2, endpoint, vote_of_2())
            await ours.until(1)  # the request fails, sooner or later
            if is_heard:
                await there.over.wait()

    assert bool(there.got) == is_heard
    notices = [text for record in caplog.records if str(endpoint) in (text := record.getMessage())]
    assert is_heard or len(notices) == 1, "one line for one problem"


async def test_a_bootstrap_server_is_any_replica_of_the_cluster(authorities: tuple[Authority, Authority]) -> None:
    for uri, is_heard in {"kraft://blue/3": True, "kraft://green/3": False}.items():
        assert await is_spoken_to(authorities[0], uri, -2, expected=is_heard) == is_heard


LANES: Final = {
    "read barriers": read_index.lane_to(2),
    "priorities": priority.lane_to(2),
    "digests": state_digests.lane_to(2),
    "changes of voters": FIRST_DESTINATION - 2,
    "forwarded appends": PROPOSALS - 2,
}
"""The connections to replica 2 beside the one between replicas."""


@pytest.mark.parametrize("lane", LANES)
async def test_each_further_connection_to_replica_2_asks_for_its_certificate(
    lane: str, authorities: tuple[Authority, Authority]
) -> None:
    """Another replica there could acknowledge appends that nobody has, and tell stale reads and digests of its own."""
    for uri, is_heard in {BLUE_2: True, "kraft://blue/3": False}.items():
        assert await is_spoken_to(authorities[0], uri, LANES[lane], expected=is_heard) == is_heard


async def is_spoken_to(authority: Authority, uri: str, number: int, *, expected: bool) -> bool:
    """Dial a server with this name as destination `number`; return whether it was sent anything."""
    there = Listening()
    context = authority.contexts(uri)["server_ssl"]
    async with asyncio.timeout(PATIENCE_S):
        server = await asyncio.start_server(there.serve, "127.0.0.1", 0, ssl=context)
        endpoint = Endpoint(*server.sockets[0].getsockname()[:2])
        async with server, engine(our_transport(authority), cluster_id="blue") as ours:
            ours.network.send(1, number, endpoint, vote_of_2())
            await ours.until(1)
            if expected:
                await there.over.wait()
    return bool(there.got)


USERS: Final = {"our own user": (0, (), True), "another user": (1, (), False), "a listed user": (1, (0,), True)}
"""How far the replica's user is from ours, the users that it lists as replicas, and whether we are one of them."""


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[AccessConfig, bool]:
    """Let the replica run as one of `USERS`; return its lists, and whether we may speak as a replica."""
    distance, listed, is_heard = USERS[request.param]
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + distance)
    return AccessConfig(replicas=[f"unix:{own + each}" for each in listed]), is_heard


async def test_who_asks_as_replica_2_on_a_unix_socket_is_heard_if_it_is_a_user_of_replicas(
    user: tuple[AccessConfig, bool], tmp_path: Path
) -> None:
    access, is_heard = user
    here = parse_endpoint(f"unix:{tmp_path}/1.sock")
    config = RaftConfig(node_id=1, listen=here, access=access)
    frame = encode_request(vote_of_2(), version=2, correlation_id=7, client_id="x")
    async with asyncio.timeout(PATIENCE_S):
        async with engine(TcpTransport(here), config=config, cluster_id="blue", answer=lambda _: vote_answer()) as ours:
            reader, writer = await asyncio.open_unix_connection(tmp_path / "1.sock")
            writer.write(len(frame).to_bytes(4, "big") + frame)
            assert bool(await reader.read(4)) == is_heard
            writer.close()
            assert len(ours.heard) == is_heard


async def test_who_is_dialled_as_replica_2_on_a_unix_socket_is_spoken_to_if_it_is_a_user_of_replicas(
    user: tuple[AccessConfig, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory belongs to the replica: the owner of a directory is trusted, too."""
    access, is_heard = user
    os_stat = os.stat

    def stat_as_the_replica(path: Any, **how: Any) -> os.stat_result:
        found = os_stat(path, **how)
        return os.stat_result((*found[:4], os.geteuid(), *found[5:])) if path == tmp_path else found

    monkeypatch.setattr(os, "stat", stat_as_the_replica)
    there = Listening()
    endpoint = parse_endpoint(f"unix:{tmp_path}/2.sock")
    trust = Trust(replicas=frozenset(access.replicas), socket_directories=frozenset({str(tmp_path)}))
    async with asyncio.timeout(PATIENCE_S):
        server = await asyncio.start_unix_server(there.serve, tmp_path / "2.sock")
        async with server, engine(TcpTransport(LOOPBACK, trust=trust), cluster_id="blue") as ours:
            ours.network.send(1, 2, endpoint, vote_of_2())
            await ours.until(1)
            await there.over.wait()
    assert bool(there.got) == is_heard
