"""The session: how sure it is to be alive, and how often its calls count."""

from __future__ import annotations

import asyncio

import pytest

from kraftlib.coordination.access import Done
from kraftlib.coordination.messages import Do, Transact
from kraftlib.coordination.sessions import NO_ROOM
from kraftlib.errors import (
    ClosedError,
    OutcomeUnknownError,
    RefusedError,
    ReplicaFailedError,
    SessionEndedError,
    UnavailableError,
)
from kraftlib.recipes.calls import CALLS_MAX
from kraftlib.recipes.face import Recipes
from kraftlib.recipes.session import Session, SessionState
from tests.recipes.world import Late, Silent, Troubled, cancelled_in_between, clients

ADD = Transact(then=(Transact.Operation(do=Do.ADD, key="n", delta=1),))


async def test_it_is_valid_until_the_time_of_the_last_renewal_that_was_confirmed_is_nearly_over() -> None:
    now = 1_000
    async with Troubled() as access:
        session = await Session.open(access, ttl_ms=900, clock_ms=lambda: now)
        states = []
        for now in (1_000, 1_299, 1_300, 1_809, 1_810):  # noqa: B007 - the clock reads it
            states.append(session.state)
        assert states == [SessionState.VALID] * 2 + [SessionState.UNCERTAIN] * 2 + [SessionState.INVALID]
        assert not session.is_valid()
        await session.renew()
        assert session.state is SessionState.VALID
        await session.close()
        assert session.state is SessionState.ENDED


async def test_it_counts_from_when_a_renewal_was_sent_and_not_from_its_answer() -> None:
    now = 0

    class Slow(Troubled):
        async def call(self, command: bytes, *, timeout_ms: int):  # type: ignore[no-untyped-def]
            nonlocal now
            now += 500
            return await super().call(command, timeout_ms=timeout_ms)

    async with Slow() as access:
        session = await Session.open(access, ttl_ms=1_000, clock_ms=lambda: now)
        assert session.valid_until_ms == 900
        await session.close()


async def test_it_renews_itself_and_is_lost_when_it_does_not() -> None:
    async with clients(1, ttl_ms=200) as (access, [kraft]):
        session = await kraft.session()
        await asyncio.sleep(0.5)
        assert session.is_valid()
        access.reachable.clear()
        await asyncio.wait_for(session.wait_invalid(), 10)
        while access.machine._state.sessions.live:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        access.reachable.set()
        await asyncio.wait_for(session.ended.wait(), 10)
        assert (await kraft.session()).is_valid(), "another one is opened when it is needed"


class Quarantined(Troubled):
    """A replica in this process that takes no calls while its state is wrong."""

    is_wrong = False

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        if self.is_wrong:
            self.calls += 1
            raise ReplicaFailedError("the state of this replica differs from that of the majority")
        return await super().call(command, timeout_ms=timeout_ms)


async def test_a_session_outlives_a_quarantine_of_the_replica_and_what_was_to_be_undone_is() -> None:
    access = Quarantined()
    async with asyncio.timeout(10), clients(1, access=access, ttl_ms=600) as (_, [kraft]):
        session = await kraft.session()
        term = await kraft.lock("x").acquire()
        access.is_wrong = True
        releasing = asyncio.create_task(term.release())
        calls = access.calls
        while access.calls < calls + 2:  # noqa: ASYNC110 - the release, and a renewal or another try
            await asyncio.sleep(0.01)
        access.is_wrong = False
        await releasing
        await session.settle()

        assert access.bids("lock/x") == []
        confirmed_ms = session.confirmed_ms
        while session.confirmed_ms == confirmed_ms:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert session.is_valid()


async def test_a_client_closes_although_the_machine_of_its_replica_has_failed() -> None:
    access = Quarantined()
    async with access:
        kraft = Recipes(access, ttl_ms=600)
        session = await kraft.session()
        access.is_wrong = True
        await asyncio.wait_for(kraft.close(), 10)
        assert session.state is SessionState.ENDED


