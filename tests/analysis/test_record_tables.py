"""How chunks become tables; what they hold is compared with the plain reader in the tests of reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.analysis import record_tables
from kraftlib.analysis.chunks import chunks
from kraftlib.analysis.reading import options_of, schema_for
from kraftlib.analysis.record_tables import RecordColumns
from kraftlib.analysis.splits import plan
from kraftlib.errors import InvariantError
from kraftlib.records.compression import Codec
from tests.analysis.logs import values_batch, write_log


def test_a_group_of_inflated_batches_stays_below_the_limit(tmp_path: Path) -> None:
    write_log(tmp_path, [values_batch([bytes(40_000)], base_offset=n, codec=Codec.ZSTD) for n in range(9)])
    options = options_of(tmp_path, maxInflatedBytes=100_000)
    ((split,),) = plan(options)
    (chunk,) = chunks(split, options)
    tables = list(RecordColumns(split, options, schema_for(options)).tables(chunk))
    assert [table.num_rows for table in tables] == [2, 2, 2, 2, 1]


def test_a_block_that_only_one_of_the_readers_refuses_is_a_bug_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path, [values_batch([b"v"])])
    options = options_of(tmp_path)
    ((split,),) = plan(options)
    (chunk,) = chunks(split, options)
    fields, _ = record_tables.decode(record_tables.Blocks(
        area=chunk.data, start=chunk.headers.start, end=chunk.headers.start, count=chunk.headers.count * 0,
        last_delta=chunk.headers.count,
    ))  # fmt: skip
    monkeypatch.setattr(record_tables, "decode", lambda blocks: (fields, chunk.headers.start))
    with pytest.raises(InvariantError, match="refused by one reader"):
        list(RecordColumns(split, options, schema_for(options)).tables(chunk))
