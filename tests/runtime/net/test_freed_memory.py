"""When memory is given back to the system."""

from __future__ import annotations

import asyncio

from kraftlib.runtime.net.freed_memory import WORTHWHILE_BYTES, FreedMemory, malloc_trim
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
