"""Counter, Barrier, DoubleBarrier."""

from __future__ import annotations

import asyncio

import pytest

from kraftlib.coordination.access import Done
from kraftlib.coordination.commands import decode_command
from kraftlib.coordination.messages import Transact
from kraftlib.errors import ConfigError, RefusedError, SessionEndedError
from tests.recipes.world import Late, Troubled, cancelled_in_between, clients


async def test_a_counter_adds_and_stays_within_64_bits() -> None:
    async with clients(1) as (_, [kraft]):
        counter = kraft.counter("n")
        assert await counter.value() == 0
        assert await counter.add(-2) == -2
        with pytest.raises(RefusedError, match="64 bits"):
            await counter.add(-(2**63) + 1)
        assert await counter.value() == -2


async def test_a_barrier_holds_up_who_waits_until_it_is_opened() -> None:
    async with clients(2) as (_, [one, two]):
        barrier = one.barrier("x")
        await barrier.wait()
        await barrier.close()
        waiting = [asyncio.create_task(two.barrier("x").wait()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        await barrier.open()
        await asyncio.wait_for(asyncio.gather(*waiting), 10)


@pytest.mark.parametrize("seed", range(5))
async def test_members_of_a_double_barrier_begin_and_end_together_in_each_round(seed: int) -> None:
    async with clients(3, access=Troubled(seed)) as (_, kraft):
        entered, left = [0] * 4, [0] * 4

        async def work(at: int) -> None:
            barrier = kraft[at].double_barrier("x", size=3)
            for number in range(4):
                entered[number] += 1
                await barrier.enter()
                assert entered[number] == 3
                left[number] += 1
                await barrier.leave()
                assert left[number] == 3

        await asyncio.wait_for(asyncio.gather(*[work(at) for at in range(3)]), 20)


async def test_a_member_that_dies_or_gives_up_before_the_round_is_complete_does_not_count() -> None:
    async with clients(4) as (access, [dies, gives_up, one, two]):
        dying = asyncio.create_task(dies.double_barrier("x", size=2).enter())
        await asyncio.sleep(0.01)
        access.end_session((await dies.session()).id)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await gives_up.double_barrier("x", size=2).enter()
        first = asyncio.create_task(one.double_barrier("x", size=2).enter())
        await asyncio.sleep(0.02)
        assert not first.done()
        await asyncio.wait_for(two.double_barrier("x", size=2).enter(), 10)
        await first
        dying.cancel()
        with pytest.raises(ConfigError, match="size=0"):
            one.double_barrier("x", size=0)


async def test_a_member_that_is_cancelled_while_it_joins_does_not_count_and_is_cancelled() -> None:
    access = Late()
    async with clients(2, access=access) as (_, [one, two]):
        async with cancelled_in_between(access):
            await one.double_barrier("x", size=2).enter()
        await asyncio.sleep(0.3)
        waiting = asyncio.create_task(two.double_barrier("x", size=2).enter())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        access.reachable.clear()
        waiting.cancel()
        done, _ = await asyncio.wait([waiting], timeout=1)
        access.reachable.set()
        assert done
        assert waiting.cancelled(), "the quorum is not asked first"


async def test_a_member_that_dies_after_it_was_counted_does_not_complete_the_round() -> None:
    class Deadly(Troubled):
        async def call(self, command: bytes, *, timeout_ms: int) -> Done:
            """The first member dies before the round is called complete."""
            body = decode_command(command).body
            if isinstance(body, Transact) and any(one.key.endswith("/ready") for one in body.then):
                self.end_session(victim)
            return await super().call(command, timeout_ms=timeout_ms)

    access = Deadly()
    async with clients(3, access=access) as (_, [dies, one, two]):
        victim = (await dies.session()).id
        dying = asyncio.create_task(dies.double_barrier("x", size=2).enter())
        await asyncio.sleep(0.02)
        first = asyncio.create_task(one.double_barrier("x", size=2).enter())
        await asyncio.sleep(0.02)
        assert not first.done()
        with pytest.raises(SessionEndedError):
            await asyncio.wait_for(dying, 10)
        await asyncio.wait_for(asyncio.gather(first, two.double_barrier("x", size=2).enter()), 10)
        with pytest.raises(ConfigError, match="size=257"):
            one.double_barrier("x", size=257)
