"""`kraftlib run`: a replica in a process of its own, its store over a socket, and everything that can be wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from kraftlib.blocking import RaftClient
from kraftlib.cli.run import clients_of as where_clients_connect
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ConfigError
from kraftlib.metadata import MetadataSerde, TopicRecord
from kraftlib.security.access import AccessConfig
from kraftlib.security.sasl import SaslConfig
from kraftlib.security.tls import TlsConfig
from kraftlib.storage.directory import format_directory
from kraftlib.types import Endpoint, new_uuid, parse_endpoint
from tests.cli.conftest import Command
from tests.cli.processes import TIMEOUT_S, ask, clients_of, running, single
from tests.ports import free_port
from tests.security.test_guide import CLUSTER, block, here
from tests.security.test_guide import run as run_block

OPEN = RaftConfig(node_id=1)


@pytest.mark.parametrize(("engine", "number"), [("thread", signal.SIGINT), ("inline", signal.SIGTERM)])
def test_what_was_put_is_there_after_a_graceful_stop(engine: str, number: signal.Signals, tmp_path: Path) -> None:
    path = single(tmp_path, engine=engine)
    for expected in (None, "1"):
        with running("run", "-c", path) as process:
            clients = clients_of(process.line_with("replica 1: "))
            process.line_with("replica 1 (this one) leads")
            previous = ask(clients, {"put": {"key": "a", "value": "1"}})["put"]["previous"]
            assert ask(clients, {"get": "a"})["get"]["value"] == "1"
            assert ask(clients, {"status": True})["status"]["role"] == "leader"
            status, errors = process.end(number)
        assert previous == expected
        assert (status, errors) == (0, "")


def test_every_file_of_a_stopped_replica_reads_back(tmp_path: Path, kraftlib: Command) -> None:
    """Segment, indexes and Kafka's producer state: all there, whole, and fitting each other."""
    with running("run", "-c", single(tmp_path)) as process:
        clients = clients_of(process.line_with("replica 1: "))
        process.line_with("(this one) leads")
        for number in range(200):
            ask(clients, {"put": {"key": f"key {number}", "value": "x" * 100}})
        process.end(signal.SIGTERM)
    kinds = set()
    for path in sorted((tmp_path / "data/__cluster_metadata-0").iterdir()):
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot", ".checkpoint"):
            kinds.add(path.suffix)
            assert (path.name, kraftlib("dump-log", path).err) == (path.name, "")

    assert kinds >= {".log", ".index", ".timeindex", ".snapshot"}


def test_what_was_put_survives_kill_9(tmp_path: Path) -> None:
    path = single(tmp_path)
    with running("run", "-c", path) as process:
        clients = clients_of(process.line_with("replica 1: "))
        process.line_with("(this one) leads")
        for number in range(20):
            ask(clients, {"put": {"key": f"key {number}", "value": "1"}})
        process.end(signal.SIGKILL)
    with running("run", "-c", path) as process:
        clients = clients_of(process.line_with("replica 1: "))
        process.line_with("(this one) leads")
        ask(clients, {"put": {"key": "last", "value": "1"}})
        assert len(ask(clients, {"all": True})["all"]["items"]) == 21


def test_without_a_store_it_carries_a_log_that_is_not_the_stores(tmp_path: Path) -> None:
    """Kafka's metadata records would stop the store at the first one."""
    path = single(tmp_path)
    with RaftClient(RaftConfig.from_toml(path), serde=MetadataSerde()) as client:
        client.wait_for_leader(timeout_ms=TIMEOUT_S * 1_000)
        appended = client.append([TopicRecord(name="events", topic_id=new_uuid())])

    with running("run", "-c", path, "--no-store") as process:
        clients = clients_of(process.line_with("replica 1: "))
        process.line_with("replica 1 (this one) leads")
        assert ask(clients, {"status": True})["status"]["high_watermark"] > appended.last_offset
        assert "a request has one of status" in ask(clients, {"put": {"key": "a", "value": "1"}})["message"]
        assert process.end(signal.SIGTERM) == (0, "")


def test_a_replica_goes_on_when_nobody_reads_what_it_prints(tmp_path: Path) -> None:
    """Its store hears of a new leader by the same call that prints it."""
    voters = [StaticVoter(number, Endpoint("127.0.0.1", free_port())) for number in (1, 2)]
    configs = []
    for voter in voters:
        format_directory(tmp_path / f"data-{voter.id}", node_id=voter.id, cluster_id="pair")
        configs.append(tmp_path / f"{voter.id}.toml")
        configs[-1].write_text(
            f'node_id = {voter.id}\ndirectory = "data-{voter.id}"\nlisten = "{voter.endpoint}"\n'
            f'voters = "{",".join(map(str, voters))}"\nelection_timeout_ms = 300\n'
        )
    with running("run", "-c", configs[0]) as first:
        clients = clients_of(first.line_with("replica 1: "))
        assert first.popen.stdout is not None
        first.popen.stdout.close()
        with running("run", "-c", configs[1]) as second:
            others = clients_of(second.line_with("replica 2: "))
            second.line_with(" leads\n")
            deadline_s = time.monotonic() + TIMEOUT_S
            while not any("put" in ask(place, {"put": {"key": "a", "value": "1"}}) for place in (clients, others)):
                assert time.monotonic() < deadline_s, "neither of them takes a record"
            assert ask(clients, {"read": "a"})["read"]["value"] == "1"


