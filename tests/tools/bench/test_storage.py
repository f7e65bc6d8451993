"""What `dev.py bench --storage` measures: figures that can be, of a log that is read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.bench.__main__ import main
from tools.bench.storage import as_text, measure_storage


def test_flushes_and_openings_are_measured(tmp_path: Path) -> None:
    said: list[str] = []

    found = measure_storage(tmp_path, 2, say=said.append)

    assert [row["bytes"] for row in found["flush"]] == [4_096, 65_536, 1_048_576]
    assert all(row["log_ms"] > 0 and row["file_ms"] > 0 and row["ratio"] > 0 for row in found["flush"])
    assert [row["bytes"] for row in found["ahead"]] == [4_096, 65_536, 1_048_576]
    assert all(row[f"{name}_ms"] > 0 for row in found["ahead"] for name in ("grows", "reserved", "zeros", "noted"))
    assert [row["callers"] for row in found["alone"]] == [1, 16, 256]
    assert all(row["never"] > 0 and row["always"] > 0 for row in found["alone"])
    assert [row["after"] for row in found["open"]] == ["killed", "closed", "notes lost"]
    assert said
    assert "a log of 2 MiB opens" in as_text(found)


def test_only_a_log_whose_notes_are_lost_is_read_from_its_beginning(tmp_path: Path) -> None:
    found = {row["after"]: row["mib_read"] for row in measure_storage(tmp_path, 3)["open"]}

    assert found["closed"] == 0
    assert found["notes lost"] >= 2.5


def test_the_command_prints_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--storage", "1", "--directory", str(tmp_path), "--output", "json"]) == 0

    assert json.loads(capsys.readouterr().out)["mib"] == 1


def test_no_mib_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--storage", "0", "--directory", str(tmp_path)]) != 0
    assert "at least one MiB" in capsys.readouterr().err
