"""A value may hold a whole record batch, CRC and all, as metadata about logs does. It is never taken for one.

A reader that searched for something that looks like a batch would find it, and would return rows that nobody wrote.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.analysis.audit import audit
from kraftlib.analysis.compacting import state_rows
from kraftlib.analysis.reading import read_table
from kraftlib.errors import CorruptBatchError
from kraftlib.records.compression import Codec
from tests.analysis.logs import values_batch, write_log

FALSE = bytes(values_batch([b"false"] * 3, base_offset=30, epoch=1).data)
"""A batch that would fit into the log that it is embedded in: the right offset, the right epoch."""

TRUE = [b"true " + FALSE * 2] * 10
LENGTH_AT = 8


def a_log(directory: Path, *, codec: Codec = Codec.NONE, index: bool = True) -> Path:
    """Write 20 batches of 10 records, each record with two batches in it."""
    batches = [values_batch(TRUE, base_offset=base, codec=codec) for base in range(0, 200, 10)]
    return write_log(directory, batches, cuts=[12], index=index)[0]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("index", [True, False])
def test_however_a_log_is_split_its_values_stay_values(tmp_path: Path, codec: Codec, index: bool) -> None:
    a_log(tmp_path, codec=codec, index=index)
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        for size in (1, 200, 3_000, 8 << 20):
            options = {"chunkBytes": size, "maxPartitionBytes": size, "mode": mode}
            rows = read_table(tmp_path, columns="offset,value", **options)
            assert rows["offset"].to_pylist() == list(range(200))
            assert set(rows["value"].to_pylist()) == {TRUE[0]}
    assert audit(tmp_path).findings == ()
    assert len(state_rows(tmp_path)) == 200


@settings(max_examples=60)
@given(number=st.integers(0, 11), length=st.integers(0, 2**31 - 1), chunk=st.sampled_from([1, 700, 8 << 20]))
def test_behind_a_wrong_length_nothing_is_searched_for(
    tmp_path_factory: pytest.TempPathFactory, number: int, length: int, chunk: int
) -> None:
    """The length of a batch is outside of its CRC. Wherever it leads, into a value for instance, no row is made up."""
    directory = tmp_path_factory.mktemp("log")
    path = a_log(directory)
    data = bytearray(path.read_bytes())
    at = sum(values_batch(TRUE, base_offset=0).size for _ in range(number))
    same = data[at + LENGTH_AT : at + LENGTH_AT + 4] == length.to_bytes(4, "big")
    data[at + LENGTH_AT : at + LENGTH_AT + 4] = length.to_bytes(4, "big")
    path.write_bytes(data)

    rows = read_table(directory, columns="offset,value,problem", mode="PERMISSIVE", chunkBytes=chunk).to_pylist()
    assert {row["value"] for row in rows if row["problem"] is None} <= {TRUE[0]}
    assert any(row["problem"] for row in rows) or same
    if not same:
        with pytest.raises(CorruptBatchError, match="byte"):
            read_table(directory, columns="offset,value", chunkBytes=chunk)


def test_a_length_that_leads_exactly_to_an_embedded_batch_is_found_out(tmp_path: Path) -> None:
    path = a_log(tmp_path, index=False)
    data = bytearray(path.read_bytes())
    embedded = data.index(FALSE)
    data[LENGTH_AT : LENGTH_AT + 4] = (embedded - LENGTH_AT - 4).to_bytes(4, "big")
    path.write_bytes(data)

    rows = read_table(tmp_path, columns="offset,value,problem", mode="PERMISSIVE").to_pylist()
    assert b"false" not in {row["value"] for row in rows if row["problem"] is None}
    with pytest.raises(CorruptBatchError):
        read_table(tmp_path, columns="offset,value")
