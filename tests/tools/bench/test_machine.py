"""The limits of the machine are measured, not guessed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tools.bench.machine import Machine, measure, measure_fdatasync_us, measure_round_trip_us, median_of


def test_both_are_measured_and_leave_nothing_behind(tmp_path: Path) -> None:
    threads = threading.active_count()

    assert measure_fdatasync_us(tmp_path, count=5) > 0
    assert measure_round_trip_us(count=20) > 0
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


def test_measure_takes_medians_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.bench.machine.measure_fdatasync_us", lambda directory: 140.0)
    monkeypatch.setattr("tools.bench.machine.measure_round_trip_us", lambda: 60.0)

    assert measure(tmp_path) == Machine(140.0, 60.0)


def test_a_busy_moment_does_not_count() -> None:
    assert median_of([Machine(140.0, 60.0), Machine(9_000.0, 50.0), Machine(150.0, 70.0)]) == Machine(150.0, 60.0)


def test_the_limit_is_one_round_for_all_callers() -> None:
    assert Machine(140.0, 60.0).limit_per_s(1) == 5_000
    assert Machine(140.0, 60.0).limit_per_s(256) == 1_280_000
