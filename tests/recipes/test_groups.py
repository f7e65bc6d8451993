"""Party, Queue, LockingQueue."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kraftlib.errors import TermLostError
from kraftlib.recipes.face import Recipes
from tests.recipes.world import Late, Troubled, cancelled_in_between, clients


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


async def test_who_is_cancelled_between_the_record_and_its_answer_keeps_nothing() -> None:
    access = Late()
    async with clients(2, access=access) as (_, [kraft, other]):
        await kraft.locking_queue("x").put(b"job")
        async with cancelled_in_between(access):
            await kraft.locking_queue("x").acquire()
        claim = await asyncio.wait_for(other.locking_queue("x").acquire(), 10)
        assert claim.value == b"job"
        async with cancelled_in_between(access):
            await claim.end()
        async with asyncio.timeout(10):
            while access.keys("locking-queue"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        await kraft.queue("x").put(b"first")
        await kraft.queue("x").put(b"second")
        for _ in range(3):
            async with cancelled_in_between(access):
                await kraft.queue("x").get()
            await asyncio.sleep(0.3)
        assert [await asyncio.wait_for(other.queue("x").get(), 10) for _ in range(2)] == [b"first", b"second"]

        async with cancelled_in_between(access):
            await kraft.party("x").acquire()
        membership = await other.party("x").acquire()
        async with asyncio.timeout(10):
            while await other.party("x").members() != ["w1"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with cancelled_in_between(access):
            await membership.end()
        async with asyncio.timeout(10):
            while await other.party("x").members():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_an_item_that_nobody_was_told_of_is_there_when_the_client_has_closed() -> None:
    access = Late()
    async with clients(1, access=access) as (_, [other]):
        await other.queue("x").put(b"item")
        async with Recipes(access) as kraft, cancelled_in_between(access):
            await kraft.queue("x").get()
        assert await asyncio.wait_for(other.queue("x").get(), 10) == b"item"


async def test_a_claim_whose_session_has_ended_is_lost() -> None:
    async with clients(2) as (access, [kraft, other]):
        await kraft.locking_queue("x").put(b"item")
        with pytest.raises(TermLostError, match="session"):
            async with kraft.locking_queue("x"):
                access.end_session((await kraft.session()).id)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with other.locking_queue("x"):
                access.end_session((await other.session()).id)
                _ = 1 / 0


async def test_a_free_item_is_found_behind_megabytes_that_are_claimed() -> None:
    async with clients(1) as (_, [kraft]):
        queue = kraft.locking_queue("x")
        for number in range(7):
            await queue.put(b"%d" % number + bytes(900_000))
        claims = [await asyncio.wait_for(queue.acquire(), 10) for _ in range(7)]
        assert [claim.value[:1] for claim in claims] == [b"%d" % number for number in range(7)]
