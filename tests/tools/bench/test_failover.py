"""How long nobody is served after kill -9, measured over real processes: the means of measuring, not the figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.bench.conftest import Bench
from tools.bench.failover import summary


@pytest.mark.slow
def test_leaders_are_killed_and_the_next_commit_is_timed(bench: Bench, tmp_path: Path) -> None:
    result = bench("--failover", 2, "--output", "json", "--directory", tmp_path)

    assert result.status == 0, result.err
    found = json.loads(result.out)
    assert list(found) == ["kills", "p50_ms", "p90_ms", "max_ms", "min_ms"]
    assert found["kills"] == 2
    assert 0 < found["min_ms"] <= found["p50_ms"] <= found["max_ms"]
    assert result.err.count("kill ") == 2
    assert list(tmp_path.iterdir()) == []


def test_the_summary_is_of_all_kills() -> None:
    assert summary([30.0, 10.0, 20.0, 500.0]) == {
        "kills": 4,
        "p50_ms": 25.0,
        "p90_ms": 500.0,
        "max_ms": 500.0,
        "min_ms": 10.0,
    }


def test_no_kill_is_no_measurement(bench: Bench) -> None:
    assert "at least one kill" in bench("--failover", 0).err
