"""`kraftlib doctor`, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command


def test_it_says_what_is_wrong_and_ends_with_status_1(kraftlib: Command, tmp_path: Path) -> None:
    config = tmp_path / "replica-1.toml"
    config.write_text('node_id = 1\ndirectory = "home"\nvoters = "1@127.0.0.1:9191"\nretention_bytes = 0\n')
    result = kraftlib("doctor", "-c", config)
    assert result.status == 1
    assert "error   directory" in result.out
    assert "is not formatted" in result.out
    assert result.out.splitlines()[-1].startswith("1 errors, ")

    assert kraftlib("format", "-c", config, "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg").status == 0
    result = kraftlib("doctor", "-c", config, "--output", "json")
    found = [json.loads(line) for line in result.out.splitlines()]
    assert result.status == 0
    assert {row["subject"] for row in found} >= {"libraries", "directory", "disk", "access"}
    assert {row["grade"] for row in found} <= {"ok", "warning"}


def test_a_configuration_that_cannot_be_read_is_one_line(kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib("doctor", "-c", tmp_path / "none.toml")
    assert (result.status, "cannot read the configuration" in result.err) == (1, True)