@pytest.mark.parametrize("seed", range(10))
async def test_calls_that_are_sent_more_than_once_count_once(seed: int) -> None:
    async with clients(2, access=Troubled(seed)) as (_, kraft):
        counters = [one.counter("n") for one in kraft]
        sums = await asyncio.gather(*[counters[at % 2].add() for at in range(100)])
        assert sorted(sums) == list(range(1, 101))
        assert await counters[0].value() == 100


async def test_a_caller_repeats_a_call_by_its_number_and_gets_the_first_result() -> None:
    access = Silent()
    async with clients(1, access=access) as (_, [kraft]):
        session = await kraft.session()
        number = session.reserve()
        access.swallow = 1
        with pytest.raises(OutcomeUnknownError):
            await session.call(ADD, number=number)
        await session.call(ADD)
        first = await session.call(ADD, number=number)
        assert first.items[0].value == b"1"
        session.forget(number)
        await session.renew()
        with pytest.raises(RefusedError, match="given up"):
            await session.call(ADD, number=number)


async def test_two_thousand_calls_of_one_session_at_once_wait_for_room_and_are_all_done() -> None:
    async with clients(1) as (_, [kraft]):
        sums = await asyncio.gather(*[kraft.counter("n").add() for _ in range(2_000)])
        assert sorted(sums) == list(range(1, 2_001))


async def test_a_call_that_finds_no_room_in_time_says_that_it_was_never_sent() -> None:
    access = Troubled()
    async with clients(1, access=access) as (_, [kraft]):
        session = await kraft.session()
        first = session.reserve()
        for _ in range(CALLS_MAX - 1):
            session.forget(session.reserve())
        calls = access.calls
        with pytest.raises(UnavailableError, match="nothing was sent within 20 ms"):
            await session.call(ADD, timeout_ms=20)
        gone = asyncio.create_task(session.call(ADD))
        waits = asyncio.create_task(session.call(ADD))
        await asyncio.sleep(0)
        assert access.calls == calls
        gone.cancel()
        session.forget(first)
        assert (await waits).items[0].value == b"1"


async def test_a_caller_that_leaves_in_the_turn_in_which_it_gets_room_leaves_it_to_the_next() -> None:
    async with clients(1) as (_, [kraft]):
        session = await kraft.session()
        held = [session.reserve() for _ in range(CALLS_MAX)]
        gone, waits = (asyncio.create_task(session.reserve_in_time(20_000)) for _ in range(2))
        await asyncio.sleep(0)
        session.forget(held[0])
        gone.cancel()
        await asyncio.wait((gone,))
        assert not waits.done()  # the number of the one that left has taken the room
        session.forget(held[1])
        number, left_ms = await waits
        assert number == CALLS_MAX + 2
        assert 0 < left_ms <= 20_000


async def test_the_time_for_room_is_part_of_the_time_for_the_call() -> None:
    given: list[int] = []

    class Told(Troubled):
        async def call(self, command: bytes, *, timeout_ms: int) -> Done:
            given.append(timeout_ms)
            return await super().call(command, timeout_ms=timeout_ms)

    async with clients(1, access=Told()) as (_, [kraft]):
        session = await kraft.session()
        held = [session.reserve() for _ in range(CALLS_MAX)]
        call = asyncio.create_task(session.call(ADD, timeout_ms=20_000))
        await asyncio.sleep(0.03)
        for number in held:
            session.forget(number)
        await call
        assert given[-1] <= 19_971


async def fill(session: Session) -> int:
    """Leave so much unacknowledged that there is no room for more; return the number that holds all that up."""
    held = session.reserve()
    await session.call(Transact(then=(Transact.Operation(do=Do.PUT, key="much", value=bytes(900_000)),)))
    read = Transact(then=(Transact.Operation(do=Do.GET, key="much"),) * 4)
    for _ in range(3):
        await session.call(read)
    return held


