"""Frames of many connections share one bounded time in each turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kraftlib.runtime.net.frame_turns import TURN_S, FrameTurns


class Turning:
    """Work for `FrameTurns`, with a clock set by hand. `log` has what was done, and "turn" at each turn of the loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []
        self.turns = FrameTurns(asyncio.get_running_loop(), lambda: self.now)

    def work(self, name: str, share: float) -> Callable[[], None]:
        def take() -> None:
            self.log.append(name)
            self.now += share * TURN_S

        return take

    async def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.log.append("turn")
            await asyncio.sleep(0)


async def test_a_turn_has_time_until_it_is_spent_and_the_next_one_has_time_again() -> None:
    turning = Turning()
    assert turning.turns.is_free()
    turning.now += 0.9 * TURN_S
    assert turning.turns.is_free()
    turning.now += 0.2 * TURN_S
    assert not turning.turns.is_free()
    await turning.turn()
    assert turning.turns.is_free()


async def test_who_waits_is_served_in_order_and_before_newcomers() -> None:
    turning = Turning()
    turning.turns.has_time()
    turning.now += TURN_S
    for name in "abc":
        turning.turns.wait(turning.work(name, 0.6))
    turning.log.clear()

    await turning.turn()
    assert not turning.turns.is_free(), "c waits still"
    await turning.turn(2)

    assert turning.log == ["turn", "a", "b", "turn", "c", "turn"]
    assert turning.turns.is_free()


async def test_a_connection_that_may_be_a_voter_is_served_first() -> None:
    turning = Turning()
    turning.turns.has_time()
    turning.now += TURN_S
    for name in "ab":
        turning.turns.wait(turning.work(name, 1.1))
    turning.turns.wait(turning.work("voter", 1.1), first=True)
    await turning.turn()
    assert not turning.turns.is_free()
    await turning.turn(2)

    assert [name for name in turning.log if name != "turn"] == ["voter", "a", "b"]


async def test_who_waits_again_waits_behind_the_others() -> None:
    turning = Turning()
    turning.turns.has_time()
    turning.now += TURN_S

    def again() -> None:
        turning.work("again", 1.1)()
        turning.turns.wait(turning.work("last", 0.1))

    turning.turns.wait(again)
    turning.turns.wait(turning.work("other", 0.1))
    await turning.turn(3)

    assert [name for name in turning.log if name != "turn"] == ["again", "other", "last"]


async def test_nothing_turns_while_nobody_asks() -> None:
    turning = Turning()
    turning.turns.has_time()
    await turning.turn(2)
    turning.now += 100 * TURN_S
    assert turning.turns.is_free()
