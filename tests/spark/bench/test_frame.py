"""Goals are compared as they are written; what has none is met."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.bench.frame import Context, Figure, show


@pytest.mark.parametrize(
    ("goal", "met"), [(">= 2", True), (">= 2.1", False), ("<= 2", True), ("= 2", True), ("", True)]
)
def test_a_goal_is_met_or_missed(goal: str, met: object) -> None:
    assert Figure(name="n", value=2.0, unit="x", goal=goal).is_met == met


def test_figures_are_shown_with_their_goals(capsys: pytest.CaptureFixture[str]) -> None:
    show([Figure(name="a", value=1.0, unit="x", goal=">= 2", beside="b 3"), Figure(name="c", value=1.0, unit="")])
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].split() == ["a", "1.00", "x", ">=", "2", "MISSED", "b", "3"]
    assert shown[2].split() == ["c", "1.00"]


def test_the_best_of_each_is_taken_and_the_first_round_does_not_count(tmp_path: Path) -> None:
    ran: list[str] = []
    context = Context(tmp_path, megabytes=1, rounds=2)
    assert len(context.best(lambda: ran.append("a"), lambda: ran.append("b"))) == 2
    assert "".join(ran) == "ababab"
    context.stop()


def test_when_the_time_is_over_one_round_is_measured_all_the_same(tmp_path: Path) -> None:
    ran: list[str] = []
    context = Context(tmp_path, megabytes=1, rounds=9, box_s=0)
    context.best(lambda: ran.append("a"))
    assert "".join(ran) == "aa"
