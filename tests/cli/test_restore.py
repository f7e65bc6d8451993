"""`kraftlib restore` with a list of voters; what it makes runs in tests/cli/test_backup.py."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command
from tests.storage.replicas import controllers, make_replica


def test_every_voter_is_restored_with_the_same_list(kraftlib: Command, tmp_path: Path) -> None:
    make_replica(tmp_path / "old", voters=controllers(1, 2, 3))
    assert kraftlib("backup", tmp_path / "old", tmp_path / "b").status == 0
    listed = ",".join(map(str, controllers(4, 5)))
    ends = set()
    for node_id in (4, 5):
        result = kraftlib(
            "restore", tmp_path / "b", tmp_path / str(node_id), "--node-id", node_id, "-t", "new", "-I", listed,
            "--output", "json",
        )  # fmt: skip
        assert result.status == 0, result.err
        told = json.loads(result.out)
        ends.add((told["end_offset"], told["end_epoch"]))
    assert len(ends) == 1
    result = kraftlib("restore", tmp_path / "b", tmp_path / "6", "--node-id", 6, "-t", "new", "-I", listed)
    assert result.status == 1
    assert "node_id=6 is not among the voters" in result.err
    assert kraftlib("restore", tmp_path / "b", tmp_path / "6", "--node-id", 6, "-t", "n", "--voters", "").status == 2
