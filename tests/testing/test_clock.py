"""Simulated time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlib.testing.clock import MILLION, SECOND, NodeClock, Timeline


def test_things_happen_in_the_order_of_their_times_and_then_of_their_asking() -> None:
    timeline, happened = Timeline(), []
    for time_us, name in [(30, "c"), (10, "a"), (30, "d"), (20, "b")]:
        timeline.at(time_us, happened.append, name)
    timeline.run(100, lambda: False)

    assert happened == ["a", "b", "c", "d"]
    assert timeline.now_us == 100


def test_what_is_asked_for_in_the_past_happens_now() -> None:
    timeline, times = Timeline(), []
    timeline.at(50, lambda: timeline.at(10, lambda: times.append(timeline.now_us)))
    timeline.run(100, lambda: False)

    assert times == [50]


def test_a_run_ends_at_the_event_that_is_waited_for() -> None:
    timeline, happened = Timeline(), []
    for time_us in (10, 20, 30):
        timeline.at(time_us, happened.append, time_us)
    timeline.run(100, lambda: len(happened) == 2)

    assert (happened, timeline.now_us, timeline.events) == ([10, 20], 20, 2)


@given(st.integers(0, 10**9), st.integers(500_000, 2_000_000), st.integers(0, 10**6), st.integers(0, 10**5))
def test_a_timer_is_never_early_on_its_own_clock(offset_ms: int, rate_ppm: int, now_us: int, wait_ms: int) -> None:
    timeline = Timeline()
    clock = NodeClock(timeline, offset_ms=offset_ms, rate_ppm=rate_ppm)
    timeline.run(now_us, lambda: False)
    deadline_ms = clock.now_ms() + wait_ms
    due_us = clock.world_us(deadline_ms)
    timeline.run(max(due_us, now_us), lambda: False)

    assert clock.now_ms() >= deadline_ms


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(100_000, 3_000_000)), max_size=10))
def test_a_clock_never_falls_however_its_rate_changes(changes: list[tuple[int, int]]) -> None:
    timeline = Timeline()
    clock = NodeClock(timeline)
    readings = [clock.now_ns()]
    for pause_us, rate_ppm in changes:
        timeline.run(timeline.now_us + pause_us, lambda: False)
        clock.rate_ppm = rate_ppm
        readings.append(clock.now_ns())

    assert readings == sorted(readings)


def test_a_fast_clock_gains() -> None:
    timeline = Timeline()
    clock = NodeClock(timeline, offset_ms=5, rate_ppm=MILLION * 6 // 5)
    timeline.run(10 * SECOND, lambda: False)
    clock.wall_offset_ms = 1_000_000

    assert (clock.now_ms(), clock.wall_ms()) == (12_005, 1_012_005)
