"""Small runs of `dev.py bench --large-log` and `--large-state`: each size is measured, and a line goes through them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command as Bench
from tools.bench.large import as_text, slopes


def test_logs_are_opened_and_fetched(bench: Bench, tmp_path: Path) -> None:
    result = bench("--large-log", "2,4", "--directory", tmp_path, "--output", "json")

    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [row["mib"] for row in rows] == [2, 4]
    assert all(row[name] > 0 for row in rows for name in ("open_closed_s", "open_killed_s", "caught_up_s"))
    assert all(row["observer_peak_mib"] >= row["observer_own_mib"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []


def test_states_are_loaded_and_fetched(bench: Bench, tmp_path: Path) -> None:
    result = bench("--large-state", "2000", "--directory", tmp_path)

    assert "2,000 keys" in result.out
    assert "line at" not in result.out  # of one size
    assert "taking a snapshot" in result.err
    figures = dict(line.split(maxsplit=1) for line in result.out.splitlines()[1:])
    assert all(float(figures[name]) > 0 for name in ("loaded_s", "snapshot_s", "caught_up_s", "leader_peak_mib"))


def test_no_keys_are_refused(bench: Bench, tmp_path: Path) -> None:
    result = bench("--large-state", "0", "--directory", tmp_path)

    assert result.status != 0
    assert "at least 1 each" in result.err


def test_a_line_goes_through_what_grows() -> None:
    rows = [{"mib": mib, "caught_up_s": mib / 100, "observer_own_mib": 50.0, "idle_p99_ms": 1.0} for mib in (100, 300)]

    assert slopes(rows, "mib", 1_000) == {"caught_up_s": 10.0, "observer_own_mib": 50.0}
    assert slopes(rows[:1], "mib", 1_000) == {}
    assert "line at 1,000 mib" in as_text(rows, "mib", 1_000)
