"""Stretches hold all that an audit reads of the batches, and are the same bytes where the batches are the same."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from kraftlib.analysis import audit_stretches
from kraftlib.analysis.audit import audit_options
from kraftlib.analysis.audit_stretches import COLUMNS, EDGE, STRETCHES, stretches, told_apart
from kraftlib.analysis.reading import read, schema_for
from tests.analysis.faults import KINDS, inject, make_replicas, some_batches


@pytest.mark.parametrize("offsets", [1, 24, 100_000])
def test_what_is_told_apart_is_what_was_read_of_damaged_logs_too(
    offsets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_stretches, "STRETCH", offsets)
    places = make_replicas(tmp_path, some_batches(130), cuts=(20, 90))
    chance = random.Random(offsets)
    for number in sorted(chance.sample(range(0, 130, 4), 20), reverse=True):
        inject(chance.choice(places), number, chance.choice(KINDS), chance=chance)
    options = audit_options(tmp_path, chunkBytes="4k")
    rows = pa.Table.from_batches(read(options), schema=schema_for(options))

    found = pa.Table.from_batches(stretches(read(options)), schema=STRETCHES)

    assert told_apart(found.to_pylist(), schema_for(options)).equals(rows)
    assert sum(found["batches"].to_pylist()) == len(rows)
    assert set(COLUMNS) == set(rows.column_names)


def test_equal_batches_are_equal_bytes_wherever_chunks_end(tmp_path: Path) -> None:
    make_replicas(tmp_path, some_batches(60), cuts=(20, 40))
    contents = []
    for replica, chunk_bytes in ((1, "2k"), (2, "1m"), (2, "2k")):
        options = audit_options(tmp_path / "cluster=c" / f"replica={replica}", chunkBytes=chunk_bytes)
        contents.append([row["content"] for batch in stretches(read(options)) for row in batch.to_pylist()])
    assert contents[1] == contents[2]
    assert b"".join(contents[0]) == b"".join(contents[1])


def test_a_row_at_the_end_of_each_file_says_how_far_it_can_be_believed(tmp_path: Path) -> None:
    places = make_replicas(tmp_path, some_batches(60), replicas=2, cuts=(20,))
    inject(places[1], 59, "crc", chance=random.Random(1))
    options = audit_options(tmp_path)
    rows = [row for batch in stretches(read(options)) for row in batch.to_pylist()]

    edges = [(row["replica"], row["last_offset"], row["batches"]) for row in rows if row["stretch"] == EDGE]
    assert edges == [("1", 479, 0), ("2", 159, 0), ("2", 471, 0)]
    assert {row["last_offset"] for row in rows if row["stretch"] != EDGE} == {None}


def test_nothing_is_told_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(b"")
    options = audit_options(tmp_path)

    assert list(stretches(iter([schema_for(options).empty_table().to_batches()]).__next__())) == []
    assert len(told_apart([], schema_for(options))) == 0
