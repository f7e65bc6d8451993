"""Reads that miss nothing: on the leader, on followers, over a change of leader, and where nobody can answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlib.errors import ClosedError, ConfigError, ReplicaFailedError, UnsupportedError
from kraftlib.runtime.barriers import Barriers
from kraftlib.runtime.waiters import Waiters
from kraftlib.wire.apis import ErrorCode
from tests.runtime.quorum import PATIENCE_S, quorum, until


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_every_replica_shows_what_was_acknowledged_before_it_was_asked(engine: str) -> None:
    async with quorum(engine=engine) as nodes:
        leader = await nodes.leader()
        for _ in range(5):
            appended = await leader.append_one(b"value")
            async with asyncio.timeout(PATIENCE_S):
                offsets = await asyncio.gather(*(client.read_barrier() for client in nodes.clients.values()))
            assert all(offset > appended.last_offset for offset in offsets)
            assert all(client.status().applied_offset > appended.last_offset for client in nodes.clients.values())


async def test_barriers_of_one_moment_share_a_round_trip() -> None:
    """The first has a round of its own; all others are asked in the same turn of the loop, before any answer."""
    async with quorum(engine="inline") as nodes:
        leader = await nodes.leader()
        await leader.read_barrier()
        rounds = leader._engine.node.core.state.role_state
        before = rounds.read_rounds  # type: ignore[union-attr]

        await asyncio.gather(*(leader.read_barrier() for _ in range(100)))

        assert rounds.read_rounds - before <= 2  # type: ignore[union-attr]


async def test_a_leader_that_is_alone_cannot_read() -> None:
    async with quorum() as nodes:
        leader = await nodes.leader()
        for node_id in nodes.ids:
            if node_id != leader.node_id:
                await nodes.stop(node_id)

        with pytest.raises(TimeoutError, match=f"replica {leader.node_id}"):
            await leader.read_barrier(timeout_ms=150)


async def test_a_read_outlives_a_change_of_leader() -> None:
    async with quorum() as nodes:
        leader = await nodes.leader()
        appended = await leader.append_one(b"value")
        follower = next(client for client in nodes.clients.values() if client is not leader)
        leader.resign(leader.leader_and_epoch().epoch)

        async with asyncio.timeout(PATIENCE_S):
            assert await follower.read_barrier(timeout_ms=20_000) > appended.last_offset


async def test_a_leader_without_private_apis_is_no_help_to_others() -> None:
    async with quorum(private_apis=False) as nodes:
        leader = await nodes.leader()
        follower = next(client for client in nodes.clients.values() if client is not leader)
        await until(lambda: follower.leader_and_epoch().leader_id == leader.node_id)

        assert await leader.read_barrier() > 0
        with pytest.raises(UnsupportedError, match="private_apis=False"):
            await follower.read_barrier()


async def test_a_wait_of_no_time_is_refused_and_a_closed_client_says_so() -> None:
    async with quorum(voters=1) as nodes:
        client = nodes.clients[1]
        with pytest.raises(ConfigError, match="timeout_ms=0"):
            await client.read_barrier(timeout_ms=0)
        await nodes.stop(1)
        with pytest.raises(ClosedError):
            await client.read_barrier()


class Log:
    """Listeners that only note who waits for what."""

    def __init__(self) -> None:
        self.waited: list[tuple[int, Any]] = []

    def wait_for(self, offset: int, promise: Any) -> None:
        self.waited.append((offset, promise))


async def test_each_number_is_answered_once() -> None:
    log, waiters = Log(), Waiters()
    barriers = Barriers(7, waiters, log)  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    first, second, third = loop.create_future(), loop.create_future(), loop.create_future()
    numbers = [barriers.add(first), barriers.add(second), barriers.add(third)]

    barriers.passed(numbers[0], 12)
    barriers.passed(numbers[0], 99)
    barriers.refused(numbers[1], ErrorCode.REQUEST_TIMED_OUT)
    barriers.fail(lambda: ReplicaFailedError("gone"))

    assert (log.waited, len(barriers)) == ([(11, first)], 0)
    with pytest.raises(TimeoutError, match="replica 7"):
        await second
    with pytest.raises(ReplicaFailedError, match="gone"):
        await third


async def test_nobody_waits_for_a_state_machine_that_has_failed() -> None:
    log, waiters = Log(), Waiters()
    waiters.apply_failure = ReplicaFailedError("apply() raised")
    barriers = Barriers(7, waiters, log)  # type: ignore[arg-type]
    promise = asyncio.get_running_loop().create_future()

    barriers.passed(barriers.add(promise), 12)

    with pytest.raises(ReplicaFailedError, match="raised"):
        await promise
    assert log.waited == []
