"""The loop and the background of a simulated replica."""

from __future__ import annotations

from typing import Any

from kraftlib.testing.process import Ending
from kraftlib.testing.surroundings import SLOWEST_US, SimulatedBackground
from tests.testing.worlds import world


def test_the_background_does_one_thing_after_the_other_and_says_so_later() -> None:
    with world(voters=1) as made:
        process = made.nodes[1].process
        assert process is not None
        background = SimulatedBackground(process, made.timeline)
        done: list[str] = []
        heard: list[Any] = []
        for name in ("first", "second", "third"):
            background.run(lambda name=name: done.append(name), lambda result, error: heard.append(error))  # type: ignore[misc]
        background.run(lambda: 1 // 0, lambda result, error: heard.append(error))
        assert heard == []
        made.run_for(5 * SLOWEST_US // 1_000)

        assert done == ["first", "second", "third"]
        assert heard[:3] == [None, None, None]
        assert isinstance(heard[3], ZeroDivisionError)


def test_what_is_alone_takes_the_time_that_was_said() -> None:
    with world(voters=1) as made:
        process = made.nodes[1].process
        assert process is not None
        background = SimulatedBackground(process, made.timeline)
        heard: list[Any] = []
        with background.alone(30_000):
            background.run(lambda: made.now_ms, lambda result, error: heard.append(result))
        before_ms = made.now_ms
        made.run_for(29)
        assert heard == []
        made.run_for(2)

        assert heard == [before_ms + 30]


def test_a_process_that_has_ended_hears_nothing_more() -> None:
    with world(voters=1) as made:
        node = made.nodes[1]
        assert node.process is not None
        heard: list[Any] = []
        SimulatedBackground(node.process, made.timeline).run(lambda: 7, lambda result, _: heard.append(result))
        node.process.loop.call_later(0.01, lambda: heard.append("timer"))
        node.end(Ending.KILLED)
        made.run_for(1_000)

        assert heard == []


def test_a_timer_comes_on_the_clock_of_the_node_or_not_at_all() -> None:
    with world(voters=1) as made:
        node = made.nodes[1]
        assert node.process is not None
        node.clock.rate_ppm = 500_000
        heard: list[str] = []
        node.process.loop.call_later(0.1, lambda: heard.append("late"))
        node.process.loop.call_later(0.1, lambda: heard.append("never")).cancel()
        made.run_for(150)
        assert heard == []
        made.run_for(51)

        assert heard == ["late"]
