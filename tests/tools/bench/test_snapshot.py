"""`dev.py bench --snapshot`: figures of a real snapshot, taken while records are committed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tools.bench.conftest import Bench


def test_it_takes_a_snapshot_while_records_are_committed(bench: Bench, tmp_path: Path) -> None:
    result = bench(
        "--snapshot", 2_000, "--seconds", 0.1, "--directory", tmp_path, "--output", "json", "--engine", "thread"
    )
    assert result.status == 0, result.err
    found = json.loads(result.out)
    assert found["keys"] == 2_000
    assert found["bytes"] > 2_000 * 108
    assert found["idle_commits"] > 0
    assert found["busy_commits"] > 0
    assert list(tmp_path.iterdir()) == []
    text = bench("--snapshot", 10, "--seconds", 0.05, "--directory", tmp_path, "--engine", "inline").out
    assert "engine inline, 10 keys" in text
    assert bench("--snapshot", 0).status == 1
