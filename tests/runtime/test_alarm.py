"""The alarm never comes too late, and seldom asks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlib.runtime.alarm import ASK_EVERY_MS, Alarm


class World:
    def __init__(self) -> None:
        self.now_ms = 1_000
        self.deadline: int | None = None
        self.asked = 0
        self.timer: int | None = None
        self.alarm = Alarm(self._ask, clock=lambda: self.now_ms, set_timer=self._set)

    def _ask(self) -> int | None:
        self.asked += 1
        return self.deadline

    def _set(self, at_ms: int) -> None:
        self.timer = at_ms


@given(st.lists(st.tuples(st.integers(0, 30), st.one_of(st.none(), st.integers(1, 200))), max_size=30))
def test_a_deadline_is_noticed_in_time_whatever_happened_before(steps: list[tuple[int, int | None]]) -> None:
    """Time passes, an event changes the deadline: at most ASK_EVERY_MS after it has passed, somebody says so."""
    world = World()
    for pause, ahead in steps:
        end = world.now_ms + pause
        while world.timer is not None and world.timer <= end:
            world.now_ms, world.timer = max(world.now_ms, world.timer), None
            if world.alarm.fired():
                world.deadline = None
            world.alarm.settle()
        world.now_ms = end
        world.deadline = None if ahead is None else world.now_ms + ahead
        world.alarm.stale = True
        world.alarm.settle()
    while world.deadline is not None:
        assert world.timer is not None
        assert world.timer <= max(world.deadline, world.now_ms + ASK_EVERY_MS)
        world.now_ms, world.timer = world.timer, None
        if world.alarm.fired():
            assert world.now_ms >= world.deadline
            break
        world.alarm.settle()


def test_a_busy_replica_asks_once_every_few_milliseconds() -> None:
    world = World()
    world.deadline = 5_000
    for _ in range(1_000):
        world.alarm.stale = True
        world.alarm.settle()
    assert world.asked == 1
    world.now_ms += ASK_EVERY_MS
    world.timer = None
    assert not world.alarm.fired()
    world.alarm.settle()
    assert (world.asked, world.timer) == (2, 5_000)


def test_what_has_passed_is_said_once() -> None:
    world = World()
    world.deadline = 1_050
    world.alarm.settle()
    assert not world.alarm.is_over(1_049)
    assert world.alarm.is_over(1_050)
    assert not world.alarm.is_over(1_051), "it is known already, and the core has been told"


def test_a_linger_that_ends_sooner_sets_the_timer() -> None:
    world = World()
    world.deadline = 2_000
    world.alarm.settle(1_025)
    assert world.timer == 1_025
    world.timer = None
    world.alarm.fired()
    world.alarm.settle(None)
    assert world.timer == 2_000
