"""`kraftlib verify-dir`: exit status 1 and the place, where something is damaged."""

from __future__ import annotations

import json
from pathlib import Path

from kraftlib.storage import names
from tests.cli.conftest import Command
from tests.storage.replicas import make_replica, partition_of


def test_a_whole_directory(kraftlib: Command, tmp_path: Path) -> None:
    make_replica(tmp_path)
    result = kraftlib("verify-dir", tmp_path)
    assert result.status == 0
    assert f"ok      {names.PARTITION_DIRECTORY}/{names.segment_name(0)}: 21 records, offsets 0 to 21" in result.out
    assert "all of them whole" in result.err
    assert kraftlib("verify-dir", tmp_path, "--quiet").out == ""


def test_damage_is_named_by_file_and_byte(kraftlib: Command, tmp_path: Path) -> None:
    segment = partition_of(make_replica(tmp_path)) / names.segment_name(0)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    result = kraftlib("verify-dir", tmp_path, "--quiet", "--output", "json")
    assert result.status == 1
    (line,) = result.out.splitlines()
    found = json.loads(line)
    assert (found["path"], found["verdict"]) == (str(segment), "damaged")
    assert 0 < found["position"] <= len(data) // 2
    assert (
        f"damaged {names.PARTITION_DIRECTORY}/{segment.name} at byte {found['position']}"
        in kraftlib("verify-dir", tmp_path).out
    )


def test_what_is_no_replicas_directory_is_said_so(kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib("verify-dir", tmp_path)
    assert result.status == 1
    assert "meta.properties" in result.err
