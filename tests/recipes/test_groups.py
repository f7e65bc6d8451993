"""Party, Queue, LockingQueue."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kraftlib.errors import ConfigError, TermLostError
from tests.recipes.world import Troubled, clients


async def test_members_of_a_party_see_each_other_come_and_go() -> None:
    async with clients(2) as (access, [one, two]):
        seen = []
        async with contextlib.aclosing(one.party("x").watch()) as watch:
            seen.append(await anext(watch))
            async with one.party("x", identity="a"):
                seen.append(await anext(watch))
                membership = await two.party("x").acquire()
                seen.append(await anext(watch))
                assert await two.party("x").members() == ["a", "w1"]
                await membership.end()
                seen.append(await anext(watch))
                await two.party("x").acquire()
                access.end_session((await two.session()).id)
            await asyncio.sleep(0)
            assert await one.party("x").members() == []
        assert seen == [[], ["a"], ["a", "w1"], ["a"]]


@pytest.mark.parametrize("seed", range(5))
async def test_each_item_of_a_queue_is_given_out_once_and_in_order(seed: int) -> None:
    async with clients(3, access=Troubled(seed)) as (_, kraft):
        got: list[bytes] = []

        async def read(at: int) -> None:
            while (item := await kraft[at].queue("x").get()) != b"end":
                got.append(item)

        readers = [asyncio.create_task(read(at)) for at in range(3)]
        for number in range(30):
            await kraft[0].queue("x").put(b"%d" % number)
        for _ in readers:
            await kraft[0].queue("x").put(b"end")
        await asyncio.wait_for(asyncio.gather(*readers), 10)
        assert sorted(got, key=int) == [b"%d" % number for number in range(30)]
        with pytest.raises(ConfigError, match="expected bytes"):
            await kraft[0].queue("x").put("text")  # type: ignore[arg-type]


async def test_an_item_whose_work_fails_is_given_to_another_one() -> None:
    async with clients(3, access=Troubled(seed=2)) as (access, [one, two, three]):
        await one.locking_queue("x").put(b"first")
        await one.locking_queue("x").put(b"second")
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with one.locking_queue("x") as claim:
                assert claim.value == b"first"
                async with two.locking_queue("x") as other:
                    assert other.value == b"second"
                waiting = asyncio.create_task(three.locking_queue("x").acquire())
                await asyncio.sleep(0.01)
                assert not waiting.done()
                _ = 1 / 0
        again = await asyncio.wait_for(waiting, 10)
        assert again.value == b"first"
        access.end_session((await three.session()).id)
        async with one.locking_queue("x") as claim:
            assert claim.value == b"first"
            with pytest.raises(Exception, match="ended"):
                await again.end()


async def test_a_claim_that_was_lost_says_that_another_one_does_the_work() -> None:
    async with clients(1) as (access, [kraft]):
        queue = kraft.locking_queue("x")
        await queue.put(b"item")
        with pytest.raises(TermLostError, match="again"):  # noqa: PT012
            async with queue:
                (key,) = access.machine._state.keys.with_prefix("locking-queue/x/claim/")
                access.machine._state.keys.delete(key, access.machine.applied)
