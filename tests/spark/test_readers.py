"""The readers, without a JVM: how filters become bounds and conditions, and which are handed back to Spark."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, InputPartition, LessThan, Not, StringStartsWith
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kraftlib.analysis.conditions import Pruning
from kraftlib.analysis.options import Range
from kraftlib.analysis.reading import options_of, read_table, schema_for
from kraftlib.errors import ConfigError
from kraftlib.spark.readers import PushdownReader, Reader, Splits, asked, narrowed, pruning_of, reader_of
from tests.captured import DATA

NODE = DATA / "kafka-4.3.1" / "n1"
OFFSETS = StructType([StructField("offset", LongType())])


def test_a_reader_plans_and_reads_the_columns_of_the_schema_after_it_was_pickled() -> None:
    reader = reader_of({"path": str(NODE), "maxPartitionBytes": "8k"}, OFFSETS)
    assert type(reader) is Reader
    planned = [pickle.loads(pickle.dumps(one)) for one in reader.partitions()]
    assert len(planned) > 1
    assert all(isinstance(one, Splits) for one in planned)
    tables = [table for one in planned for table in pickle.loads(pickle.dumps(reader)).read(one)]
    assert pa.Table.from_batches(tables) == read_table(NODE, columns="offset").combine_chunks()


def test_spark_makes_up_a_partition_where_none_was_planned_and_it_holds_no_row() -> None:
    assert list(reader_of({"path": str(NODE)}, OFFSETS).read(InputPartition(None))) == []


def test_a_missing_path_and_a_column_of_another_type_are_errors_that_name_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no path: \.load\(path\)"):
        asked({})
    with pytest.raises(ConfigError, match="'offset' is bigint, not string; read it so, and cast"):
        narrowed(asked({"path": str(tmp_path)}), StructType([StructField("offset", StringType())]))


@pytest.mark.parametrize(
    ("one", "bounds", "is_taken_over"),
    [
        (EqualTo(("offset",), 7), Range(start=7, end=8), True),
        (In(("offset",), [9, 3]), Range(start=3, end=10), True),
        (GreaterThan(("offset",), 7), Range(start=7), True),
        (LessThan(("offset",), 7), Range(end=8), True),
        (EqualTo(("offset",), "7"), Range(), False),
        (Not(EqualTo(("offset",), 7)), Range(), False),
        (StringStartsWith(("origin",), "l"), Range(), False),
        (EqualTo(("record", "name"), "x"), Range(), False),
    ],
)
def test_a_filter_bounds_what_is_read_and_is_handed_back_unless_it_was_done_to_the_row(
    one: Filter, bounds: Range, is_taken_over: bool
) -> None:
    pruning, left = pruning_of([one], "records", schema_for(options_of(NODE)))
    assert pruning.bounds.offset == bounds
    assert left == ([] if is_taken_over else [one])
    assert len(pruning.conditions) == is_taken_over


def test_a_filter_on_runs_is_left_to_spark_since_it_would_cut_them() -> None:
    filters: list[Filter] = [EqualTo(("offset",), 7)]
    schema = schema_for(options_of(NODE, columns="offset,run_length"))
    assert pruning_of(filters, "records", schema) == (Pruning(), filters)


def test_a_time_is_rounded_to_whole_milliseconds_so_its_bound_keeps_the_one_it_is_in() -> None:
    moment = datetime(2026, 11, 21, 10, 0, 0, 1_999, tzinfo=UTC)
    pruning, _ = pruning_of([GreaterThan(("timestamp",), moment)], "records", schema_for(options_of(NODE)))
    assert pruning.bounds.timestamp.start == int(moment.timestamp() * 1_000)


def test_a_reader_with_pushdown_reads_only_the_rows_that_pass() -> None:
    reader = reader_of({"path": str(NODE), "pushdown": "once"}, OFFSETS)
    assert isinstance(reader, PushdownReader)
    assert list(reader.pushFilters([EqualTo(("offset",), 100)])) == []
    (one,) = reader.partitions()
    assert pa.Table.from_batches(list(reader.read(one)))["offset"].to_pylist() == [100]
