"""Opening tables checks what is asked for before Spark does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlib import spark as kraft
from kraftlib.errors import ConfigError
from kraftlib.spark.sessions import PUSHDOWN
from tests.captured import DATA


def test_a_wrong_option_is_an_error_of_ours_at_once(spark: Any) -> None:
    with pytest.raises(ConfigError, match="did you mean 'startOffset'"):
        kraft.read(spark, DATA, startOfset=3)


def test_a_pin_names_files_and_sizes(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"12345")
    assert kraft.pin(tmp_path) == f'[["{path}",5]]'


@pytest.mark.parametrize("columns", ["epoch", "epoch,offset,position", "offset", "crc_ok,control,segment,offset"])
@pytest.mark.parametrize("options", [{}, {"include": "all"}, {"startOffset": 100, "endOffset": 203, "minEpoch": 2}])
def test_rows_that_the_jvm_makes_of_runs_are_those_of_the_format(
    spark: Any, columns: str, options: dict[str, object]
) -> None:
    node = DATA / "kafka-4.3.1" / "n1"
    ours = kraft.read(spark, node, columns=columns, **options)
    theirs = spark.read.format("kraft").options(columns=columns, **options).load(str(node))
    assert ours.schema == theirs.schema
    assert [tuple(row) for row in ours.collect()] == [tuple(row) for row in theirs.collect()]


def test_runs_are_counted_in_sql(spark: Any) -> None:
    node = DATA / "kafka-4.3.1" / "n1"
    spark.read.format("kraft").options(columns="epoch,run_length").load(str(node)).createOrReplaceTempView("runs")
    kraft.read(spark, node).createOrReplaceTempView("each")
    found = spark.sql("SELECT epoch, sum(run_length) FROM runs GROUP BY epoch ORDER BY epoch").collect()
    assert found == spark.sql("SELECT epoch, count(*) FROM each GROUP BY epoch ORDER BY epoch").collect()


def test_the_order_of_a_fold_has_the_rows_of_a_snapshot_where_it_ends(spark: Any) -> None:
    rows = [
        ("log", 9, None),
        ("log", 7, None),
        ("snapshot", 1, 8),
        ("log", 8, None),
        ("snapshot", 0, 8),
        ("log", 6, None),
    ]
    frame = spark.createDataFrame(rows, "origin string, offset bigint, snapshot_end_offset bigint")
    found = [(row.origin, row.offset) for row in frame.orderBy(kraft.order_key()).collect()]
    assert found == [("log", 6), ("snapshot", 0), ("snapshot", 1), ("log", 7), ("log", 8), ("log", 9)]


def test_rows_that_were_read_can_be_put_in_that_order(spark: Any) -> None:
    frame = kraft.read(spark, DATA / "kafka-4.3.1" / "n4", include="latest")
    first = frame.orderBy(kraft.order_key()).first()
    assert (first.origin, first.control_type) == ("snapshot", "snapshot_header")


def test_what_a_condition_leaves_is_told_before_anything_is_read(spark: Any) -> None:
    node = DATA / "kafka-4.3.1" / "n1"
    said = kraft.explain(spark, node, "offset = 100", maxPartitionBytes="8k")
    assert "reads    1 of 1 files" in said
    assert "tasks    3, 3 splits" in said
    assert said.endswith("pruned   to 1 tasks by the condition, with lookup\n")
    assert "pushed   IsNotNull(offset), EqualTo(offset,100)\n" in said
    said = kraft.explain(spark, node, "type IN (2, 3) AND key = 'k' AND length(value) > 3")
    assert "EqualTo(key,bytes)" in said
    assert "In(type, [2,3])" in said
    assert "value" not in said.partition("pushed")[2].replace("IsNotNull(value)", "")
    assert "pushed   no filter\n" in kraft.explain(spark, node, "type = 2 OR offset = 3")
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert kraft.explain(spark, node, "offset = 100").endswith(
            "pruned   nothing: the session has " + PUSHDOWN + "=false\n"
        )
    finally:
        spark.conf.set(PUSHDOWN, "true")
