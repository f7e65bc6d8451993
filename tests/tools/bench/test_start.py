"""`dev.py bench --start`: new processes, each of which imports kraftlib and starts a replica."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command as Bench


def test_a_replica_is_imported_started_and_elected_in_this_order(bench: Bench, tmp_path: Path) -> None:
    result = bench("--start", 2, "--directory", tmp_path, "--output", "json")

    found = json.loads(result.out)
    assert found["times"] == 2
    assert 0 < found["import_ms"]["min"] <= found["started_ms"]["min"] <= found["leads_ms"]["min"]
    assert all(found[step]["min"] <= found[step]["median"] <= found[step]["max"] for step in found if step != "times")
    assert "the replica leads" in bench("--start", 1, "--directory", tmp_path).out


def test_no_time_is_refused(bench: Bench, tmp_path: Path) -> None:
    result = bench("--start", 0, "--directory", tmp_path)

    assert result.status != 0
    assert "at least one time" in result.err
