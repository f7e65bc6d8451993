"""What a user did wrong is told without the inner frames of kraftlib."""

from __future__ import annotations

import traceback
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from kraftlib.analysis.checkpoint_rows import RowError
from kraftlib.errors import ConfigError, CorruptBatchError
from kraftlib.spark.brief import brief
from kraftlib.spark.readers import reader_of
from kraftlib.spark.sink import checkpoint_writer
from kraftlib.spark.source import KraftDataSource
from tests.analysis.logs import values_batch, write_log


def test_a_wrong_option_and_a_missing_directory_are_told_in_one_frame() -> None:
    """Spark copies the traceback into the message that the user sees."""
    schema = StructType([StructField("offset", LongType())])
    missing = reader_of({"path": "/no/where"}, schema)
    for call in (KraftDataSource({"path": "/x", "colums": "offset"}).schema, missing.partitions):
        with pytest.raises(ConfigError) as caught:
            call()
        told = "".join(traceback.format_exception(caught.value))
        assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:] == ["called"]
        assert "direct cause" not in told
        assert "During handling" not in told


def test_damage_and_a_row_that_is_none_are_told_in_one_frame_by_the_tasks(tmp_path: Path) -> None:
    (path,) = write_log(tmp_path, [values_batch([b"v"])])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    reader = reader_of({"path": str(tmp_path)}, StructType([StructField("offset", LongType())]))
    (partition,) = reader.partitions()
    columns = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    writer = checkpoint_writer(
        {"path": str(tmp_path / "out"), "endOffset": "1", "epoch": "1"}, columns, overwrite=False
    )
    rows = pa.table({"key": [b"k"], "value": pa.array([None], pa.binary())}).to_batches()
    for call, kind in (
        (lambda: list(reader.read(partition)), CorruptBatchError),
        (lambda: writer.write(iter(rows)), RowError),
    ):
        with pytest.raises(kind) as caught:
            call()
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert [name for name in names if name != "<lambda>"][1:] == ["called"]


def test_any_other_error_keeps_its_traceback() -> None:
    @brief
    def fails() -> None:
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours") as caught:
        fails()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fails"
