"""Full scans beside Parquet of the same rows and beside a source that yields tuples; and look-ups."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader

from kraftlib import spark as kraft
from kraftlib.records.batch import read_batches
from tests.spark.bench import data, tasks
from tests.spark.bench.first import COLUMNS, aggregated
from tests.spark.bench.frame import Context, Figure
from tests.spark.bench.whole import spent


def measure(context: Context) -> list[Figure]:
    """Return the speed of a full scan, and its ratio to Parquet."""
    spark, path = context.spark, context.directory / "log"
    many = data.log(path, context.megabytes)
    parquet = str(context.directory / "parquet")
    kraft.read(spark, path, columns=COLUMNS).write.mode("overwrite").parquet(parquet)
    ours, theirs, narrow = context.best(
        lambda: aggregated(kraft.read(spark, path, columns=COLUMNS)),
        lambda: aggregated(spark.read.parquet(parquet)),
        lambda: kraft.read(spark, path, columns="offset").selectExpr("sum(offset)").collect(),
    )
    beside = f"Parquet {many / theirs / 1e6:.2f} M records/s, {theirs:.2f} s"
    return [
        Figure(name="full scan", value=many / ours / 1e6, unit="M records/s", beside=f"{ours:.2f} s; {beside}"),
        Figure(name="  of Parquet", value=theirs / ours, unit="x", goal=">= 0.45"),
        Figure(name="  one column", value=many / narrow / 1e6, unit="M records/s"),
    ]


def measure_processor(context: Context) -> list[Figure]:
    """Return the processor seconds of full scans, all processes together, beside those of Parquet."""
    # Workers are started elsewhere and cannot import the tests.
    cloudpickle.register_pickle_by_value(tasks)
    spark, path, parquet = context.spark, context.directory / "log", str(context.directory / "parquet")
    many = data.log(path, context.megabytes)
    spark.dataSource.register(tasks.ValuesSource)
    kraft.read(spark, path, columns=COLUMNS).write.mode("overwrite").parquet(parquet)
    values, their_values, bound, bound_of_reading, epochs, their_epochs, bound_of_epochs = context.best(
        lambda: aggregated(kraft.read(spark, path, columns=COLUMNS)),
        lambda: aggregated(spark.read.parquet(parquet)),
        lambda: aggregated(spark.read.format("values").load(rows=many)),
        lambda: aggregated(spark.read.format("values").load(rows=many, log=str(path))),
        lambda: kraft.read(spark, path, columns="epoch").groupBy("epoch").count().collect(),
        lambda: spark.read.parquet(parquet).groupBy("epoch").count().collect(),
        lambda: spark.read.format("values").load(rows=many, columns="epoch int").groupBy("epoch").count().collect(),
        clock=spent,
    )
    return [
        Figure(name="scan of all values, processor seconds", value=values / their_values, unit="of Parquet",
               goal="<= 1.2", beside=f"{values:.2f} s, {their_values:.2f} s"),
        Figure(name="  of a source in Python that sends one Arrow batch again and again", value=bound / their_values,
               unit="of Parquet", beside=f"{bound:.2f} s"),
        Figure(name="  of one that also reads the log, computes checksums and copies the values",
               value=bound_of_reading / their_values, unit="of Parquet", beside=f"{bound_of_reading:.2f} s"),
        Figure(name="  count by epoch", value=epochs / their_epochs, unit="of Parquet", goal="<= 2",
               beside=f"{epochs:.2f} s, {their_epochs:.2f} s"),
        Figure(name="    of a source in Python that sends one Arrow batch again and again",
               value=bound_of_epochs / their_epochs, unit="of Parquet", beside=f"{bound_of_epochs:.2f} s"),
    ]  # fmt: skip


class TupleSource(DataSource):
    """The plain way to write a source: a row is a tuple."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return "offset bigint, epoch int, timestamp timestamp, key binary, value binary"

    def reader(self, schema: Any) -> DataSourceReader:
        return TupleReader(self.options["path"])


class TupleReader(DataSourceReader):
    """Reads whole segments with the plain loop."""

    def __init__(self, path: str) -> None:
        self.path = path

    def partitions(self) -> list[Any]:
        from pathlib import Path

        from pyspark.sql.datasource import InputPartition

        return [InputPartition(str(segment)) for segment in sorted(Path(self.path).glob("*.log"))]

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        import datetime
        from pathlib import Path

        for batch in read_batches(Path(partition.value).read_bytes()):
            for record in batch.records():
                moment = datetime.datetime.fromtimestamp(record.timestamp / 1_000, datetime.UTC)
                yield record.offset, batch.epoch, moment, record.key, record.value


def measure_tuples(context: Context) -> list[Figure]:
    """Return how much faster Arrow batches are than tuples, on an eighth of the data."""
    # Workers are started elsewhere and cannot import this module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark, path = context.spark, context.directory / "eighth"
    data.log(path, max(context.megabytes // 8, 1))
    spark.dataSource.register(TupleSource)
    ours, tuples = context.best(
        lambda: aggregated(kraft.read(spark, path, columns=COLUMNS)),
        lambda: aggregated(spark.read.format("tuples").load(str(path))),
        rounds=2,
    )
    return [Figure(name="full scan of the tuple path", value=tuples / ours, unit="x", goal=">= 5",
                   beside=f"{ours:.2f} s, tuples {tuples:.2f} s")]  # fmt: skip


def measure_lookup(context: Context) -> list[Figure]:
    """Return how much faster one offset is found than everything is scanned, and in how many tasks."""
    spark, path = context.spark, context.directory / "log"
    many = data.log(path, context.megabytes)
    wanted = f"offset = {many // 2}"
    one, every = context.best(
        lambda: kraft.lookup(spark, path, wanted, columns=COLUMNS).collect(),
        lambda: aggregated(kraft.read(spark, path, columns=COLUMNS)),
    )
    planned = kraft.lookup(spark, path, wanted).rdd.getNumPartitions()
    return [
        Figure(name="look-up of an offset, of a full scan", value=every / one, unit="x faster", goal=">= 6",
               beside=f"{one:.2f} s, full scan {every:.2f} s"),
        Figure(name="  tasks planned", value=float(planned), unit="", goal="= 1"),
    ]  # fmt: skip
