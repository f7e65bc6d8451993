"""`open`: the machine of a replica in this process, with either engine."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig
from kraftlib.coordination.access import STALE, AtLeast
from kraftlib.coordination.commands import COMMAND_BYTES_MAX, decode
from kraftlib.coordination.messages import Do, OpenSession, Result, Transact
from kraftlib.coordination.net.client import connect
from kraftlib.coordination.net.replica import open
from kraftlib.errors import (
    ClosedError,
    ConfigError,
    KraftError,
    OutcomeUnknownError,
    RefusedError,
    TimedOutError,
    UnavailableError,
)
from kraftlib.runtime.client import thread_engine
from kraftlib.runtime.listener import StateMachine
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.types import Endpoint
from tests.coordination.net.ways import (
    CALL_MS,
    EVERYTHING,
    Caller,
    Replicas,
    addition,
    putting,
    question,
    replicas,
    value,
)
from tests.runtime.client.ending_loop import EndingLoop
from tests.runtime.quorum import PATIENCE_S, until


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_every_replica_calls_and_reads_what_was_written_anywhere(engine: str) -> None:
    async with replicas(engine=engine) as quorum:
        for node_id, access in quorum.running.items():
            caller = await Caller(access).begin()
            done = await caller.put("key", b"of %d" % node_id)
            assert done.offset > 0
            assert await value(access, "key", consistency=STALE) == b"of %d" % node_id
            for other in quorum.running.values():
                assert await value(other, "key") == b"of %d" % node_id
                assert await value(other, "key", consistency=AtLeast(done.offset)) == b"of %d" % node_id


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_refusals_deadlines_and_the_end(engine: str) -> None:
    async with replicas(engine=engine) as quorum:
        access = quorum.running[1]
        caller = await Caller(access).begin()
        with pytest.raises(RefusedError, match="this is no command"):
            await access.call(b"garbage", timeout_ms=CALL_MS)
        with pytest.raises(ConfigError, match="this is no question"):
            await access.query(b"garbage", timeout_ms=CALL_MS)
        with pytest.raises(TimedOutError, match="within 100 ms"):
            await access.query(question("sum"), consistency=AtLeast(10**9), timeout_ms=100)
        waiting = asyncio.create_task(access.query(question("sum"), consistency=AtLeast(10**9), timeout_ms=CALL_MS))
        await asyncio.sleep(0)
        await access.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await caller.add("sum")


async def test_a_replica_without_a_leader_says_that_another_attempt_may_do_better() -> None:
    alone = Replicas()
    await alone.start(1)
    access = alone.running[1]
    try:
        with pytest.raises(UnavailableError):
            await access.call(Caller(access).command(OpenSession(ttl_ms=1_000), 0), timeout_ms=200)
    finally:
        await access.client.shutdown(timeout_ms=0)


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_the_outcome_of_what_the_leader_has_appended_is_unknown_where_the_replica_that_forwarded_closes(
    engine: str,
) -> None:
    async with replicas() as quorum:
        leader = await quorum.leader()
        servers = tuple(quorum.endpoint(node_id) for node_id in quorum.ids)
        observer = RaftConfig(
            node_id=9, cluster_id="ways", bootstrap_servers=servers, listen=Endpoint("127.0.0.1", 0), engine=engine
        )
        async with open(observer, log=MemoryReplicatedLog(), elections=MemoryQuorumStateStore()) as access:
            caller = await Caller(access).begin()
            for node_id in set(quorum.ids) - {leader.node_id}:
                await quorum.kill(node_id)  # nothing is committed any more
            end_offset = leader.log_end_offset()
            commands = [caller.command(addition("sum"), number) for number in (1, 2)]
            appending = asyncio.create_task(access.client.append(commands[:1], timeout_ms=CALL_MS))
            calling = asyncio.create_task(access.call(commands[1], timeout_ms=CALL_MS))
            await until(lambda: leader.log_end_offset() == end_offset + 2)
            await access.client.shutdown(timeout_ms=0)
            for forwarded in (appending, calling):
                with pytest.raises(OutcomeUnknownError):
                    await forwarded


@pytest.mark.parametrize("asked", ["call", "query", "watch"])
async def test_what_is_handed_to_the_loop_as_it_ends_is_told(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = EndingLoop()
    monkeypatch.setattr(thread_engine, "loop_factory", lambda name: lambda: loop)
    async with replicas(1, engine="thread") as quorum:
        access = quorum.running[1]
        command = (await Caller(access).begin()).command(addition("sum"), 1)
        loop.end_amid(lambda: asyncio.run(access.client.shutdown(timeout_ms=0)))
        with pytest.raises(KraftError):  # noqa: PT012 - one of the three
            async with asyncio.timeout(PATIENCE_S):
                match asked:
                    case "call":
                        await access.call(command, timeout_ms=CALL_MS)
                    case "query":
                        await access.query(question("sum"), consistency=AtLeast(10**9), timeout_ms=CALL_MS)
                    case "watch":
                        await anext(access.watch(EVERYTHING, None))


@pytest.mark.parametrize("timeout_ms", ["5", -1, 1.5, True, None])
async def test_a_timeout_that_is_none_is_refused_before_anything_happens(timeout_ms: Any) -> None:
    async with replicas(1) as quorum:
        access = quorum.running[1]
        caller = await Caller(access).begin()
        end_offset = access.client.log_end_offset()
        with pytest.raises(ConfigError, match=f"timeout_ms={timeout_ms!r} must be a whole number of milliseconds"):
            await access.call(caller.command(addition("sum"), 1), timeout_ms=timeout_ms)
        with pytest.raises(ConfigError, match=f"timeout_ms={timeout_ms!r} must be a whole number of milliseconds"):
            await access.query(question("sum"), timeout_ms=timeout_ms)
        assert access.client.log_end_offset() == end_offset


def status_of_child(access: Any) -> int:
    child = os.fork()
    if child == 0:  # no exception may leave this branch: it would go on as a second pytest
        status = 1
        signal.alarm(20)
        try:
            access.query(question("sum"), timeout_ms=CALL_MS).send(None)
        except ClosedError as error:
            status = 0 if "is a fork of that" in str(error) else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def test_a_forked_child_is_told_that_the_replica_is_not_there() -> None:
    async with replicas(1, engine="thread") as quorum:
        access = quorum.running[1]
        assert status_of_child(access) == 0
        await access.query(question("sum"), timeout_ms=CALL_MS)


async def test_a_file_names_the_replica(tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text('node_id = 1\nvoters = "1@127.0.0.1:19799"\nlisten = "127.0.0.1:0"\n')
    async with open(path) as access:
        await (await Caller(access).begin()).add("sum")
        assert await value(access, "sum") == b"1"


@pytest.mark.parametrize(
    ("config", "options", "reason"),
    [
        ({"node_id": 1}, {}, "config is a dict: use RaftConfig.from_mapping"),
        (RaftConfig(node_id=1, private_apis=False), {}, "private_apis=False"),
        (RaftConfig(node_id=1), {"machine": object()}, "must be a StateMachine, too"),
        (RaftConfig(node_id=1), {"machine": StateMachine()}, "lacks applied, check, query, changes, due of"),
    ],
)
def test_what_cannot_be_opened_is_refused_before_anything_happens(config: Any, options: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        open(config, **options)


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_the_largest_command_goes_through_any_replica_and_through_a_client(engine: str) -> None:
    async with replicas(engine=engine) as quorum, connect(quorum.servers) as client:
        for access in (*quorum.running.values(), client):
            caller = await Caller(access).begin()
            spare = COMMAND_BYTES_MAX - len(caller.command(putting("big", b""), 1))
            await caller.send(putting("big", bytes(spare - 8)), 1)  # the length of the value takes a few bytes, too
            with pytest.raises(RefusedError, match=f"{COMMAND_BYTES_MAX}"):
                await access.call(caller.command(putting("big", bytes(spare + 1)), 2), timeout_ms=CALL_MS)
            await caller.put("small", b"after it")


async def test_the_largest_result_comes_through_any_replica_and_to_a_client() -> None:
    async with replicas() as quorum, connect(quorum.servers) as client:
        caller = await Caller(client).begin()
        keys = [f"key/{number}" for number in range(4)]
        for key in keys:
            await caller.put(key, bytes(990_000))
        reading = Transact(then=tuple(Transact.Operation(do=Do.GET, key=key) for key in keys))
        for access in (*quorum.running.values(), client):
            reader = await Caller(access).begin()
            done = await reader.transact(reading)
            assert [len(item.value) for item in decode(Result, done.result).items] == [990_000] * 4
