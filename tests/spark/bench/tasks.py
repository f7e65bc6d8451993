"""What a task costs that reads next to nothing, beside one of the JVM alone, and beside a source that does nothing."""

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
    """Yields one row a task."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        from kraftlib.spark.sessions import prepare_worker

        prepare_worker()
        yield pa.RecordBatch.from_pydict({"offset": [partition.value]}, schema=pa.schema([("offset", pa.int64())]))


def measure(context: Context) -> list[Figure]:
    """Return the ratio of 200 tasks of one batch each to 200 tasks that count in the JVM."""
    # Workers are started elsewhere and cannot import this module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark, path = context.spark, context.directory / "small"
    path.mkdir()
    for batch in data.batches(TASKS, records=1):
        (path / f"{batch.base_offset:020d}.log").write_bytes(bytes(batch.data))
    frame = kraft.read(spark, path, maxPartitionBytes=1, columns="offset")
    if frame.rdd.getNumPartitions() != TASKS:
        raise RuntimeError(f"{frame.rdd.getNumPartitions()} tasks were planned, not {TASKS}")
    spark.dataSource.register(IdleSource)
    idle_frame = spark.read.format("idle").load()
    ours, idle, theirs = context.best(
        # A DataFrame that is asked again takes its first answer from the shuffle.
        lambda: frame.selectExpr("sum(offset)").collect(),
        lambda: idle_frame.selectExpr("sum(offset)").collect(),
        lambda: spark.range(0, TASKS, numPartitions=TASKS).selectExpr("sum(id)").collect(),
    )
    beside = f"{ours:.2f} s, JVM {theirs:.2f} s, a source in Python that does nothing {idle:.2f} s"
    return [
        Figure(
            name=f"{TASKS} small tasks, of the JVM's own", value=ours / theirs, unit="x", goal="<= 1.5", beside=beside
        )
    ]
