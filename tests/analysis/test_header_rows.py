"""What headers tell of records is what the records have, and a header is not believed blindly."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.analysis.reading import read_table
from kraftlib.analysis.schemas import RUN_LENGTH, TOLD_BY_HEADERS
from kraftlib.errors import ConfigError, CorruptBatchError
from kraftlib.records.batch import CRC_START, HEADER_SIZE, Batch, assemble
from kraftlib.records.checksum import crc32c
from kraftlib.records.compression import Codec
from kraftlib.records.record import Record
from tests.analysis.logs import BASE_MS, batch_of, log_batches, values_batch, write_log


@settings(max_examples=60)
@given(log_batches(), st.data())
def test_what_headers_tell_is_what_the_records_have(batches: list[Batch], data: st.DataObject) -> None:
    """Where no column needs a record decoded none is, and the rows are the same."""
    columns = data.draw(st.lists(st.sampled_from(sorted(TOLD_BY_HEADERS)), min_size=1, unique=True))
    first, end = batches[0].base_offset, batches[-1].end_offset
    asked: dict[str, object] = data.draw(
        st.sampled_from(
            [
                {},
                {"startOffset": data.draw(st.integers(first, end)), "minEpoch": 2},
                {"endOffset": data.draw(st.integers(first, end))},
                {"startTimestamp": BASE_MS},
                {"verifyCrc": False},
                {"mode": "PERMISSIVE"},
            ]
        )
    )
    with tempfile.TemporaryDirectory() as name:
        write_log(Path(name), batches, index=data.draw(st.booleans()))
        found = read_table(name, columns=columns, **asked)
        decoded = read_table(name, columns=[*columns, "value"], **asked)
        runs = read_table(name, columns=[*columns, RUN_LENGTH], **asked)
    assert found.equals(decoded.select(columns))
    assert each_record(runs) == found.to_pylist()
    assert runs.num_rows <= len(batches) or "startTimestamp" in asked


def each_record(runs: Any) -> list[dict[str, Any]]:
    """Return the rows that runs stand for."""
    rows = []
    for row in runs.to_pylist():
        length = row.pop(RUN_LENGTH)
        rows += [{**row, **({"offset": row["offset"] + nth} if "offset" in row else {})} for nth in range(length)]
    return rows


def test_a_run_ends_where_offsets_are_missing_and_damage_is_no_run(tmp_path: Path) -> None:
    gaps = bytearray(batch_of([Record(offset, BASE_MS, None, b"v") for offset in (0, 1, 4, 5, 6)]).data)
    gaps[23:27] = (6).to_bytes(4)  # the last offset of a batch that was compacted
    gaps[17:21] = crc32c(bytes(gaps[CRC_START:])).to_bytes(4)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(gaps + values_batch([b"w"], base_offset=7).data)
    asked: dict[str, object] = {"columns": "offset,run_length", "contiguous": False}
    assert read_table(tmp_path, **asked).to_pylist() == [
        {"offset": 0, "run_length": 2},
        {"offset": 4, "run_length": 3},
        {"offset": 7, "run_length": 1},
    ]
    path.write_bytes(path.read_bytes()[:-2] + b"x\x00")
    found = read_table(tmp_path, mode="PERMISSIVE", **asked)
    assert found.to_pylist()[-1] == {"offset": 7, "run_length": None}


def test_a_run_has_no_columns_in_which_its_records_differ(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"records that are alike.* 'timestamp'"):
        read_table(tmp_path, columns="epoch,timestamp,run_length")


def test_records_that_nobody_asks_for_are_not_decoded(tmp_path: Path) -> None:
    """Of a batch with a good CRC whose records do not fit it, the header is told; its values are an error."""
    block = b"\x0c\x00\x00\x00\x01\x02a"  # a record of seven bytes that ends before its headers
    write_log(tmp_path, [values_batch([b"v"]), assemble((block,), 1, Codec.NONE, BASE_MS, BASE_MS, 1, 1)])
    assert read_table(tmp_path, columns="offset,epoch").to_pylist() == [
        {"offset": 0, "epoch": 1},
        {"offset": 1, "epoch": 1},
    ]
    with pytest.raises(CorruptBatchError, match="records that do not fit"):
        read_table(tmp_path, columns="offset,value")


def test_a_header_that_claims_more_records_than_fit_is_not_believed(tmp_path: Path) -> None:
    block = values_batch([b"v"]).data[HEADER_SIZE:]
    write_log(tmp_path, [assemble((bytes(block),), 1 << 30, Codec.NONE, BASE_MS, BASE_MS, 0, 1)])
    with pytest.raises(CorruptBatchError, match="records that do not fit"):
        read_table(tmp_path, columns="epoch")
