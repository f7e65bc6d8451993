"""The first query of a session: processor seconds of all its processes, beside those of Spark's own first query.

Spark's own reads the same rows from Parquet, in the same session settings. Between the two stands a source in Python
that makes up one row: Spark starts a Python process to look for sources, one for the columns, one for the plan, and the
workers, whatever the source does. That part nobody can save who writes a source in Python.

    python -m tests.spark.bench.first kraft|parquet|idle PATH [MASTER]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from tests.spark.bench.frame import Context, Figure
from tests.spark.bench.whole import whole

MEGABYTES: Final = 16
COLUMNS: Final = ("offset", "epoch", "timestamp", "key", "value")
AGGREGATE: Final = ("count(*)", "sum(length(value))", "max(offset)", "min(timestamp)", "count(key)")


def ask(what: str, path: str) -> int:
    """Start a session, ask one query over all values, and stop; return the number of groups."""
    from kraftlib.spark.sessions import session  # not by kraftlib.spark.tables: Parquet needs no more

    spark = session("local[2]", app_name="kraftlib-first")
    found = QUERIES[what](spark, path)
    spark.stop()
    return len(found)


def _of_kraft(spark: Any, path: str) -> list[Any]:
    from kraftlib import spark as kraft

    return aggregated(kraft.read(spark, path, columns=COLUMNS))


def _of_parquet(spark: Any, path: str) -> list[Any]:
    return aggregated(spark.read.parquet(path))


def _idle(spark: Any, path: str) -> list[Any]:
    from pyspark import cloudpickle

    from tests.spark.bench import tasks

    cloudpickle.register_pickle_by_value(tasks)  # workers cannot import the tests
    spark.dataSource.register(tasks.IdleSource)
    rows: list[Any] = spark.read.format("idle").option("tasks", "2").load().groupBy("offset").count().collect()
    return rows


def aggregated(frame: Any) -> list[Any]:
    """Ask something that needs every column, by epoch."""
    from pyspark.sql import functions as f

    rows: list[Any] = frame.groupBy("epoch").agg(*map(f.expr, AGGREGATE)).collect()
    return rows


QUERIES: Final = {"parquet": _of_parquet, "idle": _idle, "kraft": _of_kraft}


def measure(context: Context) -> list[Figure]:
    """Return the least processor seconds of each kind of first query, in turns, as ratios."""
    import pyarrow.parquet as pq

    from kraftlib.analysis.reading import read_table
    from tests.spark.bench import data

    log, parquet = context.directory / "first", context.directory / "first-parquet"
    data.log(log, min(MEGABYTES, context.megabytes))
    parquet.mkdir(exist_ok=True)
    pq.write_table(read_table(log, columns=COLUMNS), parquet / "rows.parquet")
    paths = {"parquet": parquet, "idle": Path("-"), "kraft": log}
    seconds: dict[str, list[float]] = {what: [] for what in paths}
    for _ in range(context.rounds):
        for what, path in paths.items():
            seconds[what].append(whole("tests.spark.bench.first", what, str(path))["processor_s"])
    ours, theirs, idle = (min(seconds[what]) for what in ("kraft", "parquet", "idle"))
    return [
        Figure(name="first query of a session, of Spark's own", value=ours / theirs, unit="x", goal="<= 1.3",
               beside=f"{ours:.1f} s of processor; over Parquet {theirs:.1f}"),
        Figure(name="  that of a source in Python that makes up a row", value=idle / theirs, unit="x",
               beside=f"{idle:.1f} s of processor"),
    ]  # fmt: skip


if __name__ == "__main__":
    print(json.dumps({"groups": ask(sys.argv[1], sys.argv[2])}))
