"""Conditions leave exactly the rows that a query wants, and spare the work for the others."""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.analysis.conditions import IN, IS_NOT_NULL, IS_NULL, Condition, Pruning, condition_on
from kraftlib.analysis.reading import options_of, read_splits, read_table, schema_for
from kraftlib.analysis.schemas import BATCHES, RECORDS, VIEWS
from kraftlib.analysis.splits import plan
from kraftlib.records.batch import Batch
from tests.analysis.logs import log_batches, values_batch, write_log
from tests.captured import DATA

HERE = __name__
NODE = DATA / "kafka-4.3.1" / "n1"
COLUMNS = "offset epoch timestamp control control_type type version key value batch_base crc_ok problem".split()
seen: list[int] = []


def counted(values: Any) -> Any:
    """Decode nothing, and take note of how many values there were."""
    seen.append(len(values))
    return pa.StructArray.from_arrays([pc.binary_length(values)], names=["size"])


def read(path: Path, *conditions: Condition, **options: object) -> list[dict[str, Any]]:
    asked, pruning = options_of(path, **options), Pruning(conditions=conditions)
    tables = [
        table for group in plan(asked, pruning) for table in read_splits(group, asked, schema_for(asked), pruning)
    ]
    rows: list[dict[str, Any]] = pa.Table.from_batches(tables, schema=schema_for(asked)).to_pylist()
    return rows


def on(column: str, test: str, *values: object, view: str = "records") -> Condition:
    found = condition_on(VIEWS[view].field(column), test, values)
    assert found is not None
    return found


def passes(value: Any, test: str, values: tuple[Any, ...]) -> bool:
    """Judge one value, slowly and obviously."""
    if test in (IS_NULL, IS_NOT_NULL):
        return (value is None) == (test == IS_NULL)
    if value is None:
        return False
    judged: dict[str, bool] = {
        IN: value in values,
        "<": value < values[0],
        "<=": value <= values[0],
        ">": value > values[0],
        ">=": value >= values[0],
    }
    return judged[test]


@settings(max_examples=60)
@given(log_batches(), st.data())
def test_what_is_left_is_what_sql_would_leave(batches: list[Batch], data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(["FAILFAST", "PERMISSIVE"]))
    with tempfile.TemporaryDirectory() as name:
        write_log(Path(name), batches)
        everything = read(Path(name), columns=COLUMNS, mode=mode)
        column = data.draw(st.sampled_from(COLUMNS))
        known = sorted({row[column] for row in everything} - {None})
        test = data.draw(st.sampled_from([IN, "<", "<=", ">", ">="] if known else [IS_NULL])) if data.draw(
            st.booleans()
        ) else data.draw(st.sampled_from([IS_NULL, IS_NOT_NULL]))  # fmt: skip
        values = tuple(data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))) if known else ()
        found = read(Path(name), on(column, test, *values[: None if test == IN else 1]), columns=COLUMNS, mode=mode)
    assert found == [row for row in everything if passes(row[column], test, values)]


def test_values_of_records_of_another_type_are_not_decoded() -> None:
    everything = read_table(NODE, columns="type,record", valueDecoder=f"{HERE}:counted")
    numbers = everything["type"].to_pylist()
    seen.clear()

    found = read(NODE, on("type", IN, 2), columns="offset,type,record", valueDecoder=f"{HERE}:counted")

    assert [row["type"] for row in found] == [2] * numbers.count(2)
    assert 0 < sum(seen) == numbers.count(2) < len(numbers) / 2


def test_a_record_with_another_key_is_not_decoded(tmp_path: Path) -> None:
    write_log(tmp_path, [values_batch([b"v"] * 9)])
    seen.clear()
    assert read(tmp_path, on("key", IN, b"k"), valueDecoder=f"{HERE}:counted") == []
    assert sum(seen) == 0


def test_files_of_another_replica_are_not_planned() -> None:
    options = options_of(DATA / "kafka-4.3.1" / "n*")
    files = {
        split.file.labels.replica
        for group in plan(options, Pruning(conditions=(on("replica", IN, "4"),)))
        for split in group
    }
    assert files == {"4"}
    assert plan(options, Pruning(conditions=(on("replica", IS_NULL),))) == []


def test_batches_and_files_are_judged_as_well(tmp_path: Path) -> None:
    write_log(tmp_path, [values_batch([b"v"] * n, base_offset=n * (n - 1) // 2) for n in range(1, 6)], cuts=[3])
    counts = [row["count"] for row in read(tmp_path, on("count", ">", 2, view="batches"), view="batches")]
    assert counts == [3, 4, 5]
    assert [row["batches"] for row in read(tmp_path, on("offset", "<=", 5, view="files"), view="files")] == [3]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("epoch", [2**40]),
        ("epoch", [True]),
        ("epoch", [None]),
        ("control", [1]),
        ("key", ["text"]),
        ("replica", [b"1"]),
        ("timestamp", [datetime.datetime(2026, 11, 23)]),
        ("headers", [[]]),
        ("epoch", []),
    ],
)
def test_values_that_a_column_cannot_have_are_no_condition(column: str, values: list[object]) -> None:
    assert condition_on(RECORDS.field(column), IN, values) is None


def test_null_tests_need_no_values() -> None:
    assert condition_on(BATCHES.field("problem"), IS_NULL) == Condition(column="problem", test=IS_NULL)
