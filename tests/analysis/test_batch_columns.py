"""A row a batch, a row a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.analysis.reading import read_table
from kraftlib.analysis.schemas import BATCHES
from kraftlib.records.batch import read_batches
from kraftlib.records.compression import Codec
from kraftlib.types import OffsetAndEpoch
from tests.analysis.logs import values_batch, write_log, write_snapshot
from tests.captured import logs


@pytest.mark.parametrize("path", logs(), ids=lambda path: f"{path.parts[-4]}-{path.name}")
def test_batches_are_those_of_the_plain_reader(path: Path) -> None:
    table = read_table(path, view="batches")
    assert table.schema == BATCHES
    position = 0
    for row, batch in zip(table.to_pylist(), read_batches(path.read_bytes()), strict=True):
        assert row["position"] == position
        assert (row["base_offset"], row["last_offset"], row["count"]) == (
            batch.base_offset, batch.last_offset, batch.record_count,
        )  # fmt: skip
        assert (row["epoch"], row["length"], row["crc"]) == (batch.epoch, batch.size, batch.crc)
        assert (row["control"], row["codec"], row["attributes"]) == (batch.is_control, "none", batch.attributes)
        assert (row["crc_ok"], row["chain_ok"], row["problem"]) == (True, True, None)
        assert int(row["max_timestamp"].timestamp() * 1000) == batch.max_timestamp
        position += batch.size


def test_damaged_batches_stand_there_with_their_problem_and_a_gap_without_a_length(tmp_path: Path) -> None:
    batches = [values_batch([bytes(3_000)], base_offset=n, codec=Codec.NONE) for n in range(8)]
    (path,) = write_log(tmp_path, batches, index=True)
    data = bytearray(path.read_bytes())
    size = batches[0].size
    data[size + 100] ^= 1
    data[4 * size + 16] = 7
    path.write_bytes(data)
    rows = read_table(tmp_path, view="batches", mode="PERMISSIVE").to_pylist()
    assert [row["base_offset"] for row in rows if not row["problem"]] == [0, 2, 3, 5, 6, 7]
    flipped, gap = (row for row in rows if row["problem"])
    assert (flipped["base_offset"], flipped["crc_ok"], flipped["chain_ok"]) == (1, False, True)
    assert (gap["position"], gap["length"], gap["chain_ok"]) == (4 * size, None, False)
    assert len(read_table(tmp_path, view="batches", mode="DROPMALFORMED")) == 6


def test_bounds_keep_the_batches_that_reach_into_them(tmp_path: Path) -> None:
    write_log(tmp_path, [values_batch([b"a", b"b"], base_offset=n, epoch=n) for n in range(0, 10, 2)])
    asked = {"view": "batches", "columns": "base_offset"}
    assert read_table(tmp_path, startOffset=3, endOffset=5, **asked)["base_offset"].to_pylist() == [2, 4]
    assert read_table(tmp_path, minEpoch=6, **asked)["base_offset"].to_pylist() == [6, 8]


def test_a_file_says_what_it_holds_and_whether_its_end_is_sound(tmp_path: Path) -> None:
    batches = [values_batch([b"a", b"b"], base_offset=n) for n in range(0, 6, 2)]
    first, last = write_log(tmp_path, batches, cuts=[1])
    last.write_bytes(last.read_bytes() + b"torn")
    write_snapshot(tmp_path, [b"s"], at=OffsetAndEpoch(offset=2, epoch=1))
    write_snapshot(tmp_path, [b"s"], at=OffsetAndEpoch(offset=4, epoch=1), footer=False)

    rows = {Path(row["path"]).name: row for row in read_table(tmp_path, view="files").to_pylist()}

    assert [(r["kind"], r["first_offset"], r["last_offset"], r["batches"], r["complete"]) for r in rows.values()] == [
        ("log", 0, 1, 1, True),
        ("log", 2, 5, 2, False),
        ("snapshot", 0, 2, 3, True),
        ("snapshot", 0, 1, 2, False),
    ]
    assert rows[first.name]["first_timestamp"] == rows[first.name]["last_timestamp"]
    assert "no footer" in rows[f"{4:020d}-{1:010d}.checkpoint"]["problem"]
