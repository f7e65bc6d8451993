"""Work for one login, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kraftlib.security.own_thread import in_own_thread


async def test_its_end_is_that_of_the_work() -> None:
    assert await in_own_thread(pow, 2, 10) == 1024
    with pytest.raises(ZeroDivisionError):
        await in_own_thread(divmod, 1, 0)


async def test_works_of_several_logins_do_not_wait_for_each_other_nor_for_a_caller_that_has_gone() -> None:
    together = threading.Barrier(41)
    async with asyncio.timeout(20):
        tasks = [asyncio.create_task(in_own_thread(together.wait, 20)) for _ in range(40)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await in_own_thread(together.wait, 20)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in ends] == [True] + [False] * 39
