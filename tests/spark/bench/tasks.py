"""What a task costs that reads next to nothing, beside one of the JVM alone, and beside ones in Python that do nothing.

A task in Python cannot cost what a task of the JVM costs: Spark itself, in the JVM, spends more on handing a task over
to a worker than on a whole task of its own. So there is a bound that is measured in the same run, a source in Python
that does not yield a row, and what is ours to answer for is measured against that. What saves tasks is to have few of
them: many small files make one task, unless it is said that they shall not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kraftlib import spark as kraft
from tests.spark.bench import data
from tests.spark.bench.frame import Context, Figure

TASKS: Final = 200


class IdleSource(DataSource):
    """As little as a source in Python can do, in workers that are prepared as ours are."""

    @classmethod
    def name(cls) -> str:
        return "idle"

    def schema(self) -> str:
        return "offset bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        return IdleReader()


class IdleReader(DataSourceReader):
    """Yields no row at all."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from kraftlib.spark.sessions import prepare_worker

        prepare_worker()
        return iter(())


def measure(context: Context) -> list[Figure]:
    """Return what 200 small segments cost, one a task and as they are planned, of 200 tasks of others."""
    # Workers are started elsewhere and cannot import this module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark, path = context.spark, context.directory / "small"
    path.mkdir()
    for batch in data.batches(TASKS, records=1):
        (path / f"{batch.base_offset:020d}.log").write_bytes(bytes(batch.data))
    planned = kraft.read(spark, path, columns="offset")
    single = kraft.read(spark, path, maxPartitionBytes=1, columns="offset")
    if single.rdd.getNumPartitions() != TASKS:
        raise RuntimeError(f"{single.rdd.getNumPartitions()} tasks were planned, not {TASKS}")
    spark.dataSource.register(IdleSource)
    idle_frame = spark.read.format("idle").load()
    ours, as_planned, idle, theirs = context.best(
        # A DataFrame that is asked again takes its first answer from the shuffle.
        lambda: single.selectExpr("sum(offset)").collect(),
        lambda: planned.selectExpr("sum(offset)").collect(),
        lambda: idle_frame.selectExpr("sum(offset)").collect(),
        lambda: spark.range(0, TASKS, numPartitions=TASKS).selectExpr("sum(id)").collect(),
    )
    jvm = f"{TASKS} tasks of the JVM {theirs:.2f} s"
    bound = f"{idle / theirs:.2f} for a source in Python without a row"
    return [
        Figure(name=f"{TASKS} small segments as planned, of {TASKS} tasks of the JVM", value=as_planned / theirs,
               unit="x", goal="<= 1.5", beside=f"{as_planned:.2f} s, {jvm}"),
        Figure(name=f"{TASKS} small tasks, of ones in Python without a row", value=ours / idle,
               unit="x", goal="<= 1.5", beside=f"{ours:.2f} s, {idle:.2f} s"),
        Figure(name="  of the JVM's own", value=ours / theirs, unit="x", beside=f"{jvm}; the bound is {bound}"),
    ]  # fmt: skip
