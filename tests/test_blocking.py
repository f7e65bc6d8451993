"""The client for threads is the client for tasks: same names, same signatures, same outcomes."""

from __future__ import annotations

import asyncio
import inspect
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kraftlib import blocking
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ClosedError, ConfigError, KraftError, NotLeaderError, ReplicaFailedError
from kraftlib.records.serde import JsonSerde
from kraftlib.runtime.client import loop_thread
from kraftlib.runtime.client import raft_client as asyncio_face
from kraftlib.runtime.committed import BatchReader, CommittedRecord
from kraftlib.runtime.listener import Listener, StateMachine
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.runtime.net.transport import FrameReceiver
from kraftlib.types import Endpoint, LeaderAndEpoch, ReplicaKey
from tests.cli.processes import free_port
from tests.runtime.quorum import PATIENCE_S, TIMING


def public(cls: type) -> dict[str, Any]:
    dunder = ("__init__",)
    return {name: member for name, member in vars(cls).items() if not name.startswith("_") or name in dunder}


def test_both_faces_have_the_same_names() -> None:
    assert set(public(blocking.RaftClient)) == set(public(asyncio_face.RaftClient))


@pytest.mark.parametrize("name", sorted(public(asyncio_face.RaftClient)))
def test_both_faces_have_the_same_signature(name: str) -> None:
    ours, theirs = public(blocking.RaftClient)[name], public(asyncio_face.RaftClient)[name]
    assert type(ours) is type(theirs)
    if isinstance(ours, property):
        ours, theirs = ours.fget, theirs.fget
    assert inspect.signature(ours) == inspect.signature(theirs)


class Counter(StateMachine):
    def __init__(self) -> None:
        self.total = 0

    def apply(self, record: CommittedRecord) -> Any:
        self.total += record.value
        return self.total


@pytest.fixture
def three() -> Iterator[dict[int, blocking.RaftClient[Any]]]:
    hub = MemoryHub()
    voters = tuple(StaticVoter(node_id, Endpoint("replica", node_id)) for node_id in (1, 2, 3))
    clients: dict[int, blocking.RaftClient[Any]] = {
        node_id: blocking.RaftClient(
            RaftConfig(node_id=node_id, voters=voters, **TIMING),
            transport=MemoryTransport(hub, Endpoint("replica", node_id)),
            state_machine=Counter(),
            serde=JsonSerde(),
        )
        for node_id in (1, 2, 3)
    }
    for client in clients.values():
        client.start()
    yield clients
    for client in clients.values():
        client.shutdown(timeout_ms=0)


def leader_of(clients: dict[int, blocking.RaftClient[Any]]) -> blocking.RaftClient[Any]:
    while True:
        known = next(iter(clients.values())).wait_for_leader(timeout_ms=10_000)
        leader = clients[known.leader_id or 0]
        try:
            leader.append_one(0)
            return leader
        except NotLeaderError:
            continue


def test_threads_propose_and_each_gets_its_result(three: dict[int, blocking.RaftClient[Any]]) -> None:
    leader = leader_of(three)
    with ThreadPoolExecutor(8) as pool:
        totals = list(pool.map(leader.propose, [1] * 64, timeout=PATIENCE_S))

    assert sorted(totals) == list(range(1, 65))
    appended = leader.append([10, 20], wait="applied")
    assert appended.results == (74, 94)
    for client in three.values():
        client.wait_for_offset(appended.last_offset, timeout_ms=10_000)
        assert client.high_watermark() is not None
        assert client.log_end_offset() == appended.last_offset + 1


def test_a_follower_refuses_with_the_same_errors(three: dict[int, blocking.RaftClient[Any]]) -> None:
    leader = leader_of(three)
    follower = next(client for client in three.values() if client is not leader)
    follower.wait_for_offset(0, timeout_ms=10_000)
    with pytest.raises(NotLeaderError):
        follower.append_one(1, timeout_ms=0)
    with pytest.raises(ConfigError):
        leader.append([])
    with pytest.raises(TimeoutError, match="in vain"):
        leader.wait_for_offset(1_000_000, timeout_ms=1)


def test_everything_else_is_there_too(three: dict[int, blocking.RaftClient[Any]]) -> None:
    leader = leader_of(three)
    known = leader.leader_and_epoch()
    assert known.leader_id == leader.node_id == leader.config.node_id
    assert leader.endpoint == Endpoint("replica", leader.node_id)
    assert leader.kraft_version() == 0
    assert leader.latest_snapshot_id() is None
    assert leader.status().role == "leader"
    assert leader.metrics()["current-state"] == "leader"

    heard = threading.Event()

    class Hearing(Listener):
        def handle_commit(self, reader: BatchReader) -> None:
            heard.set()

    listener = Hearing()
    leader.register(listener)
    assert heard.wait(PATIENCE_S)
    leader.unregister(listener)
    last = leader.prepare_append(known.epoch, [1, 2])
    leader.schedule_prepared_append()
    leader.wait_for_offset(last, timeout_ms=10_000)
    with pytest.raises(NotImplementedError):
        leader.create_snapshot()
    snapshot_id = leader.create_snapshot([3], offset=last + 1)
    assert leader.latest_snapshot_id() == snapshot_id
    leader.resign(known.epoch)
    assert leader.wait_for_leader(timeout_ms=10_000).epoch >= known.epoch


