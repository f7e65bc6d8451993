"""Unix sockets: their files, whom they let in, and what is dialled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from kraftlib import RaftClient, RaftConfig
from kraftlib.config import StaticVoter
from kraftlib.errors import ConfigError
from kraftlib.find_leader import find_leader
from kraftlib.runtime.net.framing import framed
from kraftlib.runtime.net.tcp import TcpTransport
from kraftlib.runtime.net.transport import Destination
from kraftlib.runtime.net.unix_sockets import bind_unix, dial, remove
from kraftlib.security.contexts import Trust
from kraftlib.security.limits import TcpLimits
from kraftlib.security.sasl import SaslConfig
from kraftlib.testing.transport_contract import MakeTransport, TransportCheck, station
from kraftlib.types import Endpoint, parse_endpoint
from tests.runtime.net.test_tcp import LARGE, LOOPBACK, every_check, every_loop
from tests.runtime.quorum import PATIENCE_S
from tests.security.authority import Authority


def at(path: Path) -> Endpoint:
    return parse_endpoint(f"unix:{path}")


def listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


def trust_in(directory: Path) -> Trust:
    return Trust(socket_directories=frozenset({str(directory)}))


@pytest.fixture
def make(tmp_path: Path) -> MakeTransport:
    """Make transports on sockets of one directory."""
    numbers = itertools.count()

    def made(place: Endpoint | None) -> TcpTransport:
        listen = place or at(tmp_path / f"{next(numbers)}.sock")
        return TcpTransport(listen, limits=LARGE, trust=trust_in(tmp_path))

    return made


@every_loop
@every_check
def test_the_contract_is_kept(check: TransportCheck, loop: Any, make: MakeTransport) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check(make))


def test_the_file_of_a_socket_has_its_mode_and_goes_with_it(tmp_path: Path) -> None:
    for mode in (0o600, 0o660):
        with bind_unix(str(tmp_path / "1.sock"), mode):
            assert stat.S_IMODE((tmp_path / "1.sock").stat().st_mode) == mode
        remove(str(tmp_path / "1.sock"))
        assert list(tmp_path.iterdir()) == []


def test_the_socket_of_a_dead_process_is_replaced_and_no_other_file_is(tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    listening(path).close()
    with bind_unix(str(path), 0o600):
        with pytest.raises(ConfigError, match="a process listens there; stop it"):
            bind_unix(str(path), 0o600)
        remove(str(path))
        assert path.exists(), "a file on which another listens stays"
    path.unlink()
    path.write_text("precious")
    with pytest.raises(ConfigError, match="no socket; name another path"):
        bind_unix(str(path), 0o600)
    assert path.read_text() == "precious"
    with pytest.raises(ConfigError, match="name a directory"):
        bind_unix(str(tmp_path / "missing" / "1.sock"), 0o600)


def test_a_listener_whose_queue_is_full_is_alive(tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    with listening(path), contextlib.ExitStack() as visitors:
        with contextlib.suppress(BlockingIOError):
            for _ in range(1_000):
                visitor = visitors.enter_context(socket.socket(socket.AF_UNIX))
                visitor.setblocking(False)
                visitor.connect(str(path))
        with pytest.raises(ConfigError, match="a process listens there"):
            bind_unix(str(path), 0o600)


async def test_a_full_queue_is_no_connection_and_no_refusal(tmp_path: Path) -> None:
    """A leader that is behind with accepting must not be taken for dead."""
    path = tmp_path / "1.sock"
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen(0)
    with made, contextlib.ExitStack() as open_ones:
        open_ones.enter_context(await dial(str(path), frozenset()))
        with pytest.raises(BlockingIOError):
            await dial(str(path), frozenset())
    with pytest.raises(ConnectionRefusedError):
        await dial(str(path), frozenset())


async def test_a_quorum_on_unix_sockets_commits_and_is_asked_by_a_tool(tmp_path: Path) -> None:
    """One has TLS and another has SASL: on a Unix socket neither is spoken. The files are gone at the end."""
    authority = Authority(tmp_path)
    sockets = tmp_path / "run"
    sockets.mkdir()
    voters = tuple(StaticVoter(number, at(sockets / f"{number}.sock")) for number in (1, 2, 3))
    clients: list[RaftClient[bytes]] = []
    try:
        async with asyncio.timeout(3 * PATIENCE_S):
            for voter in voters:
                name = f"kraft://blue/{voter.id}"
                options = {"tls": authority.files(f"{voter.id}", authority.issue(name))} if voter.id == 1 else {}
                sasl = SaslConfig(password="correct horse battery") if voter.id == 2 else None
                config = RaftConfig(node_id=voter.id, voters=voters, cluster_id="blue", sasl=sasl, **options)
                clients.append(RaftClient(config))
                await clients[-1].start()
            leader = await clients[0].wait_for_leader()
            appended = await clients[(leader.leader_id or 1) - 1].append_one(b"x")
            for client in clients:
                await client.wait_for_offset(appended.last_offset)
            found = await asyncio.to_thread(find_leader, [voters[0].endpoint], timeout_s=PATIENCE_S)
            assert found == voters[(leader.leader_id or 1) - 1].endpoint
    finally:
        for client in clients:
            await client.shutdown(timeout_ms=0)
    assert list(sockets.iterdir()) == []


async def test_a_socket_beside_a_port_serves_the_same(tmp_path: Path) -> None:
    path = tmp_path / "1.sock"
    async with asyncio.timeout(PATIENCE_S):
        async with (
            station(lambda _: TcpTransport(LOOPBACK, also=[at(path)], socket_mode=0o660)) as server,
            station(lambda _: TcpTransport(LOOPBACK, trust=trust_in(tmp_path))) as client,
        ):
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            for number, endpoint in enumerate((server.endpoint, at(path))):
                client.ask(Destination(1, endpoint))
                await client.until_heard(number + 1)
            first, second = (peer for _, _, peer in server.requests)
    assert client.heard == [b"question", b"question"]
    assert (first.principals, second.principals) == ((), (f"unix:{os.geteuid()}",))
    assert second.address == f"unix:{os.geteuid()} (process {os.getpid()}, connection 1)"


async def test_a_port_that_is_taken_leaves_no_socket_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = Endpoint("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigError, match="in use"):
            async with station(lambda _: TcpTransport(at(tmp_path / "1.sock"), also=[port])):
                pass
    assert os.listdir(tmp_path) == []


async def test_only_sockets_in_directories_of_the_configuration_are_dialled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer, or a log that somebody else has written, might name the socket of another service."""
    foreign = tmp_path / "docker.sock"
    with listening(foreign) as server:
        server.setblocking(False)
        trust = trust_in(tmp_path / "run")
        async with station(lambda _: TcpTransport(LOOPBACK, trust=trust)) as ours:
            ours.ask(Destination(1, at(foreign)))
            await ours.until_heard(1)
            assert ours.heard == [None]
        with pytest.raises(BlockingIOError):
            server.accept()
    assert "name a socket in its directory" in caplog.text


async def test_other_users_share_slots_and_no_slot_of_a_voter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here the replica takes itself for another user than it is, so that we are strangers to it."""
    user = f"unix:{os.geteuid()}"
    path = tmp_path / "1.sock"
    limits = TcpLimits(connections_max=9, connections_per_address_max=2, voter_connections_max=9)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    async with station(lambda _: TcpTransport(at(path), limits=limits), echo=False) as server:
        async with asyncio.timeout(PATIENCE_S):
            pairs = [await asyncio.open_unix_connection(str(path)) for _ in range(2)]
            for _, writer in pairs:
                writer.write(framed(b"in"))
            await server.until_asked(2)
            reader, late = await asyncio.open_unix_connection(str(path))
            assert await reader.read() == b""
            for writer in (late, *(each for _, each in pairs)):
                writer.close()
    assert f"refused a connection of {user} (process {os.getpid()}, connection 3)" in caplog.text
