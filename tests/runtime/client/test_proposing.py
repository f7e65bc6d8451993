"""Futures that the engine itself waits for are settled on its loop, and callers' on theirs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraftlib.runtime.client.proposing import EngineFirst
from kraftlib.runtime.waiters import Appended, Waiters
from tests.proposals.test_forwarding import counting, follower_of
from tests.runtime.quorum import quorum


@pytest.mark.parametrize("level", [0, 2, 3])
async def test_the_engines_own_futures_never_go_over_to_the_host(level: int) -> None:
    posted: list[Any] = []
    first = EngineFirst(lambda function, argument: posted.append((function, argument)))
    waiters = Waiters(first)
    host: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ours = first.future()
    waiters.queues[level].extend([(4, 4, 1, host), (5, 5, 1, ours)])

    {0: waiters.appended, 2: waiters.committed, 3: waiters.applied}[level](6)

    assert await ours == Appended(5, 5, 1)
    assert not host.done()
    function, argument = posted.pop()
    function(argument)
    assert await host == Appended(4, 4, 1)
    assert posted == []


async def test_a_leader_whose_host_is_blocked_still_answers_other_replicas() -> None:
    """What the leader posts to its host goes to a loop that stands still."""
    async with quorum(engine="thread", make=counting) as nodes:
        leader = await nodes.leader()
        follower = await follower_of(nodes, leader)
        engine: Any = leader._engine
        standing_still = asyncio.new_event_loop()
        host, engine._host = engine._host, standing_still
        try:
            assert await follower.propose(b"answered") == {"total": 2}
        finally:
            engine._host = host
            standing_still.close()
