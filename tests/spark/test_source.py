"""The format `kraft` gives the rows of the single-process reader, pushed down or not, and says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from kraftlib import spark as kraft
from kraftlib.analysis.reading import read_table
from kraftlib.spark.sessions import PUSHDOWN
from tests.captured import DATA

NODE = DATA / "kafka-4.3.1" / "n1"


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a DataFrame in an order of their own."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def twin(path: Path, **options: object) -> list[tuple[Any, ...]]:
    """Return what the single-process reader gives, in the same form; timestamps as Spark's collect gives them."""
    table = read_table(path, **options)
    columns = []
    for name in table.column_names:
        values = table[name].to_pylist()
        if pa.types.is_timestamp(table.schema.field(name).type):
            values = [None if value is None else value.astimezone().replace(tzinfo=None) for value in values]
        columns.append(values)
    return sorted(zip(*columns, strict=True), key=repr)


@pytest.mark.parametrize("view", ["records", "batches", "files"])
@pytest.mark.parametrize("node", ["kafka-4.3.1/n1", "kafka-4.3.1/n4", "kafka-3.9.2/n1"])
def test_the_views_of_real_directories_are_those_of_the_twin(spark: Any, node: str, view: str) -> None:
    assert rows(kraft.read(spark, DATA / node, view=view, include="all")) == twin(DATA / node, view=view, include="all")


def test_the_format_answers_sql_over_replicas_told_apart_by_their_labels(spark: Any) -> None:
    kraft.register(spark)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW log USING kraft OPTIONS (path '{DATA}/kafka-4.3.1/n*')")
    found = spark.sql("SELECT replica, min(offset), max(offset), count(*) FROM log GROUP BY replica ORDER BY replica")
    assert [tuple(row) for row in found.collect()] == [("1", 0, 274, 275), ("4", 159, 273, 115)]


def test_records_of_kafkas_metadata_come_as_structs(spark: Any) -> None:
    topics = kraft.read(spark, NODE, decode="TopicRecord").selectExpr("offset", "record.name", "record.topicId")
    assert topics.orderBy("offset").first() == (46, "events-0", "AooEFDjyQVW5FSzULEPZMw")


DECODERS = """
import pyarrow as pa
import pyarrow.compute as pc

def sizes(values):
    return pa.StructArray.from_arrays([pc.binary_length(values), values], names=["size", "value"])

def of_a_type_that_spark_has_not(values):
    return pa.StructArray.from_arrays([values.cast(pa.large_binary())], names=["value"])
"""

DECODER_OF_TOPICS = """
import pyarrow as pa

def topics(values):
    if any(value[1] != 2 for value in values.to_pylist()):
        raise ValueError("a record of another type")
    return pa.StructArray.from_arrays([values], names=["value"])
"""


def test_a_decoder_that_executors_can_import_makes_structs_of_values(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "decoders_of_a_test.py").write_text(DECODERS)
    spark.sparkContext.addPyFile(str(tmp_path / "decoders_of_a_test.py"))
    frame = kraft.read(spark, NODE, valueDecoder="decoders_of_a_test:sizes", columns="offset,value,control,record")

    assert frame.count() == 275
    assert frame.where("control AND record IS NOT NULL").count() == 0
    assert frame.where("NOT control AND (record.size <> length(value) OR record.value <> value)").count() == 0
    assert frame.where("NOT control AND record IS NULL").count() == 0
    with pytest.raises(PySparkException, match="Spark gets no columns of type large_binary"):
        kraft.read(spark, NODE, valueDecoder="decoders_of_a_test:of_a_type_that_spark_has_not").collect()


def test_a_narrower_schema_is_read_narrower(spark: Any) -> None:
    kraft.register(spark)
    frame = spark.read.format("kraft").schema("value binary, offset bigint").load(str(NODE))
    assert frame.columns == ["value", "offset"]
    assert rows(frame) == twin(NODE, columns="value,offset")


@pytest.mark.parametrize(
    "condition",
    [
        "offset = 100",
        "offset >= 37 AND offset < 120",
        "offset IN (3, 200, 274)",
        "offset > 270 OR epoch = 1",
        "epoch BETWEEN 2 AND 3",
        "timestamp > '2026-11-21 10:09:30.0005'",
        "timestamp = '2026-11-21 10:09:06.971'",
        "offset = 99999",
        "offset < 0",
        "epoch = 2 AND offset IS NOT NULL AND control",
        "offset <=> 5",
        "NOT (offset > 3)",
        "type = 2",
        "type IN (2, 3, NULL) AND version >= 0 AND offset > 50",
        "type IS NULL AND NOT control",
        "type = 2 AND length(value) > 20",
        "key = 'k' OR type = 3",
        "key IS NOT NULL AND control_type = 'leader_change'",
        "key > X'0000' AND origin = 'log'",
        "origin = 'snapshot'",
        "type = 99999",
    ],
)
def test_a_filter_gives_the_same_rows_pushed_down_or_not(spark: Any, condition: str) -> None:
    options = {"include": "all", "columns": "offset,epoch,timestamp,control,control_type,type,version,key,origin,value"}
    found = kraft.lookup(spark, NODE, condition, **options)
    assert rows(found) == rows(kraft.read(spark, NODE, **options).where(condition))


