"""Holds outlive a restart; a file that cannot be used costs the readers their hold and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib.storage import names
from kraftlib.storage.log.holds_file import StoredHold, read_holds, write_holds

HOLDS = [StoredHold(name="feed", offset=7, max_bytes=100), StoredHold(name="ärchive", offset=0, max_bytes=2**40)]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    assert read_holds(tmp_path) == []
    write_holds(tmp_path, HOLDS)
    assert read_holds(tmp_path) == HOLDS
    assert (tmp_path / names.HOLDS).stat().st_mode & 0o777 == 0o600
    write_holds(tmp_path, [])
    assert read_holds(tmp_path) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b'{"version": 1}',
        b'{"version": 1, "holds": [{"name": "x"}]}',
        b'{"version": 1, "holds": [{"name": "x", "offset": -1, "max_bytes": 1}]}',
        b'{"version": 1, "holds": [{"name": "", "offset": 1, "max_bytes": 1}]}',
        b'{"version": 1, "holds": [{"name": "x", "offset": "1", "max_bytes": 1}]}',
        b'{"version": 1, "holds": [7]}',
        b"x" * (2 << 20),
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_as_good_as_none_and_is_replaced(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / names.HOLDS).write_bytes(data)
    assert read_holds(tmp_path) == []
    assert names.HOLDS in caplog.text
    if len(data) < 1 << 20:
        write_holds(tmp_path, HOLDS)
        assert read_holds(tmp_path) == HOLDS


def test_a_file_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    newer = json.dumps({"version": 2, "readers": []}).encode()
    (tmp_path / names.HOLDS).write_bytes(newer)
    assert read_holds(tmp_path) == []
    write_holds(tmp_path, HOLDS)
    assert (tmp_path / names.HOLDS).read_bytes() == newer
