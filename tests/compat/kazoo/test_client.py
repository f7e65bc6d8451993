"""The client, as a program uses it: sessions, leaders that end, listeners, and what it says of options."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import (
    BadArgumentsError,
    ConfigurationError,
    ConnectionClosedError,
    ConnectionLoss,
    UnimplementedError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import _CONNECTION_DROP, _SESSION_EXPIRED
from kazoo.protocol.states import KazooState

import kraftlib
from kraftlib.compat.kazoo import KazooClient
from kraftlib.compat.kazoo.nodes import record_key
from kraftlib.compat.kazoo.watches import WATCHES_MAX
from kraftlib.coordination.messages import Do, Transact
from kraftlib.errors import ConfigError
from kraftlib.security.access import AccessConfig
from tests.compat.kazoo_suite import Cluster
from tests.security.authority import Authority

PATIENCE_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as replicas:
        yield replicas


@contextmanager
def started(cluster: Cluster, **options: Any) -> Iterator[KazooClient]:
    client = KazooClient(hosts=",".join(server.address for server in cluster), **options)
    client.start(timeout=PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class Greenlets:
    """Any other handler than that of threads."""

    def __init__(self) -> None:
        self._inner = SequentialThreadingHandler()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def note(seen: list[bytes], data: bytes, stat: object) -> None:
    seen.append(data)


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.01)


def test_a_session_that_has_ended_takes_its_nodes_and_is_followed_by_another(cluster: Cluster) -> None:
    with started(cluster) as client, started(cluster) as other:
        heard: list[str] = []
        client.add_listener(heard.append)
        first = client.client_id
        client.create("/mine", ephemeral=True)
        assert other.get("/mine")[1].ephemeralOwner == first[0]
        events: list[str] = []
        other.exists("/mine", watch=lambda event: events.append(event.type))

        client._call(_SESSION_EXPIRED, None)
        until(lambda: heard == [KazooState.LOST, KazooState.CONNECTED])
        until(lambda: events == ["DELETED"])
        assert client.client_id != first
        assert other.exists("/mine") is None


def test_a_listener_may_wait_for_an_answer(cluster: Cluster) -> None:
    """With kazoo alone this hangs: its listeners run on the thread that reads the answers."""
    with started(cluster) as client:
        lock = client.Lock("/held-by-a-listener")
        lock.acquire()
        done = threading.Event()

        def release(state: str) -> bool:
            assert state == KazooState.SUSPENDED
            lock.release()
            done.set()
            return True  # not to be told again

        client.add_listener(release)
        client._call(_CONNECTION_DROP, None)
        assert done.wait(PATIENCE_S)


def test_increments_through_changes_of_the_leader_all_count(cluster: Cluster) -> None:
    with started(cluster) as client:
        counter = client.Counter("/count")
        for n in range(60):
            counter += 1
            if n % 20 == 10:
                cluster.do(cluster.replicas.change_leader(kill=n == 30))
        assert counter.value == 60
        assert client.state == KazooState.CONNECTED


def test_a_leader_that_is_killed_is_followed_by_the_next_candidate(cluster: Cluster) -> None:
    program = """