# Bad input ----------------------------------------------------------------------------------------


def refused(*arguments: object) -> str:
    """Run a command that must fail; return the one line that it says."""
    with running("run", *arguments) as process:
        status, errors = process.end()
    assert status == 1, errors
    assert errors.startswith("kraftlib: ")
    assert errors.count("\n") == 1
    return errors


def test_a_directory_that_is_not_formatted_says_how_to_format_it(tmp_path: Path) -> None:
    path = single(tmp_path)
    (tmp_path / "data/meta.properties").unlink()
    errors = refused("-c", path)

    assert f"{tmp_path / 'data'} is not formatted" in errors
    assert "kraftlib format -c" in errors


def test_two_processes_on_one_directory(tmp_path: Path) -> None:
    """The second says who has it; the first is not disturbed."""
    path = single(tmp_path)
    with running("run", "-c", path) as first:
        clients = clients_of(first.line_with("replica 1: "))
        first.line_with("(this one) leads")
        errors = refused("-c", single(tmp_path, port=free_port()))
        assert f"{tmp_path / 'data'} is in use by process {first.popen.pid}" in errors
        assert ask(clients, {"put": {"key": "a", "value": "1"}})["put"]["previous"] is None
        assert first.end(signal.SIGTERM) == (0, "")


def test_the_address_of_the_replicas_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        errors = refused("-c", single(tmp_path, port=port))

    assert f"127.0.0.1:{port}" in errors
    assert "in use" in errors


def test_the_address_of_the_clients_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        errors = refused("-c", single(tmp_path), "--clients", f"127.0.0.1:{port}")

    assert f"cannot listen on 127.0.0.1:{port} for clients" in errors


def test_the_directory_of_another_cluster(tmp_path: Path) -> None:
    single(tmp_path)
    errors = refused("-c", single(tmp_path, cluster_id="red"))

    assert "blue" in errors
    assert "red" in errors


def test_the_directory_of_another_node(tmp_path: Path) -> None:
    single(tmp_path)
    errors = refused("-c", single(tmp_path, node_id=2, voters=f"2@127.0.0.1:{free_port()}"))

    assert "node" in errors


def test_a_node_that_is_no_voter(tmp_path: Path) -> None:
    single(tmp_path)
    assert "node_id=1 is not among voters=" in refused("-c", single(tmp_path, voters="2@127.0.0.1:9002"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node_id = \n", "is no TOML"),
        ("node_id = 1\nfetch_timout_ms = 1\n", "unknown key 'fetch_timout_ms'"),
        ('voters = "1@127.0.0.1:9001"\n', "node_id is missing"),
        ('node_id = "one"\n', "node_id='one' must be of type int"),
        ("node_id = 1\nfetch_timeout_ms = 100\n", "must be below fetch_timeout_ms=100"),
        ('node_id = 1\nvoters = "1@127.0.0.1"\n', "'127.0.0.1' is no endpoint"),
        ('node_id = 1\nlisten = "0.0.0.0:9001"\nvoters = "1@127.0.0.1:9001"\n', "insecure"),
    ],
)
def test_a_wrong_configuration_is_one_line(text: str, says: str, tmp_path: Path, kraftlib: Command) -> None:
    path = tmp_path / "replica.toml"
    path.write_text(text)
    result = kraftlib("run", "-c", path)

    assert (result.status, result.out) == (1, "")
    assert says in result.err
    assert result.err.splitlines()[-1].startswith("kraftlib: ")


def test_two_voters_are_warned_of(tmp_path: Path) -> None:
    single(tmp_path)
    port = free_port()
    voters = f"1@127.0.0.1:{port},2@127.0.0.1:{free_port()}"
    path = single(tmp_path, voters=voters, shutdown_timeout_ms=50)
    with running("run", "-c", path) as process:
        process.line_with("replica 1: ")
        status, errors = process.end(signal.SIGTERM)

    assert status == 0
    assert errors.startswith("kraftlib: ")
    assert "a quorum of two survives no failure" in errors


@pytest.mark.parametrize("text", ["0.0.0.0:9101", "192.0.2.1:0", "db.example.com:9101"])
def test_clients_are_never_served_beyond_loopback(text: str) -> None:
    with pytest.raises(ConfigError, match="on loopback only"):
        where_clients_connect(OPEN, text)


@pytest.mark.parametrize("text", ["127.0.0.1:0", "[::1]:0", "localhost:9101", "unix:/run/kraft/clients.sock"])
def test_clients_are_served_on_loopback_and_on_unix_sockets(text: str) -> None:
    assert str(where_clients_connect(OPEN, text)) == text
    assert str(where_clients_connect(OPEN)) == "127.0.0.1:0"
    assert where_clients_connect(OPEN, "none") is None


