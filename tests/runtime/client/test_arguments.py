"""What callers get wrong: each error names the value and the remedy, and nothing was done."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import attrs
import pytest

from kraftlib import blocking
from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import ClosedError, ConfigError, KraftError, NotLeaderError
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.committed import BatchReader, CommittedRecord
from kraftlib.runtime.listener import Listener, StateMachine
from kraftlib.types import Endpoint, ReplicaKey, new_uuid
from tests.runtime.quorum import quorum

ONE = RaftConfig(node_id=1, voters=(StaticVoter(1, Endpoint("127.0.0.1", 0)),))
DURABLE = attrs.evolve(ONE, directory="never-made")


class Whole(StateMachine):
    def apply(self, record: CommittedRecord) -> Any:
        return record.value

    def snapshot(self) -> Iterable[Any]:
        return []

    def restore(self, values: Iterable[Any]) -> None:
        pass


class Asynchronous(Whole):
    async def apply(self, record: CommittedRecord) -> Any:
        return record.value


class WithoutSnapshot(StateMachine):
    def apply(self, record: CommittedRecord) -> Any:
        return record.value

    def restore(self, values: Iterable[Any]) -> None:
        pass


class Slow(Listener):
    async def handle_commit(self, reader: BatchReader) -> None:  # type: ignore[override]
        pass


class Serves:
    def __init__(self, served: Any) -> None:
        self.served = served

    def begin(self, node: Any) -> None:
        pass

    def end(self) -> None:
        pass


class Begins(Serves):
    async def begin(self, node: Any) -> None:
        pass


async def allow(peer: Any, api_key: int) -> bool:
    return True


@pytest.mark.parametrize("face", [RaftClient, blocking.RaftClient])
@pytest.mark.parametrize(
    ("config", "parts", "words"),
    [
        ({"node_id": 1}, {}, "a dict: use RaftConfig.from_mapping"),
        ("replica.toml", {}, "a str: "),
        (None, {}, "config is None: make a RaftConfig"),
        (ONE, {"state_machine": Whole}, "state_machine=Whole is a class: make one of it, Whole(...)"),
        (ONE, {"state_machine": object()}, "a object: derive its class from kraftlib.StateMachine"),
        (ONE, {"state_machine": Asynchronous()}, "Asynchronous.apply is an `async def`"),
        (DURABLE, {"state_machine": WithoutSnapshot()}, "WithoutSnapshot has no snapshot()"),
        (ONE, {"listener": Whole()}, "listener is a Whole: derive its class from kraftlib.Listener"),
        (ONE, {"listener": Slow()}, "Slow.handle_commit is an `async def`"),
        (ONE, {"log": "/var/lib/log"}, "log is a str and lacks start_offset, "),
        (ONE, {"elections": {}}, "elections is a dict and lacks read, write, close"),
        (ONE, {"transport": "tcp"}, "transport is a str and lacks start, send, disconnect, close"),
        (ONE, {"serde": "json"}, "serde is a str and lacks to_bytes, from_bytes"),
        (ONE, {"result_serde": dict}, "result_serde=dict is a class: make one of it, dict(...)"),
        (ONE, {"result_serde": "json"}, "result_serde is a str and lacks to_bytes, from_bytes"),
        (ONE, {"service": len}, "service is a builtin_function_or_method and lacks begin, end, served"),
        (ONE, {"service": Serves(["1"])}, "Serves.served is ['1']: expected a mapping from API keys to Versions"),
        (ONE, {"service": Serves({1: (0, 2)})}, "Serves.served is {1: (0, 2)}: expected a mapping"),
        (ONE, {"service": Begins({})}, "Begins.begin is an `async def`"),
        (ONE, {"server_ssl": "server.pem"}, "server_ssl is a str: expected an ssl.SSLContext"),
        (ONE, {"client_ssl": True}, "client_ssl is a bool: expected an ssl.SSLContext"),
        (ONE, {"authorize": "User:admin"}, "authorize is a str: expected a function of a peer and an API key"),
        (ONE, {"authorize": allow}, "authorize is an `async def`, and every request would be allowed"),
        (ONE, {"random": 7}, "random is a int: expected a random.Random"),
    ],
)
def test_a_client_is_not_made_of_what_cannot_work(face: Any, config: Any, parts: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        face(config, **parts)
    assert words in str(caught.value)


CALLS: list[tuple[Callable[[Any], Coroutine[Any, Any, Any]], str]] = [
    (lambda client: client.wait_for_leader(timeout_ms="5"), "timeout_ms='5' must be a whole number of milliseconds"),
    (lambda client: client.wait_for_leader(timeout_ms=-1), "timeout_ms=-1 must be a whole number of milliseconds"),
    (lambda client: client.read_barrier(timeout_ms=0), "timeout_ms=0 must be a whole number of milliseconds, at least"),
    (lambda client: client.read_barrier(timeout_ms=1.5), "timeout_ms=1.5"),
    (lambda client: client.read_barrier(timeout_ms=None), "timeout_ms=None"),
    (lambda client: client.transfer_leadership(2, timeout_ms=None), "timeout_ms=None"),
    (lambda client: client.remove_voter(client.key, timeout_ms=None), "timeout_ms=None"),
    (lambda client: client.shutdown(timeout_ms=math.inf), "timeout_ms=inf"),
    (lambda client: client.read_barrier(timeout_ms=True), "timeout_ms=True"),
    (lambda client: client.wait_for_offset("5"), "offset='5' is a str: expected an integer"),
    (lambda client: client.shutdown(timeout_ms="soon"), "timeout_ms='soon'"),
    (lambda client: client.append([b"x"], epoch="1"), "epoch='1' is no epoch"),
    (lambda client: client.append([b"x"], timeout_ms="5"), "timeout_ms='5' must be a whole number of milliseconds"),
    (lambda client: client.append_one(b"x", timeout_ms=-1), "timeout_ms=-1 must be a whole number of milliseconds"),
    (lambda client: client.propose(b"x", timeout_ms=0.5), "timeout_ms=0.5 must be a whole number of milliseconds"),
    (lambda client: client.transfer_leadership("2"), "target_id='2' is a str"),
    (lambda client: client.remove_voter(3), "key=3 is a int: a replica is named by id and directory"),
    (lambda client: client.add_voter(3, Endpoint("127.0.0.1", 1)), "key=3 is a int"),
    (lambda client: client.remove_voter(ReplicaKey("1", new_uuid())), "key=ReplicaKey(id='1'"),
    (lambda client: client.remove_voter(ReplicaKey(1, "a directory")), "directory_id='a directory'"),
    (lambda client: client.add_voter(ReplicaKey(2**31, new_uuid()), Endpoint("h", 1)), "key=ReplicaKey(id=2147483648"),
    (lambda client: client.add_voter(client.key, Endpoint("h", "1")), "endpoint=Endpoint(host='h', port='1')"),
    (lambda client: client.add_voter(client.key, Endpoint("h", 65_536)), "endpoint=Endpoint(host='h', port=65536)"),
    (lambda client: client.add_voter(client.key, Endpoint(5, 1)), "endpoint=Endpoint(host=5"),
    (lambda client: client.upgrade_kraft_version("1"), "version='1' is a str: expected an integer"),
    (lambda client: client.create_snapshot([b"x"], offset=1.0), "offset=1.0 is a float: expected an integer"),
    (lambda client: asyncio.to_thread(client.begin_snapshot, offset="1"), "offset='1' is a str"),
    (lambda client: asyncio.to_thread(client.hold_log, 5), "name=5 is no name"),
    (lambda client: asyncio.to_thread(client.hold_log, "r", offset=0.5), "offset=0.5 is a float"),
    (lambda client: asyncio.to_thread(client.hold_log, "r", offset=2**63), "offset=9223372036854775808"),
    (lambda client: asyncio.to_thread(client.hold_log, "r", max_bytes="1"), "max_bytes='1' is a str"),
    (lambda client: asyncio.to_thread(client.prepare_append, None, [b"x"]), "epoch=None"),
    (
        lambda client: client.add_voter(client.key, "127.0.0.1:1"),
        "endpoint='127.0.0.1:1' is a str: expected an Endpoint",
    ),
]


async def test_a_call_with_a_wrong_argument_does_nothing() -> None:
    client: RaftClient[bytes] = RaftClient(ONE, state_machine=Whole())
    async with client:
        await client.wait_for_leader(timeout_ms=30_000)
        end = client.log_end_offset()
        for call, words in CALLS:
            with pytest.raises(ConfigError) as caught:
                await call(client)
            assert words in str(caught.value)
        with pytest.raises(ConfigError, match="listener=Slow is a class"):
            client.register(Slow)  # type: ignore[arg-type]
        assert client.log_end_offset() == end
        assert await client.propose(b"still here") == b"still here"


async def test_what_is_waited_for_in_vain_is_an_error_of_ours_and_of_python() -> None:
    client: RaftClient[bytes] = RaftClient(ONE)
    async with client:
        with pytest.raises(KraftError) as caught:
            await client.wait_for_offset(1_000_000, timeout_ms=10)
        assert isinstance(caught.value, TimeoutError)


class Remembers(Listener):
    def __init__(self) -> None:
        self.values: list[Any] = []

    def handle_commit(self, reader: BatchReader) -> None:
        self.values += [record.value for batch in reader for record in batch.records]


@pytest.mark.parametrize("threads", [False, True])
async def test_a_listener_that_is_registered_before_the_start_hears_everything(threads: bool) -> None:
    first, second, dropped = Remembers(), Remembers(), Remembers()
    if threads:
        with_threads: blocking.RaftClient[bytes] = blocking.RaftClient(ONE, listener=first)
        with_threads.register(second)
        with with_threads:
            with_threads.wait_for_leader()
            with_threads.append([b"one"], wait="applied")
    else:
        client: RaftClient[bytes] = RaftClient(ONE, listener=first)
        client.register(second)
        client.register(dropped)
        client.unregister(dropped)
        async with client:
            await client.wait_for_leader()
            await client.append([b"one"], wait="applied")
        with pytest.raises(ClosedError):
            client.register(Remembers())
    assert first.values == second.values == [b"one"]
    assert dropped.values == []


async def test_a_follower_says_where_the_leader_is_reached_and_who_the_voters_are() -> None:
    async with quorum() as running:
        leader = await running.leader()
        follower = next(client for client in running.clients.values() if client is not leader)
        known = await follower.wait_for_leader(timeout_ms=30_000)
        with pytest.raises(NotLeaderError) as caught:
            await follower.append([b"x"], timeout_ms=0)
        assert caught.value.leader == known
        endpoints = {voter.id: voter.endpoints["CONTROLLER"] for voter in follower.status().voters}
        assert str(caught.value.endpoint) == endpoints[leader.node_id]
        assert f"append to {leader.node_id} at {caught.value.endpoint}" in str(caught.value)
        assert leader.status().key == leader.key
        assert [voter.key.id for voter in leader.status().voters] == [1, 2, 3]
