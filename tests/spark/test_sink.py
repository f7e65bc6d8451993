"""`df.write.format("kraft")`: one and the same checkpoint, however Spark spread the rows, or none."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraftlib.analysis.checkpoint import parse_checkpoint_options, write_table
from kraftlib.spark import register

ROWS = 4_000
ID = {"endOffset": "9000", "epoch": "3", "lastContainedLogTimestamp": "1700000000000"}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Keys in no order, values of all sizes."""
    chance = random.Random(7)
    keys = chance.sample(range(10**9), ROWS)
    return pa.table(
        {
            "key": pa.array([b"key %09d" % key for key in keys], pa.binary()),
            "value": pa.array([chance.randbytes(chance.randint(1, 200)) for _ in keys], pa.binary()),
        }
    )


@pytest.fixture
def rows(spark: Any, table: pa.Table) -> Any:
    register(spark)
    return spark.createDataFrame(table)


def save(frame: Any, directory: Path, mode: str = "append", **options: str) -> Path:
    frame.write.format("kraft").mode(mode).options(**ID, **options).save(str(directory))
    (path,) = directory.iterdir()  # nothing else is left
    return path


def test_one_hash_for_any_number_of_partitions_and_that_of_the_twin(rows: Any, table: pa.Table, tmp_path: Path) -> None:
    twin = write_table(table, parse_checkpoint_options({"path": str(made(tmp_path / "twin")), **ID}))

    written = [save(rows.repartition(count), tmp_path / str(count)) for count in (1, 2, 3, 8, 40)]
    written.append(save(rows.sort("key"), tmp_path / "sorted"))

    assert {hashlib.sha256(path.read_bytes()).hexdigest() for path in written} == {twin.sha256}
    assert {path.name for path in written} == {twin.path.name}


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def test_append_refuses_a_checkpoint_that_is_there_and_overwrite_replaces_it(rows: Any, tmp_path: Path) -> None:
    first = save(rows.limit(5), tmp_path)
    before = first.read_bytes()
    with pytest.raises(Exception, match="a checkpoint never changes"):
        save(rows, tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]

    assert save(rows.limit(6), tmp_path, mode="overwrite").read_bytes() != before


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("IF(key = (SELECT max(key) FROM rows), CAST('' AS BINARY), value)", "empty value"),
        ("IF(key = (SELECT max(key) FROM rows), NULL, value)", "a deletion is no part of a state"),
        ("IF(key = (SELECT max(key) FROM rows), raise_error('a task failed'), value)", "a task failed"),
    ],
)
def test_a_task_that_fails_leaves_nothing_behind(
    spark: Any, rows: Any, change: str, complaint: str, tmp_path: Path
) -> None:
    rows.createOrReplaceTempView("rows")
    broken = spark.sql(f"SELECT key, {change} AS value FROM rows").repartition(4)
    with pytest.raises(Exception, match=complaint):
        save(broken, tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_commit_that_fails_leaves_nothing_behind(rows: Any, tmp_path: Path) -> None:
    """Only the merge can see that two tasks have the same key."""
    with pytest.raises(Exception, match="stands there twice"):
        save(rows.union(rows).repartition(3), tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_staging_of_other_jobs_is_left_alone(rows: Any, tmp_path: Path) -> None:
    other = made(tmp_path / ".kraft-another-job")
    rows.limit(3).write.format("kraft").mode("append").options(**ID).save(str(tmp_path))

    assert {path.name for path in tmp_path.iterdir()} == {other.name, f"{9000:020d}-{3:010d}.checkpoint"}


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        (["key"], {}, "'value'"),
        (["key", "value", "key AS offset"], {}, "'offset' is none of them"),
        (["key", "1.5D AS value"], {}, "'value' is double"),
        (["key", "value"], {"vooters": "1"}, "did you mean 'voters'"),
        (["key", "value"], {"kraftVersion": "1"}, "without voters"),
    ],
)
def test_what_makes_no_checkpoint_is_refused_before_a_task_runs(
    rows: Any, columns: list[str], options: dict[str, str], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=complaint):
        save(rows.selectExpr(*columns), tmp_path, **options)

    assert list(tmp_path.iterdir()) == []


def test_no_rows_make_a_checkpoint_without_records(rows: Any, tmp_path: Path) -> None:
    empty = write_table(
        pa.table({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())}),
        parse_checkpoint_options({"path": str(made(tmp_path / "twin")), **ID}),
    )

    assert save(rows.where("false"), tmp_path / "spark").read_bytes() == empty.path.read_bytes()
