"""An asyncio loop as the parts of a replica see it."""

from __future__ import annotations

import asyncio
import threading

from kraftlib.runtime.loop import AsyncioLoop
from tests.runtime.quorum import PATIENCE_S


async def test_calls_come_in_order_of_their_time_and_not_when_they_are_cancelled() -> None:
    loop = AsyncioLoop(asyncio.get_running_loop())
    heard: list[str] = []
    done = asyncio.Event()
    loop.call_at(loop.now_ms() + 30, done.set)
    loop.call_at(loop.now_ms() - 5, lambda: heard.append("due"))
    loop.call_later(0.005, lambda: heard.append("later"))
    loop.call_later(0.0, lambda: heard.append("never")).cancel()
    assert heard == []
    await asyncio.wait_for(done.wait(), PATIENCE_S)

    assert heard == ["due", "later"]


async def test_a_thread_may_call_too() -> None:
    loop = AsyncioLoop(asyncio.get_running_loop())
    heard: list[int] = []
    done = asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(heard.append, 7)
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=tell).start()
    await asyncio.wait_for(done.wait(), PATIENCE_S)

    assert heard == [7]


def test_a_loop_that_has_ended_calls_nothing_and_raises_nothing() -> None:
    ended = asyncio.new_event_loop()
    ended.close()
    heard: list[int] = []
    AsyncioLoop(ended).call_soon_threadsafe(heard.append, 7)

    assert heard == []


def test_the_clocks_are_one_monotonic_clock_and_one_wall_clock() -> None:
    ended = asyncio.new_event_loop()
    ended.close()
    loop = AsyncioLoop(ended)

    before_ms, ns, after_ms = loop.now_ms(), loop.now_ns(), loop.now_ms()
    assert before_ms <= ns // 1_000_000 <= after_ms
    assert loop.wall_ms() > 1_700_000_000_000
