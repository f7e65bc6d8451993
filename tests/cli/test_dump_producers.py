"""Producer snapshots: empty ones of KRaft, and others."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from kraftlib.records.checksum import crc32c
from tests.cli.conftest import Command

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.snapshot")), ids=lambda path: str(path.relative_to(DATA)))
def test_those_of_kraft_are_empty(path: Path, kraftlib: Command) -> None:
    result = kraftlib("dump-log", path)

    assert (result.status, result.out, result.err) == (0, f"Dumping {path}\n", "")


def snapshot(directory: Path, *entries: tuple[int, ...], version: int = 1, extra: bytes = b"") -> Path:
    body = struct.pack(">i", len(entries)) + b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries) + extra
    path = directory / f"{7:020}.snapshot"
    path.write_bytes(struct.pack(">hI", version, crc32c(body)) + body)
    return path


def test_a_producer_is_shown_with_what_is_known_of_it(kraftlib: Command, tmp_path: Path) -> None:
    path = snapshot(tmp_path, (1_001, 2, 3, 4, 5, 6, 7, -1))

    assert kraftlib("dump-log", path).out.splitlines()[1].startswith("producerId: 1001 producerEpoch: 2 ")
    assert json.loads(kraftlib("dump-log", "--output", "json", path).out)["current_txn_first_offset"] == -1


def test_damage_is_named(kraftlib: Command, tmp_path: Path) -> None:
    wrong = [(snapshot, {"version": 2}, "version 2"), (snapshot, {"extra": b"x"}, "which do not fit 0 entries")]
    for make, how, says in wrong:
        result = kraftlib("dump-log", make(tmp_path, **how))  # type: ignore[arg-type]
        assert result.status == 1
        assert says in result.err


def test_a_wrong_checksum_or_too_few_bytes_are_named(kraftlib: Command, tmp_path: Path) -> None:
    path = snapshot(tmp_path)
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    for content, says in ((bytes(data), "does not fit its checksum"), (b"\0\1", "has 2 bytes")):
        path.write_bytes(content)
        result = kraftlib("dump-log", path)
        assert result.status == 1
        assert says in result.err
