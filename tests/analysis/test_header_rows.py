"""What headers tell of records is what the records have, and a header is not believed blindly."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.analysis.header_rows import TOLD_BY_HEADERS
from kraftlib.analysis.reading import read_table
from kraftlib.errors import CorruptBatchError
from kraftlib.records.batch import HEADER_SIZE, Batch, assemble
from kraftlib.records.compression import Codec
from tests.analysis.logs import BASE_MS, log_batches, values_batch, write_log


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
    assert found.equals(decoded.select(columns))


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
