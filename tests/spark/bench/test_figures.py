"""The benchmarks come to their end on a small log; what has to be true, and not fast, is true there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.bench import latency
from tests.spark.bench.__main__ import BENCHMARKS
from tests.spark.bench.frame import Context


@pytest.mark.parametrize("name", ["lookup", "compaction", "checkpoint", "latency"])
def test_a_benchmark_ends_with_its_figures(
    spark: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "APPENDS", 3)
    monkeypatch.setattr(latency, "WARM_UP", 1)
    context = Context(tmp_path, megabytes=1, rounds=1)
    context.__dict__["spark"] = spark
    figures = BENCHMARKS[name](context)

    assert all(figure.value >= 0 for figure in figures)
    assert any(figure.goal for figure in figures)
    wrong = [figure for figure in figures if figure.goal.startswith("= ") and not figure.is_met]
    assert wrong == []
