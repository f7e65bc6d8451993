"""Columns that a record does not hold itself: the frame of metadata, places, and bytes by their place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kraftlib.analysis.columns import binaries, repeated, timestamps
from kraftlib.analysis.reading import read_table
from kraftlib.analysis.schemas import RECORDS, RUN_LENGTH
from kraftlib.errors import StorageError
from kraftlib.metadata import TopicRecord, encode_record
from kraftlib.types import OffsetAndEpoch
from tests.analysis.logs import values_batch, write_log, write_snapshot
from tests.captured import dumped_records, logs

FRAMED = encode_record(TopicRecord(name="t"), 0)


def test_type_and_version_are_those_of_the_frame_and_null_where_there_is_none(tmp_path: Path) -> None:
    values = [FRAMED, b"\x01\x02\x00", b"\x01\x80\x01\x03", b"\x01\x02", b"\x02\x02\x00", b"\x01\x80\x80", b"text"]
    write_log(tmp_path, [values_batch(values)])
    table = read_table(tmp_path, columns="type,version")
    assert table["type"].to_pylist() == [2, 2, 128, None, None, None, None]
    assert table["version"].to_pylist() == [0, 0, 3, None, None, None, None]


@pytest.mark.parametrize("path", logs(), ids=lambda path: f"{path.parts[-4]}-{path.name}")
def test_records_as_json_are_of_the_types_that_kafkas_tool_prints(path: Path) -> None:
    import json

    found = read_table(path, columns="offset,control,record", decode="json").to_pylist()
    printed = dict(dumped_records(path))
    for row in found:
        if row["control"]:
            assert row["record"] is None
            continue
        theirs = json.loads(printed[row["offset"]].partition("payload: ")[2])
        ours = json.loads(row["record"])
        assert (ours["version"], ours["data"]) == (theirs["version"], theirs["data"])


def test_a_record_that_cannot_be_decoded_follows_the_mode(tmp_path: Path) -> None:
    write_log(tmp_path, [values_batch([FRAMED, b"\x01\x02\x63rest", b"\x01\x14\x00\x00"])])
    asked = {"decode": "TopicRecord", "columns": "offset,record,problem"}
    with pytest.raises(StorageError, match="record of offset 1 cannot be decoded: TopicRecord of version 99"):
        read_table(tmp_path, **asked)
    found = read_table(tmp_path, mode="PERMISSIVE", **asked).to_pylist()
    assert [(row["offset"], row["record"] and row["record"]["name"]) for row in found] == [(0, "t"), (1, None)]
    assert "version 99" in found[1]["problem"]
    assert read_table(tmp_path, mode="DROPMALFORMED", **asked)["offset"].to_pylist() == [0]


def test_rows_say_where_they_come_from(tmp_path: Path) -> None:
    place = tmp_path / "cluster=c" / "replica=3" / "topic-4"
    write_log(place, [values_batch([b"v"])])
    write_snapshot(place, [], at=OffsetAndEpoch(offset=1, epoch=6))
    asked = "cluster,replica,topic,partition,origin,snapshot_end_offset,snapshot_epoch,segment,position,offset"
    rows = [tuple(row.values()) for row in read_table(tmp_path, include="all", columns=asked).to_pylist()]
    assert rows[0] == ("c", "3", "topic", 4, "log", None, None, str(place / f"{0:020d}.log"), 0, 0)
    assert rows[1][:7] == ("c", "3", "topic", 4, "snapshot", 1, 6)


def test_every_column_of_the_view_can_be_read(tmp_path: Path) -> None:
    write_log(tmp_path, [values_batch([FRAMED])])
    every = pa.schema([field for field in RECORDS if field.name != RUN_LENGTH])
    table = read_table(tmp_path, columns=every.names, decode="json")
    assert table.schema == every
    assert table.num_rows == 1


def test_without_a_look_at_crcs_nothing_is_said_of_them(tmp_path: Path) -> None:
    (path,) = write_log(tmp_path, [values_batch([b"v"])])
    data = bytearray(path.read_bytes())
    data[17] ^= 1
    path.write_bytes(data)
    assert read_table(path, verifyCrc=False, columns="crc_ok,value").to_pylist() == [{"crc_ok": None, "value": b"v"}]


def test_bytes_are_taken_from_their_places() -> None:
    area = b"..ab...cde."
    found = binaries(area, np.array([2, 4, 7, 10]), np.array([2, -1, 3, 0]))
    assert found.to_pylist() == [b"ab", None, b"cde", b""]
    assert binaries(area, np.array([1]), np.array([-1])).to_pylist() == [None]


def test_a_missing_timestamp_is_null() -> None:
    assert [t and t.timestamp() for t in timestamps(np.array([-1, 1_500])).to_pylist()] == [None, 1.5]


def test_one_value_stands_for_all_rows() -> None:
    assert repeated("x", 2, pa.string()).to_pylist() == ["x", "x"]
    assert repeated(None, 2, pa.int32()).to_pylist() == [None, None]


@pytest.mark.parametrize("size", [1, 7, 100, 4_096, 4_097])
def test_values_of_one_size_are_copied_from_their_places(size: int) -> None:
    area = bytes(range(256)) * 40
    start = np.array([0, 5, len(area) - size])
    found = binaries(area, start, np.full(3, size))
    found.validate(full=True)
    assert found.to_pylist() == [area[at : at + size] for at in start.tolist()]
    assert found.type == pa.binary()