async def test_what_found_no_room_is_done_when_there_is_room() -> None:
    async with asyncio.timeout(20), clients(1, ttl_ms=600) as (_, [kraft]):
        party, session = kraft.party("p"), await kraft.session()
        membership = await party.acquire()
        held = await fill(session)
        with pytest.raises(RefusedError, match=NO_ROOM):
            await membership.end()
        await session.call_beside(ADD)
        session.forget(held)
        await session.settle()
        assert await party.members() == []
        assert (await session.call(ADD)).items[0].value == b"2"


async def test_a_rule_that_is_broken_is_an_answer() -> None:
    async with asyncio.timeout(20), clients(1) as (_, [kraft]):
        session = await kraft.session()
        replace = Transact(then=(Transact.Operation(do=Do.REPLACE, key="none", value=b"x"),))
        with pytest.raises(RefusedError, match="no key"):
            await session.call_through(replace)
        await session.settle()


async def test_as_many_callers_as_there_may_be_leave_at_once_and_the_session_goes_on() -> None:
    access = Late()
    async with asyncio.timeout(60), clients(1, access=access, ttl_ms=600) as (_, [kraft]):
        session, queue = await kraft.session(), kraft.queue("q")
        for number in range(CALLS_MAX):
            await queue.put(b"%d" % number)
        async with cancelled_in_between(access):
            await asyncio.gather(*[queue.get() for _ in range(CALLS_MAX)])
        await session.settle()
        assert len(access.keys("queue/q/")) == CALLS_MAX
        assert [await queue.get() for _ in range(CALLS_MAX)] == [b"%d" % number for number in range(CALLS_MAX)]


async def test_a_session_that_is_over_says_so() -> None:
    async with clients(1) as (access, [kraft]):
        session = await kraft.session()
        access.end_session(session.id)
        with pytest.raises(SessionEndedError):
            await session.call(ADD)
        await kraft.close()
        with pytest.raises(ClosedError):
            await kraft.counter("n").add()


async def test_a_client_closes_in_time_although_no_quorum_is_reached() -> None:
    async with Troubled() as access:
        kraft = Recipes(access, ttl_ms=300, timeout_ms=60_000)
        term = await kraft.lock("x").acquire()
        access.reachable.clear()
        releasing = asyncio.create_task(term.release())
        await asyncio.sleep(0.05)
        await asyncio.wait_for(kraft.close(), 10)
        await asyncio.wait_for(releasing, 10)

        other = Recipes(access, timeout_ms=60_000)
        waiting = [asyncio.create_task(other.counter("n").add()) for _ in range(2)]
        await asyncio.sleep(0.05)
        waiting[0].cancel()
        await asyncio.wait_for(other.close(), 10)
        with pytest.raises(ClosedError):
            await asyncio.wait_for(waiting[1], 10)


async def test_a_block_that_is_not_entered_leaves_no_session_behind() -> None:
    async with asyncio.timeout(20), Troubled() as access:
        access.reachable.clear()
        kraft = Recipes(access, ttl_ms=300)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), kraft:
                pass
        tasks = len(asyncio.all_tasks())
        access.reachable.set()
        async with kraft:  # it may be tried again
            assert len(access.machine._state.sessions.live) == 1
        assert len(asyncio.all_tasks()) == tasks
        assert not access.machine._state.sessions.live


async def test_all_that_wait_for_a_session_get_its_error_and_the_next_one_tries_again() -> None:
    async with Troubled() as access:
        access.reachable.clear()
        kraft = Recipes(access, timeout_ms=50)
        refused = await asyncio.gather(*[kraft.counter("n").add() for _ in range(3)], return_exceptions=True)
        assert [type(error) for error in refused] == [UnavailableError] * 3
        assert access.calls == 1
        access.reachable.set()
        assert await kraft.counter("n").add() == 1
        await kraft.close()
