"""The loop and the background of a simulated replica."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.testing import liveness
from kraftlib.testing.process import Ending
from kraftlib.testing.surroundings import SLOWEST_US, SimulatedBackground
from kraftlib.testing.violation import InvariantViolation
from tests.simulation.mutation import Edit, Mutant, planted
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


@pytest.mark.parametrize(
    ("where", "old", "new", "said"),
    [
        ("runtime.applier.Applier._schedule", "self._scheduled = True", "pass", "asks for Applier._turn while"),
        ("runtime.alarm.Alarm.settle", "now_ms >= ask_ms", "True", "asks its core 20 times"),
    ],
)
def test_a_loop_that_is_kept_busy_for_nothing_is_a_violation(where: str, old: str, new: str, said: str) -> None:
    mutant = Mutant("one", "more than is needed", (Edit(where, old, new),))
    with planted(mutant), pytest.raises(InvariantViolation, match=f"I20 .*{said}"):
        run_a_busy_second()


def run_a_busy_second() -> None:
    with world() as made:
        made.workload.rate = 500.0
        made.workload.start()
        made.run_for(1_000)


def test_turns_of_the_listeners_come_late_where_the_loop_is_busy_and_nothing_is_lost() -> None:
    with world() as made:
        made.turn_lag_us = 2_000_000
        made.workload.start()
        made.run_for(3_000)
        behind = [
            node.process.applier.applied_offset < made.committed_end for node in made.nodes.values() if node.process
        ]
        made.workload.stop()
        made.turn_lag_us = 0
        liveness.settle(made)

        assert any(behind)
        assert made.violation is None
