"""Election, Lock, RWLock, Semaphore, Lease."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kraftlib.errors import RefusedError, TermLostError
from kraftlib.recipes.locks import Holder
from tests.recipes.test_terms import settled
from tests.recipes.world import Troubled, clients


async def test_candidates_lead_one_after_the_other_in_the_order_in_which_they_came() -> None:
    async with clients(3, access=Troubled(seed=1)) as (access, kraft):
        led: list[str] = []

        async def lead(name: int) -> None:
            async with kraft[name].election("x"):
                led.append(f"w{name}")
                await asyncio.sleep(0)

        async with kraft[0].election("x"):
            waiting = []
            for name in (2, 0, 1):
                waiting.append(asyncio.create_task(lead(name)))
                await settled(access, "election/x", len(waiting) + 1)
            assert [holder.owner for holder in await kraft[1].election("x").contenders()] == ["w0", "w2", "w0", "w1"]
        await asyncio.gather(*waiting)
        assert led == ["w2", "w0", "w1"]
        assert await kraft[0].election("x").leader() is None


async def test_observers_see_who_leads_and_every_change() -> None:
    async with clients(3) as (access, [one, two, observer]):
        seen: list[str] = []
        done = asyncio.Event()

        async def observe() -> None:
            async with contextlib.aclosing(observer.election("x").observe()) as leaders:
                async for leader in leaders:
                    seen.append("" if leader is None else leader.owner)
                    if len(seen) == 4:
                        done.set()
                        return

        observing = asyncio.create_task(observe())
        while not seen:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        async with one.election("x") as term:
            assert await observer.election("x").leader() == Holder("w0", term.token)
            waiting = asyncio.create_task(two.election("x").acquire())
            await settled(access, "election/x", 2)
        await (await waiting).release()
        await asyncio.wait_for(observing, 10)
        assert seen == ["", "w0", "w1", ""]


async def test_a_candidate_that_comes_back_replaces_its_own_old_term() -> None:
    async with clients(2) as (_, [before, after]):
        with pytest.raises(TermLostError):  # noqa: PT012
            async with before.election("x", identity="scheduler-1") as old:
                again = await after.election("x", identity="scheduler-1").acquire(timeout_ms=5_000)
                assert again.token > old.token
                await asyncio.sleep(60)
        assert again.is_valid()
        await again.release()


@pytest.mark.parametrize("seed", range(5))
async def test_a_semaphore_lets_so_many_in_and_not_more(seed: int) -> None:
    async with clients(3, access=Troubled(seed)) as (_, kraft):
        inside, most = 0, 0

        async def enter(at: int) -> None:
            nonlocal inside, most
            async with kraft[at % 3].semaphore("x", limit=3, permits=1 + at % 2):
                inside += 1 + at % 2
                most = max(most, inside)
                await asyncio.sleep(0.001)
                inside -= 1 + at % 2

        await asyncio.gather(*[enter(at) for at in range(20)])
        assert most == 3
        async with kraft[0].semaphore("x", limit=3):
            with pytest.raises(RefusedError, match="limit=3"):
                await kraft[1].semaphore("x", limit=4).acquire()


async def test_readers_read_together_and_a_writer_writes_alone() -> None:
    async with clients(4) as (access, kraft):
        first = await kraft[0].rwlock("x").writer.acquire()
        readers = [asyncio.create_task(one.rwlock("x").reader.acquire()) for one in kraft]
        await settled(access, "rw/x", 5)
        await first.release()
        terms = await asyncio.wait_for(asyncio.gather(*readers), 10)
        assert len({term.token for term in terms}) == 4, "each by a record of its own"

        writing = asyncio.create_task(kraft[1].rwlock("x").writer.acquire())
        await settled(access, "rw/x", 5)
        late = asyncio.create_task(kraft[2].rwlock("x").reader.acquire())
        await settled(access, "rw/x", 6)
        for term in terms:
            assert not writing.done()
            await term.release()
        writer = await writing
        assert not late.done()
        await writer.release()
        await (await late).release()


async def test_a_lease_is_had_at_once_or_not_at_all() -> None:
    async with clients(2) as (access, [one, two]):
        term = await one.lease("x").take()
        assert term is not None
        assert await two.lease("x").take() is None
        assert await two.lease("x").holder() == Holder("w0", term.token)
        async with term:
            pass
        assert access.bids("lease/x") == []
        assert await two.lease("x").take() is not None
