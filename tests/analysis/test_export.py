"""Parquet holds what the log holds."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kraftlib.analysis.export import to_parquet
from kraftlib.analysis.reading import read_table
from kraftlib.errors import ConfigError
from tests.analysis.logs import values_batch, write_log
from tests.captured import DATA

NODE = DATA / "kafka-4.3.1" / "n1"


def test_rows_lie_by_cluster_and_bucket(tmp_path: Path) -> None:
    assert to_parquet(NODE, tmp_path / "out", bucket=100) == 275
    found = [pq.ParquetFile(path).read() for path in sorted(tmp_path.glob("out/cluster=*/bucket=*/*.parquet"))]
    assert [table.num_rows for table in found] == [100, 100, 75]
    expected = read_table(NODE).drop_columns(["cluster"])
    for number, table in enumerate(found):
        assert table.equals(expected.slice(100 * number, 100).combine_chunks().cast(table.schema))


def test_a_log_of_no_cluster_has_a_directory_all_the_same(tmp_path: Path) -> None:
    write_log(tmp_path / "log", [values_batch([b"v"])])
    to_parquet(tmp_path / "log", tmp_path / "out")
    assert list(tmp_path.glob("out/cluster=__HIVE_DEFAULT_PARTITION__/bucket=0/*"))


def test_what_exists_is_left_alone_and_a_bucket_holds_something(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists: name a new directory"):
        to_parquet(NODE, tmp_path)
    with pytest.raises(ConfigError, match="bucket=0"):
        to_parquet(NODE, tmp_path / "out", bucket=0)


def test_a_damaged_range_of_unknown_offsets_has_its_row_too(tmp_path: Path) -> None:
    (path,) = write_log(tmp_path / "topic-0", [values_batch([b"v"])])
    path.write_bytes(b"\1" * 300)
    options = {"mode": "PERMISSIVE", "contiguous": False}
    expected = read_table(tmp_path / "topic-0", **options)
    assert expected["offset"].to_pylist() == [None]

    assert to_parquet(tmp_path / "topic-0", tmp_path / "out", **options) == 1
    (written,) = tmp_path.glob("out/cluster=*/bucket=__HIVE_DEFAULT_PARTITION__/*.parquet")
    assert pq.ParquetFile(written).read()["problem"].to_pylist() == expected["problem"].to_pylist()
