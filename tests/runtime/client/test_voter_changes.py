"""Voters come and go while a real quorum runs, asked on whichever replica; and what is said when that cannot be."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from kraftlib.config import RaftConfig, StaticVoter
from kraftlib.errors import (
    ClosedError,
    ConfigError,
    OutcomeUnknownError,
    ReplicaFailedError,
    StorageError,
    UnsupportedError,
)
from kraftlib.runtime.client.engine import Engine
from kraftlib.runtime.client.raft_client import RaftClient
from kraftlib.runtime.client.voter_changes import addition, removal
from kraftlib.runtime.net.memory_transport import MemoryHub, MemoryTransport
from kraftlib.security.access import AccessConfig
from kraftlib.types import Endpoint, ReplicaKey
from tests.runtime.quorum import PATIENCE_S, TIMING, Quorum, quorum, until

KEY = ReplicaKey(4, uuid.UUID(int=4))


async def dynamic(nodes: Quorum) -> None:
    """Raise kraft.version, as soon as every voter has told the leader what it supports."""
    await nodes.leader()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await nodes.clients[1].upgrade_kraft_version()
            except UnsupportedError:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_a_quorum_becomes_dynamic_loses_a_voter_and_gets_another(engine: str) -> None:
    async with quorum(engine=engine) as nodes:
        await dynamic(nodes)
        leader = await nodes.leader()
        others = [client for client in nodes.clients.values() if client is not leader]
        gone = others[0].key
        await others[1].remove_voter(gone)
        assert sorted(row.id for row in leader.status().voters) == sorted({1, 2, 3} - {gone.id})

        await others[0].add_voter(gone, others[0].endpoint)

        assert [row.id for row in leader.status().voters] == [1, 2, 3]
        with pytest.raises(ConfigError, match="is a voter"):
            await leader.add_voter(gone, others[0].endpoint)


async def test_what_applications_change_stands_in_the_audit_log_of_both_replicas(tmp_path: Path) -> None:
    access = AccessConfig(audit_file=tmp_path / "audit.jsonl")
    async with quorum(access=access) as nodes:
        await dynamic(nodes)
        leader = await nodes.leader()
        asked, gone = (client for client in nodes.clients.values() if client is not leader)
        await asked.remove_voter(gone.key)
        await leader.transfer_leadership(asked.node_id)

    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    rows = [(line["node_id"], line["event"], line["request"], line["subject"], line["outcome"]) for line in lines]
    removal = ("RemoveRaftVoterRequest", f"voter {gone.key}")
    of_removal = [row for row in rows if row[2] == "RemoveRaftVoterRequest"]
    assert of_removal[0] == (asked.node_id, "requested", *removal, "")
    assert (leader.node_id, "answered", *removal, "NONE") in of_removal
    assert of_removal[-1] == (asked.node_id, "finished", *removal, "NONE")
    transfers = [row for row in rows if row[2] == "transfer_leadership"]
    assert [(row[0], row[3].partition(", ")[2]) for row in transfers] == [(leader.node_id, f"to voter {asked.node_id}")]
    assert any(line["principals"] == ["application"] and line["address"] == "local" for line in lines)
    assert any("kraft.version to level 1" in line["subject"] for line in lines)


async def test_a_replica_whose_audit_file_cannot_be_written_does_not_start(tmp_path: Path) -> None:
    access = AccessConfig(audit_file=tmp_path / "missing" / "audit.jsonl")
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        async with quorum(access=access):
            pass


async def test_a_leader_can_be_asked_to_remove_itself_until_one_is_left() -> None:
    """With two, the other one leads first, and then does it; the asker need not know."""
    async with quorum() as nodes:
        await dynamic(nodes)
        await nodes.stop(3)
        leader = await nodes.leader()
        await leader.remove_voter(nodes_key(leader, 3))

        await leader.remove_voter(leader.key)

        last = await nodes.leader(not_id=leader.node_id)
        assert [row.id for row in last.status().voters] == [last.node_id]
        with pytest.raises(ConfigError, match="the only one"):
            await last.remove_voter(last.key)


def nodes_key(client: RaftClient[Any], replica_id: int) -> ReplicaKey:
    voters = client._engine.node.core.voters
    voter = voters.get(replica_id)
    assert voter is not None
    return voter.key


async def test_an_observer_joins_and_is_waited_for_until_it_has_caught_up() -> None:
    async with quorum(voters=1) as nodes:
        await dynamic(nodes)
        place = Endpoint("replica", 4)
        config = RaftConfig(node_id=4, cluster_id="test", bootstrap_servers=(nodes.endpoint(1),), **TIMING)  # type: ignore[arg-type]
        async with RaftClient(config, transport=MemoryTransport(nodes.hub, place)) as observer:
            await observer.add_voter(observer.key, place)
            await until(lambda: observer.status().is_voter)
            assert (await nodes.clients[1].append_one(b"by two")).last_offset > 0


async def test_static_quorums_do_not_change() -> None:
    async with quorum() as nodes:
        leader = await nodes.leader()
        with pytest.raises(UnsupportedError, match=r"kraft\.version"):
            await leader.remove_voter(ReplicaKey(2, uuid.UUID(int=2)))


async def test_a_change_without_a_leader_ends_in_time_and_changed_nothing() -> None:
    async with quorum() as nodes:
        leader = await nodes.leader()
        for node_id in set(nodes.ids) - {leader.node_id}:
            await nodes.stop(node_id)
        await until(lambda: leader.leader_and_epoch().leader_id is None)

        with pytest.raises(TimeoutError, match="nothing was changed"):
            await leader.upgrade_kraft_version(timeout_ms=120)


async def test_a_client_that_closes_says_so_to_who_waits_for_a_change() -> None:
    async with quorum() as nodes:
        leader = await nodes.leader()
        for node_id in set(nodes.ids) - {leader.node_id}:
            await nodes.stop(node_id)
        changing = asyncio.ensure_future(leader.upgrade_kraft_version())
        await asyncio.sleep(0)
        await nodes.stop(leader.node_id)
        with pytest.raises((ClosedError, OutcomeUnknownError, UnsupportedError)):
            await changing
    with pytest.raises(ClosedError):
        await leader.remove_voter(KEY)


def a_second_voter(engine: str) -> RaftClient[bytes]:
    """Return one of two voters, whose other one is away: it finds no leader."""
    hub, place = MemoryHub(), Endpoint("replica", 1)
    voters = (StaticVoter(1, place), StaticVoter(2, Endpoint("replica", 2)))
    settings: dict[str, Any] = {**TIMING, "engine": engine}
    return RaftClient(RaftConfig(node_id=1, voters=voters, **settings), transport=MemoryTransport(hub, place))


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_a_change_ends_with_its_client_however_much_time_it_has(engine: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        client = a_second_voter(engine)
        await client.start()
        change = asyncio.create_task(client.add_voter(KEY, KEY_PLACE, timeout_ms=3_600_000))
        await asyncio.sleep(0)
        await client.shutdown(timeout_ms=0)
        with pytest.raises(ClosedError, match="was closed"):
            await change


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_a_change_ends_with_a_replica_that_stops_itself(engine: str) -> None:
    async with asyncio.timeout(PATIENCE_S), a_second_voter(engine) as client:
        change = asyncio.create_task(client.add_voter(KEY, KEY_PLACE, timeout_ms=3_600_000))
        await asyncio.sleep(0)
        engine_of(client).call(lambda: engine_of(client).node.fail(StorageError("the disk is gone")))
        with pytest.raises(ReplicaFailedError, match="the disk is gone"):
            await change


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_nobody_goes_on_asking_for_whom_has_gone(engine: str) -> None:
    async with asyncio.timeout(PATIENCE_S), a_second_voter(engine) as client:
        change = asyncio.create_task(client.add_voter(KEY, KEY_PLACE, timeout_ms=3_600_000))
        await until(lambda: engine_of(client).call(lambda: engine_of(client).node.callers.working) == 1)
        change.cancel()
        await until(lambda: engine_of(client).call(lambda: engine_of(client).node.callers.working) == 0)


def engine_of(client: RaftClient[Any]) -> Engine:
    return client._engine


@pytest.mark.parametrize("key", [ReplicaKey(4), ReplicaKey(4, uuid.UUID(int=0)), ReplicaKey(-1, uuid.UUID(int=1))])
def test_a_voter_is_named_by_its_disk_too(key: ReplicaKey) -> None:
    for ask in (lambda: removal(key, cluster_id="c"), lambda: addition(key, {"C": KEY_PLACE}, cluster_id="c")):
        with pytest.raises(ConfigError, match="id of its directory"):
            ask()


KEY_PLACE = Endpoint("localhost", 1)


def test_a_voter_needs_a_place() -> None:
    with pytest.raises(ConfigError, match="endpoint"):
        addition(KEY, {}, cluster_id="c")


async def test_a_wait_of_no_time_is_refused() -> None:
    async with quorum(voters=1) as nodes:
        with pytest.raises(ConfigError, match="timeout_ms=0"):
            await nodes.clients[1].remove_voter(KEY, timeout_ms=0)