def test_a_callback_may_ask_but_must_not_wait(three: dict[int, blocking.RaftClient[Any]]) -> None:
    leader = leader_of(three)
    asked: list[Any] = []

    class Curious(Listener):
        def handle_leader_change(self, known: LeaderAndEpoch) -> None:
            asked.append(leader.status().role)
            try:
                leader.append_one(1)
            except ConfigError as error:
                asked.append(str(error))

    leader.register(Curious())
    leader.append_one(1)
    leader.wait_for_offset(leader.log_end_offset() - 1, timeout_ms=10_000)
    assert asked[0] in ("leader", "resigned")
    assert "must not wait for its own replica" in asked[1]


def test_a_callback_that_would_close_is_refused_and_nothing_is_closed(
    three: dict[int, blocking.RaftClient[Any]],
) -> None:
    leader = leader_of(three)
    refused: list[str] = []

    class Closing(Listener):
        def handle_commit(self, reader: BatchReader) -> None:
            try:
                leader.close()
            except ConfigError as error:
                refused.append(str(error))

    leader.register(Closing())
    leader.propose(1)
    leader.propose(1)
    assert "must not wait for its own replica" in refused[0]


def test_a_shutdown_with_a_wrong_timeout_closes_nothing(three: dict[int, blocking.RaftClient[Any]]) -> None:
    leader = leader_of(three)
    with pytest.raises(ConfigError, match="timeout_ms='soon'"):
        leader.shutdown(timeout_ms="soon")  # type: ignore[arg-type]
    assert leader.propose(1) == 1


def test_a_client_that_is_closed_before_it_is_started_never_runs() -> None:
    voters = (StaticVoter(1, Endpoint("replica", 1)),)
    client: blocking.RaftClient[bytes] = blocking.RaftClient(RaftConfig(node_id=1, voters=voters, **TIMING))
    client.close()
    with pytest.raises(ClosedError, match="closed before it was started"):
        client.start()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kraftlib")]


def test_a_close_that_meets_a_start_before_there_is_a_loop_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    is_starting, goes_on = threading.Event(), threading.Event()

    def slow_factory(name: str) -> None:
        is_starting.set()
        assert goes_on.wait(PATIENCE_S)

    monkeypatch.setattr(loop_thread, "loop_factory", slow_factory)
    voters = (StaticVoter(1, Endpoint("replica", 1)),)
    client: blocking.RaftClient[bytes] = blocking.RaftClient(
        RaftConfig(node_id=1, voters=voters, **TIMING), transport=MemoryTransport(MemoryHub(), Endpoint("replica", 1))
    )
    waits = threading.Event()
    until_done = loop_thread.wait

    def ending(running: list[Any]) -> Any:
        waits.set()
        return until_done(running)

    monkeypatch.setattr(loop_thread, "wait", ending)
    with ThreadPoolExecutor(2) as pool:
        starting = pool.submit(client.start)
        assert is_starting.wait(PATIENCE_S)
        closing = pool.submit(client.close)
        assert waits.wait(PATIENCE_S)
        goes_on.set()
        try:
            closing.result(PATIENCE_S)
        finally:
            client.close()
        with pytest.raises(ClosedError, match="closed while it was started"):
            starting.result(PATIENCE_S)


def test_before_the_start_and_after_the_end_nothing_is_taken() -> None:
    voters = (StaticVoter(1, Endpoint("replica", 1)),)
    client: blocking.RaftClient[bytes] = blocking.RaftClient(
        RaftConfig(node_id=1, voters=voters, **TIMING), transport=MemoryTransport(MemoryHub(), Endpoint("replica", 1))
    )
    with pytest.raises(ClosedError, match="not started"):
        client.append_one(b"value")
    with client:
        client.wait_for_leader(timeout_ms=10_000)
        client.append_one(b"value")
        with pytest.raises(ConfigError, match="started once"):
            client.start()
    with pytest.raises(ClosedError, match="closed"):
        client.append_one(b"value")
    client.close()
    assert client.status().log_end_offset > 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kraftlib")]


def test_a_start_that_fails_leaves_no_thread() -> None:
    client: blocking.RaftClient[bytes] = blocking.RaftClient(RaftConfig(node_id=1))
    with pytest.raises(ConfigError, match="knows no other replica"):
        client.start()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kraftlib")]


def test_a_client_that_got_no_thread_can_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    place = Endpoint("replica", 1)
    client: blocking.RaftClient[bytes] = blocking.RaftClient(
        RaftConfig(node_id=1, voters=(StaticVoter(1, place),), **TIMING), transport=MemoryTransport(MemoryHub(), place)
    )
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            client.start()
    with client:
        client.wait_for_leader(timeout_ms=10_000)