import sys, time
from kraftlib.compat.kazoo import KazooClient
client = KazooClient(hosts=sys.argv[1], timeout=1.0)
client.start()
client.Election("/election").run(lambda: (print("leads", flush=True), time.sleep(600)))
"""
    hosts = ",".join(server.address for server in cluster)
    command = [sys.executable, "-c", program, hosts]
    with started(cluster) as client, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "leads\n"
        led = threading.Event()
        election = client.Election("/election")
        next_one = threading.Thread(target=election.run, args=(led.set,))
        next_one.start()
        until(lambda: len(election.contenders()) == 2)
        assert not led.is_set()
        process.kill()
        process.wait()
        assert led.wait(PATIENCE_S)
        next_one.join()


def test_more_data_watches_than_one_connection_has(cluster: Cluster) -> None:
    with started(cluster, timeout=3.0 * PATIENCE_S) as client:  # a third of it is how long an answer may take
        paths = [f"/many-{n}" for n in range(WATCHES_MAX + 10)]
        seen: dict[str, list[bytes]] = {path: [] for path in paths}
        for some in (paths[:60], paths[60:]):
            with client.transaction() as made:
                for path in some:
                    made.create(path, b"0")
        for path in paths:
            client.DataWatch(path, partial(note, seen[path]))
        with client.transaction() as changed:
            for path in paths:
                changed.set_data(path, b"1")
        until(lambda: all(values == [b"0", b"1"] for values in seen.values()))


def test_what_cannot_be_done_ends_neither_the_session_nor_in_attempts_without_end(cluster: Cluster) -> None:
    async def spoil() -> None:
        async with kraftlib.connect(",".join(server.address for server in cluster)) as kraft:
            put = Transact.Operation(do=Do.PUT, key=record_key("/spoilt"), value=b"\x7f")
            await (await kraft.session()).call(Transact(then=(put,)))

    with started(cluster) as client:
        session = client.client_id
        too_large = client.transaction()
        too_large.create("/half", b"x" * 600_000)
        too_large.create("/other-half", b"x" * 600_000)
        with pytest.raises(BadArgumentsError, match="is larger than"):
            too_large.commit()
        asyncio.run(spoil())
        with pytest.raises(ConnectionLoss, match="not known to this release"):
            client.get("/spoilt")
        assert client.exists("/half") is None
        assert client.client_id == session


def test_a_forked_child_is_told_that_the_connection_is_not_there(cluster: Cluster) -> None:
    with started(cluster) as client:
        child = os.fork()
        if child == 0:  # no exception may leave this branch: it would go on as a second pytest
            status = 1
            signal.alarm(20)
            try:
                client.get("/")
            except ConnectionClosedError as error:
                status = 0 if "is a fork of that" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.exists("/") is not None


def test_it_ends_while_there_is_no_quorum_to_ask(cluster: Cluster) -> None:
    client = KazooClient(hosts="127.0.0.1:9")
    with pytest.raises(SequentialThreadingHandler.timeout_exception):
        client.start(timeout=0.5)
    assert not client.connected


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"client_id": (1, b"x" * 16)}, "taken over"),
        ({"sasl_options": {"mechanism": "PLAIN"}}, "sasl=SaslConfig"),
        ({"keyfile_password": "x"}, "key_password_file"),
        ({"read_only": True}, "every replica"),
        ({"timeout": 0.01}, "timeout=0.01"),
        ({"verify_certs": False}, "every certificate"),
        ({"handler": Greenlets()}, "SequentialThreadingHandler"),
    ],
)
def test_an_option_without_meaning_is_refused_with_the_remedy(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        KazooClient(**options)


def test_it_speaks_tls_with_the_options_of_kazoo(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    visitor = authority.files("visitor", authority.issue(common_name="a visitor"))

    def tls(node_id: int) -> dict[str, Any]:
        files = authority.files(f"{node_id}", authority.issue(f"kraft://ways/{node_id}"))
        return {"tls": files, "access": AccessConfig(writers=("cert:CN=a visitor",))}

    files = {"certfile": visitor.cert, "keyfile": visitor.key, "ca": visitor.ca}
    with Cluster(1, of_one=tls) as secure, started(secure, use_ssl=True, **files) as client:
        assert client.create("/a", b"x") == "/a"
    with pytest.raises(ConfigError, match="ca is missing"):
        KazooClient(use_ssl=True, certfile=visitor.cert, keyfile=visitor.key)


def test_what_protects_nothing_says_so_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with started(cluster) as client:
        assert client.add_auth("digest", "a:b")
        client.add_auth("digest", "c:d")
        with pytest.raises(UnimplementedError, match="status"):
            client.command(b"ruok")
    assert [record.message for record in caplog.records if "no effect" in record.message] == [
        "ACLs and add_auth have no effect: kraftlib authorizes connections, by their role, and not nodes"
    ]


def test_what_patroni_does_to_the_connection(cluster: Cluster) -> None:
    """Before it starts the client it wraps the function in which kazoo agrees on times; later it closes the socket."""
    client = KazooClient(hosts=",".join(server.address for server in cluster), timeout=6)
    connection: Any = client._connection
    agreed = connection._connect
    connection._connect = lambda *arguments: (1_000, agreed(*arguments)[1])
    client.start(timeout=PATIENCE_S)
    try:
        connection._socket.close()
        client.create("/patroni", b"leader", ephemeral=True)
        client._session_timeout = 4_000
        client.restart()
        until(lambda: client.exists("/patroni") is None)  # its session has ended with the old times
    finally:
        client.stop()
        client.close()
