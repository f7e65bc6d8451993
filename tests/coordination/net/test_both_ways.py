"""The recipes over both ways in, for tasks and for threads: equal, also when the leader is killed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlib.coordination.net.client import connect
from kraftlib.recipes import blocking
from kraftlib.recipes.face import Recipes
from tests.coordination.net.ways import Replicas, replicas
from tests.runtime.quorum import PATIENCE_S


def way_in(way: str, quorum: Replicas, number: int) -> Any:
    return connect(quorum.servers) if way == "client" else quorum.running[number]


@pytest.mark.parametrize("way", ["client", "replica"])
async def test_an_election_goes_to_the_next_with_a_greater_token_and_survives_a_killed_leader(way: str) -> None:
    async with replicas() as quorum:
        one_access, other_access = way_in(way, quorum, 1), way_in(way, quorum, 2)
        async with Recipes(one_access, owner="one") as one, Recipes(other_access, owner="other") as other:
            async with one.election("scheduler") as term:
                first = term.token
                if way == "client":
                    await quorum.change_leader(kill=True)
                assert term.is_valid()
                await one.map("settings").put("color", b"blue", fence=term)
            async with asyncio.timeout(PATIENCE_S), other.election("scheduler") as term:
                assert term.token > first
        if way == "client":
            await one_access.close()
            await other_access.close()


async def test_threads_use_a_client_too() -> None:
    async with replicas() as quorum:

        def work() -> int:
            with blocking.Recipes(connect(quorum.servers)) as kraft:
                with kraft.lock("report"):
                    kraft.counter("runs").add(1)
                return int(kraft.counter("runs").add(1))

        assert await asyncio.to_thread(work) == 2
