"""A term ends with its body, however that ends; and the body ends with its term."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from kraftlib.coordination.access import Change, Done
from kraftlib.coordination.commands import decode_command
from kraftlib.coordination.messages import Acquire
from kraftlib.errors import (
    FencedError,
    KraftError,
    OutcomeUnknownError,
    SessionEndedError,
    TermLostError,
    TimedOutError,
)
from kraftlib.recipes.face import Recipes
from kraftlib.recipes.session import Session
from kraftlib.recipes.terms import acquire_term
from tests.recipes.world import Silent, Troubled, clients


async def settled(access: Troubled, lock: str, count: int) -> None:
    """Wait until a lock has `count` bids."""
    async with asyncio.timeout(10):
        while len(access.bids(lock)) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_body_that_raises_or_is_cancelled_or_returns_releases_at_once() -> None:
    async with clients(1) as (access, [kraft]):
        lock = kraft.lock("x")
        with pytest.raises(ZeroDivisionError):
            async with lock:
                _ = 1 / 0
        assert access.bids("lock/x") == []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), lock:
                await asyncio.sleep(60)
        assert access.bids("lock/x") == []
        async with lock as term:
            assert term.is_valid()
        assert not term.is_valid()
        assert access.bids("lock/x") == []


async def test_a_body_is_cancelled_when_its_session_ends_and_its_writes_are_refused() -> None:
    async with clients(2) as (access, [one, two]):
        session = await one.session()
        began = asyncio.Event()

        async def lead() -> None:
            async with one.election("jobs") as term:
                began.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    assert not term.is_valid()
                    with pytest.raises(FencedError):
                        await two.map("jobs").put("by", b"one", fence=term)

        leading = asyncio.create_task(lead())
        await began.wait()
        access.end_session(session.id)
        with pytest.raises(TermLostError, match="jobs"):
            await leading
        assert leading.cancelling() == 0
        async with one.election("jobs") as term:
            assert term.is_valid(), "the next term has a session of its own"
            assert (await one.session()).id != session.id


async def test_a_body_is_cancelled_while_the_session_may_live_but_cannot_be_renewed() -> None:
    """The holder gives up before the quorum does."""
    async with clients(1, ttl_ms=300) as (access, [kraft]):
        with pytest.raises(TermLostError):  # noqa: PT012
            async with kraft.lock("x") as term:
                access.reachable.clear()
                asyncio.get_running_loop().call_later(0.5, access.reachable.set)
                await asyncio.sleep(60)
        assert not term.is_valid()


async def test_a_cancellation_from_outside_stays_one() -> None:
    async with clients(1) as (access, [kraft]):
        began = asyncio.Event()

        async def hold() -> None:
            async with kraft.lock("x"):
                began.set()
                await asyncio.sleep(60)

        holding = asyncio.create_task(hold())
        await began.wait()
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        assert access.bids("lock/x") == []


async def test_a_bid_that_is_cancelled_or_late_is_withdrawn() -> None:
    async with clients(2) as (access, [one, two]), one.lock("x"):
        with pytest.raises(TimeoutError, match="10 ms"):
            await two.lock("x").acquire(timeout_ms=10)
        assert len(access.bids("lock/x")) == 1
        waiting = asyncio.create_task(two.lock("x").acquire())
        await settled(access, "lock/x", 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(access.bids("lock/x")) == 1


async def test_a_bid_gets_no_more_than_its_time_though_no_leader_is_found() -> None:
    """It is withdrawn beside it, as soon as there is one."""
    async with asyncio.timeout(20), clients(2, ttl_ms=60_000) as (access, [one, two]), one.lock("x"):
        await two.session()
        waiting = asyncio.create_task(two.lock("x").acquire(timeout_ms=500))
        await settled(access, "lock/x", 2)
        access.reachable.clear()
        with pytest.raises(TimedOutError, match="'x' was not granted within 500 ms"):
            await waiting
        access.reachable.set()
        await settled(access, "lock/x", 1)


async def test_the_time_for_a_bid_includes_that_for_its_session_and_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    time_s, passed_s = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: time_s() + passed_s)

    class Slow(Troubled):
        async def call(self, command: bytes, *, timeout_ms: int) -> Done:
            nonlocal passed_s
            done = await super().call(command, timeout_ms=timeout_ms)
            if isinstance(decode_command(command).body, Acquire):
                passed_s += 60
            return done

    async with asyncio.timeout(150), Slow() as access:
        kraft = Recipes(access, timeout_ms=60_000)
        access.reachable.clear()
        with pytest.raises(TimedOutError, match="'x' was not granted within 50 ms"):
            await kraft.lock("x").acquire(timeout_ms=50)
        access.reachable.set()
        async with kraft.lock("x"):
            with pytest.raises(TimedOutError, match="'x' was not granted within 60000 ms"):
                await kraft.lock("x").acquire(timeout_ms=60_000)
        await kraft.close()


async def test_a_bid_whose_outcome_is_unknown_is_withdrawn() -> None:
    access = Silent()
    async with clients(1, access=access) as (_, [kraft]):
        access.swallow = 1
        with pytest.raises(OutcomeUnknownError):
            await kraft.lock("x").acquire()
        assert access.bids("lock/x") == []


async def test_a_session_that_ends_while_it_waits_never_wins() -> None:
    async with clients(2) as (access, [one, two]), one.lock("x"):
        waiting = asyncio.create_task(two.lock("x").acquire())
        await settled(access, "lock/x", 2)
        access.end_session((await two.session()).id)
        with pytest.raises((SessionEndedError, TermLostError)):
            await waiting


async def test_a_term_is_resigned_within_its_body() -> None:
    async with clients(2) as (_, [one, two]), one.election("x") as term:
        await term.release()
        assert not term.is_valid()
        async with two.election("x") as next_term:
            assert next_term.token > term.token


async def test_one_object_is_entered_by_several_tasks() -> None:
    async with clients(1) as (_, [kraft]):
        lock = kraft.lock("x")
        inside = 0

        async def enter() -> None:
            nonlocal inside
            async with lock:
                inside += 1
                await asyncio.sleep(0.001)
                assert inside == 1
                inside -= 1

        await asyncio.gather(*[enter() for _ in range(20)])


async def test_tokens_grow_over_all_locks_and_elections() -> None:
    async with clients(3) as (_, kraft):
        tokens: list[int] = []

        async def use(client: Recipes, at: int) -> None:
            for one in (client.lock("a"), client.election("b"), client.rwlock("c").reader, client.lock("d")):
                async with one as term:
                    tokens.append(term.token)
                    await asyncio.sleep(0)

        await asyncio.gather(*[use(client, at) for at, client in enumerate(kraft)])
        assert len(set(tokens)) == 12


async def test_a_term_that_cannot_be_watched_is_lost_all_the_same_when_it_is_replaced() -> None:
    class Blind(Troubled):
        watches = 0

        async def watch(self, selector: bytes, since: int | None) -> AsyncIterator[Change]:
            self.watches += 1
            raise KraftError("this client has too many watches")
            yield

    access = Blind()
    async with clients(2, access=access, ttl_ms=600) as (_, [before, after]):
        async with asyncio.timeout(10):
            with pytest.raises(TermLostError):  # noqa: PT012
                async with before.election("x", identity="s"):
                    await asyncio.sleep(0.3)
                    assert access.watches > 1, "it is tried again"
                    assert (await before.session()).is_valid()
                    await after.election("x", identity="s").acquire()
                    await asyncio.sleep(60)


async def test_a_term_that_is_lost_before_its_block_begins_says_so_and_cancels_nobody() -> None:
    async with clients(1, ttl_ms=60_000) as (access, [kraft]):
        term = await kraft.lease("x").take()
        assert term is not None
        access.end_session((await kraft.session()).id)
        await term.wait_lost()
        began = False

        async def use() -> None:
            nonlocal began
            async with term:
                began = True

        using = asyncio.create_task(use())
        await asyncio.wait([using])
        assert not using.cancelled()
        assert isinstance(using.exception(), TermLostError)
        assert not began


async def test_a_bid_that_was_replaced_before_its_answer_came_is_no_term() -> None:
    """The session lives, and was not sure of it for a while: that it is renewed does not say that its bid stands."""
    now = 0

    class Replaced(Troubled):
        async def call(self, command: bytes, *, timeout_ms: int) -> Done:
            nonlocal now
            done = await super().call(command, timeout_ms=timeout_ms)
            if isinstance(decode_command(command).body, Acquire) and not now:
                now = 60_000
                await other.call(bid)
            return done

    bid = Acquire(lock="x", owner="s", replace=True)
    async with Replaced() as access:
        session, other = await Session.open(access, clock_ms=lambda: now), await Session.open(access)
        with pytest.raises(TermLostError):
            await acquire_term(SimpleNamespace(get=AsyncMock(return_value=session)), bid, name="x")  # type: ignore[arg-type]
        assert session.is_valid()
        await session.close()
        await other.close()