def test_a_name_server_that_does_not_answer_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, over = threading.Event(), threading.Event()
    known = socket.getaddrinfo

    def silent(host: Any, *place: Any, **how: Any) -> Any:
        if host != "silent.example":
            return known(host, *place, **how)
        asked.set()
        over.wait(PATIENCE_S)
        over.set()
        raise socket.gaierror(socket.EAI_AGAIN, "no name server answers")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    place = Endpoint("127.0.0.1", free_port())
    voters = (StaticVoter(1, place), StaticVoter(2, Endpoint("silent.example", 1)))
    with blocking.RaftClient(RaftConfig(node_id=1, voters=voters, event_loop="asyncio", **TIMING)) as client:
        assert asked.wait(PATIENCE_S)
        client.shutdown(0)
    assert not over.is_set()
    over.set()


def test_wait_closed_returns_when_somebody_closes(three: dict[int, blocking.RaftClient[Any]]) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(three[1].wait_closed)
        three[1].shutdown(timeout_ms=0)
        waiting.result(PATIENCE_S)


def test_wait_closed_says_why_the_replica_failed_also_after_it_was_closed() -> None:
    class Failing(StateMachine):
        def apply(self, record: CommittedRecord) -> None:
            raise ValueError("no such account")

    place = Endpoint("replica", 1)
    client: blocking.RaftClient[bytes] = blocking.RaftClient(
        RaftConfig(node_id=1, voters=(StaticVoter(1, place),), **TIMING),
        transport=MemoryTransport(MemoryHub(), place),
        state_machine=Failing(),
    )
    with client:
        client.wait_for_leader(timeout_ms=int(PATIENCE_S * 1_000))
        client.append_one(b"value")
        with pytest.raises(ReplicaFailedError, match="no such account"):
            client.wait_closed()
    with pytest.raises(ReplicaFailedError, match="no such account"):
        client.wait_closed()


def test_who_waits_for_a_change_of_the_voters_is_told_when_another_thread_closes() -> None:
    places = [Endpoint("replica", 1), Endpoint("replica", 2)]
    voters = (StaticVoter(1, places[0]), StaticVoter(2, places[1]))
    client: blocking.RaftClient[bytes] = blocking.RaftClient(
        RaftConfig(node_id=1, voters=voters, **TIMING), transport=MemoryTransport(MemoryHub(), places[0])
    )
    key = ReplicaKey(3, uuid.UUID(int=3))
    client.start()
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(client.add_voter, key, Endpoint("replica", 3), timeout_ms=3_600_000)
        threading.Event().wait(0.1)
        client.shutdown(timeout_ms=0)
        with pytest.raises(ClosedError):
            changing.result(PATIENCE_S)


@pytest.mark.parametrize("attempt", range(5))
def test_threads_that_call_while_another_one_closes_get_a_result_or_an_error_of_ours(attempt: int) -> None:
    """None hangs, and none hears of a cancellation that it did not ask for."""
    voters = (StaticVoter(1, Endpoint("replica", 1)),)
    client: blocking.RaftClient[bytes] = blocking.RaftClient(
        RaftConfig(node_id=1, voters=voters, **TIMING), transport=MemoryTransport(MemoryHub(), Endpoint("replica", 1))
    )

    def until_closed(call: Callable[[], object]) -> BaseException:
        while True:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - it is looked at
                return error

    client.start()
    client.wait_for_leader(timeout_ms=10_000)
    with ThreadPoolExecutor(3) as pool:
        calls = [
            pool.submit(until_closed, lambda: client.append_one(b"value")),
            pool.submit(until_closed, lambda: client.read_barrier(timeout_ms=60_000)),
            pool.submit(until_closed, lambda: client.register(Listener())),
        ]
        client.shutdown(timeout_ms=0)
        assert [call for call in calls if not isinstance(call.result(PATIENCE_S), KraftError)] == []


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, also in a process that was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_start_that_is_interrupted_leaves_nothing() -> None:
    class Interrupting(MemoryTransport):
        async def start(self, receiver: FrameReceiver) -> Endpoint:
            caller = threading.main_thread().ident or 0
            while sys._current_frames()[caller].f_code.co_name != "wait":  # noqa: ASYNC110 - it cannot tell us
                await asyncio.sleep(0.001)
            signal.pthread_kill(caller, signal.SIGINT)  # Ctrl-C while the caller waits
            await asyncio.sleep(0.2)
            return await super().start(receiver)

    voters = (StaticVoter(1, Endpoint("replica", 1)),)
    client: blocking.RaftClient[bytes] = blocking.RaftClient(
        RaftConfig(node_id=1, voters=voters, **TIMING), transport=Interrupting(MemoryHub(), Endpoint("replica", 1))
    )
    with pytest.raises(KeyboardInterrupt):
        client.start()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kraftlib")]
    client.close()
    with pytest.raises(ClosedError):
        client.append_one(b"value")