@pytest.mark.parametrize(
    "guard",
    [
        {"access": AccessConfig()},
        {"sasl": SaslConfig(password="correct horse battery")},
        {"tls": TlsConfig(unnamed_replicas=True)},
        {"unix_socket": "/run/kraft/1.sock"},
        {"listen": parse_endpoint("unix:/run/kraft/1.sock")},
        {"voters": (StaticVoter(1, parse_endpoint("unix:/run/kraft/1.sock")),)},
    ],
)
def test_what_is_closed_to_other_users_has_no_port_for_clients(guard: dict[str, Any], tmp_path: Path) -> None:
    config = attrs.evolve(OPEN, directory=tmp_path, **guard)
    assert str(where_clients_connect(config)) == f"unix:{tmp_path}/clients.sock"
    assert where_clients_connect(config, "none") is None
    with pytest.raises(ConfigError, match="any user of this machine could do there"):
        where_clients_connect(config, "127.0.0.1:0")
    with pytest.raises(ConfigError, match=r"at most 107 fit.*; name a shorter path with --clients unix:PATH, or none"):
        where_clients_connect(attrs.evolve(config, directory=tmp_path / ("x" * 100)))
    with pytest.raises(ConfigError, match=r"x\.sock.*at most 107 fit.*; set TMPDIR to a shorter path"):
        where_clients_connect(config, socket=tmp_path / ("x" * 100 + ".sock"))


@pytest.mark.parametrize("name", ["loopback", "secret", "certificates", "unix"])
def test_the_table_of_the_guide_is_true_of_other_users(name: str, tmp_path: Path) -> None:
    """ "Another user of the machine" is refused: by the port of the replica, and by a socket that is not for it."""
    ports = {number: free_port() for number in (1, 2, 3)}
    if name != "loopback":
        run_block(
            here(block("commands" if name == "certificates" else f"{name} command"), ports).replace(
                "/run/kraft", f"{tmp_path}/run"
            ),
            tmp_path,
        )
    path = tmp_path / "replica-1.toml"
    path.write_text(here(block(name), ports).replace("/run/kraft", f"{tmp_path}/run"))
    format_directory(tmp_path / "replica-1", node_id=1, cluster_id=CLUSTER)

    with running("run", "-c", path) as process:
        clients = clients_of(process.line_with("replica 1: "))
        assert ask(clients, {"status": True})["status"]["node_id"] == 1
        own = {"loopback": {ports[1], clients.port}, "unix": set()}.get(name, {ports[1]})
        assert listening_ports(process.popen.pid) == own
        if name != "loopback":
            socket_file = tmp_path / "replica-1" / "clients.sock"
            assert str(clients) == f"unix:{socket_file}"
            assert stat.S_IMODE(socket_file.stat().st_mode) == 0o600
            assert "no JSON object" in ask(clients, "GET / HTTP/1.1")["message"]
        process.end(signal.SIGTERM)


def listening_ports(pid: int) -> set[int]:
    """Return the TCP ports that a process listens on."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # one that was closed since: none that listens
            inodes.add(os.readlink(link))
    rows = [
        line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()
    ]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


def test_garbage_on_the_port_of_the_replicas_disturbs_nobody(tmp_path: Path) -> None:
    """HTTP, the beginning of TLS, frames without length, a length beyond all limits."""
    port = free_port()
    with running("run", "-c", single(tmp_path, port=port)) as process:
        clients = clients_of(process.line_with("replica 1: "))
        process.line_with("(this one) leads")
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", bytes(100), b"\x7f" * 100):
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
                connection.sendall(garbage)
                with contextlib.suppress(OSError):  # it may be reset, since nobody reads what is turned away
                    connection.shutdown(socket.SHUT_WR)
                    assert connection.recv(1) == b""
        assert ask(clients, {"put": {"key": "a", "value": "1"}})["put"]["previous"] is None
        status, errors = process.end(signal.SIGTERM)

    assert status == 0
    assert "Traceback" not in errors


def test_quorum_status_of_a_running_replica(tmp_path: Path, kraftlib: Command) -> None:
    port = free_port()
    with running("run", "-c", single(tmp_path, port=port)) as process:
        process.line_with("(this one) leads")
        result = kraftlib("quorum", "status", "--bootstrap", f"127.0.0.1:{port}")
        process.end(signal.SIGTERM)

    assert result.status == 0
    assert "LeaderId:               1\n" in result.out
    assert f'"endpoints": ["CONTROLLER://127.0.0.1:{port}"]' in result.out


def test_the_example_of_the_help_is_a_configuration(tmp_path: Path, kraftlib: Command) -> None:
    """What `run --help` shows can be used as it stands."""
    text = kraftlib("run", "--help").out
    lines = text.partition("for the first of three replicas:\n")[2].partition("\n\n")[0].splitlines()
    path = tmp_path / "replica-1.toml"
    path.write_text("\n".join(line.strip() for line in lines))

    assert kraftlib("format", "-c", path, "-t", "blue").status == 0
