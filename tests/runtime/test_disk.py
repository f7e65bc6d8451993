"""The disk does one thing after the other, and tells what came of each."""

from __future__ import annotations

import asyncio
import threading

from kraftlib.runtime.disk import InlineDisk, ThreadDisk


def test_inline_disk_has_told_when_run_returns() -> None:
    heard: list[object] = []
    InlineDisk().run(lambda: 7, lambda result, error: heard.append((result, error)))

    assert heard == [(7, None)]


def test_what_raises_is_a_result_like_any_other() -> None:
    heard: list[BaseException | None] = []
    InlineDisk().run(lambda: 1 // 0, lambda result, error: heard.append(error))

    assert isinstance(heard[0], ZeroDivisionError)


async def test_thread_disk_keeps_the_order_runs_beside_the_loop_and_tells_on_it() -> None:
    loop = asyncio.get_running_loop()
    disk = ThreadDisk(loop)
    ran_on: list[int] = []
    told: list[tuple[int, int]] = []
    finished = loop.create_future()

    def job() -> int:
        ran_on.append(threading.get_ident())
        return len(ran_on)

    def done(result: int, error: BaseException | None) -> None:
        told.append((result, threading.get_ident()))
        if len(told) == 3:
            finished.set_result(None)

    for _ in range(3):
        disk.run(job, done)
    async with asyncio.timeout(10):
        await finished
    disk.close()

    here = threading.get_ident()
    assert told == [(1, here), (2, here), (3, here)]
    assert len(set(ran_on)) == 1
    assert here not in ran_on


async def test_thread_disk_hands_over_what_was_raised() -> None:
    loop = asyncio.get_running_loop()
    disk = ThreadDisk(loop)
    told = loop.create_future()
    disk.run(lambda: 1 // 0, lambda result, error: told.set_result(error))
    async with asyncio.timeout(10):
        assert isinstance(await told, ZeroDivisionError)
    disk.close()


async def test_close_finishes_what_was_asked_for() -> None:
    disk = ThreadDisk(asyncio.get_running_loop())
    ran: list[int] = []
    for number in range(5):
        disk.run(lambda number=number: ran.append(number), lambda result, error: None)  # type: ignore[misc]
    disk.close()

    assert ran == [0, 1, 2, 3, 4]


def test_a_result_that_comes_when_the_loop_is_gone_disturbs_nobody() -> None:
    loop = asyncio.new_event_loop()
    disk = ThreadDisk(loop)
    may_end, ran = threading.Event(), threading.Event()
    disk.run(may_end.wait, lambda result, error: None)
    disk.run(ran.set, lambda result, error: None)
    loop.close()
    may_end.set()
    disk.close()

    assert ran.is_set()
