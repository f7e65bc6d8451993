"""When memory is given back to the system."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from kraftlib.runtime.net.freed_memory import QUIET_S, REST_BYTES, WORTHWHILE_BYTES, FreedMemory, malloc_trim
from kraftlib.security.answers import Account, AnswerBudget


async def done_after(*waiting: int, max_bytes: int = 1 << 40) -> int:
    """Return how often memory was given back while so many bytes waited, one after the other."""
    loop, given = asyncio.get_running_loop(), asyncio.Semaphore(0)
    count = 0

    def give_back() -> None:
        nonlocal count
        count += 1
        loop.call_soon_threadsafe(given.release)

    budget = AnswerBudget(max_bytes, loop.time)
    freed = FreedMemory(budget, loop, give_back)
    unread = [0]
    account = Account(measure=lambda: unread[-1], close=lambda: None)
    for size in waiting:
        unread.append(size)
        budget.update(account)
        freed.look()
    if count or budget.gone_bytes == 0:
        async with asyncio.timeout(5):
            await given.acquire()
    return count


class Clock:
    """The part of an event loop that is asked for, on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def time(self) -> float:
        return self.now_s

    def run_in_executor(self, executor: None, work: Callable[[], None]) -> None:
        work()


def looks_at(*gone: tuple[float, int]) -> list[float]:
    """Return when memory was given back, by seconds since the beginning, if so many bytes of requests went then."""
    clock, found = Clock(), list[float]()
    began = clock.now_s
    budget = AnswerBudget(1 << 40, clock.time)
    freed = FreedMemory(budget, cast(asyncio.AbstractEventLoop, clock), lambda: found.append(clock.now_s - began))
    for at, size in gone:
        clock.now_s = began + at
        freed.gone_bytes += size
        freed.look()
    return found


def test_requests_of_connections_that_are_gone_count() -> None:
    assert looks_at((0, WORTHWHILE_BYTES // 2), (1, WORTHWHILE_BYTES // 2), (2, 0)) == [1]


def test_the_end_of_a_flood_is_seen_by_its_quiet() -> None:
    assert looks_at((0, REST_BYTES), (1, 1), (1 + QUIET_S / 2, 0), (1 + QUIET_S, 0), (9, 0)) == [1 + QUIET_S]


def test_a_few_requests_are_no_flood() -> None:
    assert looks_at((0, REST_BYTES - 1), (100, 0)) == []


async def test_little_is_not_worthwhile() -> None:
    assert await done_after(WORTHWHILE_BYTES - 1, 0) == 0


async def test_what_still_waits_is_not_gone() -> None:
    assert await done_after(WORTHWHILE_BYTES, 2 * WORTHWHILE_BYTES, WORTHWHILE_BYTES + 1) == 0


async def test_what_is_gone_is_given_back_once() -> None:
    assert await done_after(WORTHWHILE_BYTES, 0, 0) == 1


async def test_one_time_follows_another_after_a_pause_only() -> None:
    assert await done_after(WORTHWHILE_BYTES, 0, WORTHWHILE_BYTES, 0) == 1


async def test_peers_that_are_closed_for_the_budget_need_no_look() -> None:
    assert await done_after(WORTHWHILE_BYTES + 1, max_bytes=WORTHWHILE_BYTES) == 1


def test_the_c_library_of_this_machine_can_do_it() -> None:
    give_back = malloc_trim()
    if give_back is not None:  # musl and macOS have nothing of the kind, and need none
        give_back()
