"""What Spark takes out of packs is what is read row by row, whatever the records are like and whatever is asked."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

from kraftlib import spark as kraft
from kraftlib.analysis.reading import read_table
from kraftlib.records.record import Record
from tests.analysis.logs import BASE_MS, batch_of, values_batch, write_log
from tests.captured import DATA

ASKED = [
    "offset,epoch,timestamp,key,value",
    "value",
    "value,type,offset,position,control_type",
    "timestamp,value,version,batch_base,replica",
    None,
]


@pytest.mark.parametrize("columns", ASKED)
@pytest.mark.parametrize("options", [{}, {"include": "all"}, {"startOffset": 100, "endOffset": 203, "minEpoch": 2}])
def test_records_that_the_jvm_takes_out_of_packs_are_those_of_the_format(
    spark: Any, columns: str | None, options: dict[str, object]
) -> None:
    node = DATA / "kafka-4.3.1" / "n1"
    given = options if columns is None else {"columns": columns, **options}
    ours = kraft.read(spark, node, **given)
    theirs = spark.read.format("kraft").options(**given).load(str(node))
    assert "packed_bytes" in plan_of(ours)
    assert "packed_bytes" not in plan_of(theirs)
    assert ours.schema == theirs.schema
    assert [tuple(row) for row in ours.collect()] == [tuple(row) for row in theirs.collect()]


@pytest.mark.parametrize("compiled", ["true", "false"])
def test_even_packs_and_listed_ones_are_taken_apart_whatever_spark_does_with_a_query(
    spark: Any, tmp_path: Path, compiled: str
) -> None:
    """Regular batches, ones of other values, keys, nulls, and a value as large as several packs."""
    values = [[b"%0100d" % n for n in range(200)], [b"", b"x" * 50_000, b"y"], [b"%03d" % n for n in range(130)]]
    batches, base = [], 0
    for members in values:
        batches.append(values_batch(members, base_offset=base))
        base += len(members)
    keyed = batch_of(
        [Record(base, BASE_MS, b"k", None), Record(base + 1, -1, None, b"v"), Record(base + 2, 5, b"", b"")]
    )
    for name, chosen in (("even", batches[:1]), ("listed", [*batches, keyed])):
        write_log(tmp_path / name, chosen)
        spark.conf.set("spark.sql.codegen.wholeStage", compiled)
        try:
            rows = kraft.read(spark, tmp_path / name, columns="offset,timestamp,key,value")
            found = rows.where("offset % 3 != 1").orderBy("value", "offset").collect()
            sizes = rows.selectExpr("count(*)", "sum(length(value))", "count(key)", "min(timestamp)").collect()
        finally:
            spark.conf.set("spark.sql.codegen.wholeStage", "true")
        table = read_table(tmp_path / name, columns="offset,timestamp,key,value").to_pylist()
        plain = [(row["offset"], row["key"], row["value"]) for row in table if row["offset"] % 3 != 1]
        plain.sort(key=lambda row: (row[2] is not None, row[2] or b"", row[0]))
        assert [(row.offset, row.key, row.value) for row in found] == plain
        assert tuple(sizes[0])[:3] == (
            len(table), sum(len(row["value"] or b"") for row in table), sum(row["key"] is not None for row in table)
        )  # fmt: skip


def test_a_query_fetches_the_bytes_of_a_pack_once(spark: Any) -> None:
    """And not for each of its records, which is a copy: the filter below the generator has them fetched before it."""
    rows = kraft.read(spark, DATA / "kafka-4.3.1" / "n1", columns="offset,value")
    plan = plan_of(rows.selectExpr("sum(length(value))", "max(offset)"))
    assert plan.index("Generate posexplode") < plan.index("isnotnull(packed_bytes")


@pytest.mark.parametrize(
    "options",
    [
        {"columns": "offset,key"},
        {"columns": "offset,value,headers"},
        {"columns": "offset,value", "mode": "PERMISSIVE"},
        {"columns": "offset,value,record", "decode": "json"},
        {"view": "batches"},
    ],
)
def test_what_a_pack_cannot_hold_is_read_row_by_row(spark: Any, options: dict[str, object]) -> None:
    rows = kraft.read(spark, DATA / "kafka-4.3.1" / "n1", **options)
    assert "packed_bytes" not in plan_of(rows)
    assert rows.count() > 0


def plan_of(frame: Any) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        frame.explain()
    return text.getvalue()