def test_a_lookup_of_one_type_decodes_no_other(spark: Any, tmp_path: Path) -> None:
    """The decoder refuses every value of another type, and is not asked."""
    (tmp_path / "decoders_of_one_type.py").write_text(DECODER_OF_TOPICS)
    spark.sparkContext.addPyFile(str(tmp_path / "decoders_of_one_type.py"))
    options = {"columns": "offset,type,value,record", "valueDecoder": "decoders_of_one_type:topics"}

    found = kraft.lookup(spark, NODE, "type = 2", **options)

    assert found.count() == kraft.read(spark, NODE, columns="type").where("type = 2").count() > 0
    with pytest.raises(PySparkException, match="another type"):
        kraft.read(spark, NODE, **options).where("type = 2").collect()


def test_a_lookup_plans_one_task_and_can_be_asked_again(spark: Any) -> None:
    found = kraft.lookup(spark, NODE, "offset = 100", maxPartitionBytes="8k")
    assert found.rdd.getNumPartitions() == 1 < kraft.read(spark, NODE, maxPartitionBytes="8k").rdd.getNumPartitions()
    assert [found.count(), found.where("offset = 7").count(), found.unionAll(found).count()] == [1, 0, 2]


def test_one_frame_answers_any_questions_in_any_order_and_several_in_one(spark: Any) -> None:
    """Spark keeps what it planned for a filter that was pushed down, and takes it for the answer to the next query."""
    frame = kraft.read(spark, NODE, columns="offset,epoch", maxPartitionBytes="8k")
    one, other = frame.where("offset = 100"), frame.where("offset = 200")
    assert [one.count(), frame.count(), other.count(), frame.count()] == [1, 275, 1, 275]
    assert [one.unionAll(other).count(), frame.unionAll(one).count(), frame.join(one, "offset").count()] == [2, 276, 1]
    frame.createOrReplaceTempView("asked")
    both = "SELECT (SELECT count(*) FROM asked WHERE offset = 3), (SELECT count(*) FROM asked)"
    assert tuple(spark.sql(both).first()) == (1, 275)


def test_without_pushdown_in_the_session_a_lookup_runs_all_the_same(spark: Any) -> None:
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert kraft.lookup(spark, NODE, "offset = 7").count() == 1
    finally:
        spark.conf.set(PUSHDOWN, "true")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startOfset": "3"}, "did you mean 'startOffset'"),
        ({"view": "record"}, "expected one of records, batches, files"),
        ({"columns": "offset,vlaue"}, "did you mean 'value'"),
        ({"mode": "lenient"}, "expected one of FAILFAST"),
    ],
)
def test_a_wrong_option_is_refused_and_the_remedy_is_named(spark: Any, options: dict[str, str], message: str) -> None:
    kraft.register(spark)
    with pytest.raises(PySparkException, match=message):
        spark.read.format("kraft").options(**options).load(str(NODE)).count()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("offset int", r"'offset' is bigint, not int; read it so, and cast\(offset as int\)"),
        ("ofset bigint", "did you mean 'offset'"),
    ],
)
def test_a_schema_that_is_not_ours_is_refused(spark: Any, schema: str, message: str) -> None:
    kraft.register(spark)
    with pytest.raises(PySparkException, match=message):
        spark.read.format("kraft").schema(schema).load(str(NODE)).count()


def test_damage_reaches_the_user_with_file_position_and_offset(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    data = bytearray((NODE / "__cluster_metadata-0" / path.name).read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    with pytest.raises(PySparkException, match=rf"{path}, byte 622: the batch of offset 12 has CRC"):
        kraft.read(spark, path).count()
    flagged = kraft.read(spark, path, mode="PERMISSIVE").where("problem IS NOT NULL").collect()
    assert [(row.offset, row.crc_ok, row.value) for row in flagged] == [(12, False, None)]


def test_a_pinned_log_stays_as_it_was_when_it_grows(spark: Any, tmp_path: Path) -> None:
    data = (NODE / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes()
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data[:622])
    held = kraft.pin(tmp_path)
    path.write_bytes(data)
    assert kraft.read(spark, tmp_path, pin=held).count() == 12
    assert kraft.read(spark, tmp_path).count() == 275


def test_an_empty_selection_has_no_rows(spark: Any) -> None:
    assert kraft.read(spark, NODE, startOffset=60, endOffset=60).count() == 0
