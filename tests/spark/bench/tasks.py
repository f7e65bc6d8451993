"""What a task costs that reads a small file, beside ones of the JVM alone, and beside ones in Python that read nothing.

Of the JVM there are two: one that reads a small file, too (Parquet), and one that counts and reads nothing. A task in
Python cannot cost what they cost: Spark itself, in the JVM, spends more on handing a task over to a worker, and on
taking a row from it, than on a whole task of its own. That bound is measured in the same run, by a source in Python
that makes up a row. So what is asked of ours is to be close to that; and what saves tasks is to have few of them: many
small files make one task, unless it is said that they shall not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kraftlib import spark as kraft
from tests.spark.bench import data
from tests.spark.bench.frame import Context, Figure

TASKS: Final = 200
TASKS_OF_VALUES: Final = 4
PIECE_BYTES: Final = 8 << 20


class IdleSource(DataSource):
    """As little as a source in Python can do that has a row in each task, in workers that are prepared as ours are."""

    @classmethod
    def name(cls) -> str:
        return "idle"

    def schema(self) -> str:
        return "offset bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        return IdleReader(int(self.options.get("tasks", TASKS)))


class IdleReader(DataSourceReader):
    """Reads nothing."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from kraftlib.spark.sessions import prepare_worker

        prepare_worker()
        yield pa.record_batch([pa.array([0], pa.int64())], names=["offset"])


class ValuesSource(DataSource):
    """As little as a source in Python can do that sends values: one Arrow batch, made once, again and again.

    With the option `log` it also reads the segments there, computes their checksums and copies the values once. Every
    source that reads a log does so much, however fast it decodes.
    """

    @classmethod
    def name(cls) -> str:
        return "values"

    def schema(self) -> str:
        every = "offset bigint, epoch int, timestamp timestamp, key binary, value binary"
        return self.options.get("columns", every)

    def reader(self, schema: Any) -> DataSourceReader:
        return ValuesReader(int(self.options["rows"]), schema.names, self.options.get("log"))


class ValuesReader(DataSourceReader):
    """Sends rows with values of 100 bytes, in four tasks."""

    def __init__(self, rows: int, names: list[str], log: str | None) -> None:
        self.rows = rows
        self.names = names
        self.segments = sorted(map(str, Path(log).glob("*.log"))) if log else []

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(TASKS_OF_VALUES)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import random

        from kraftlib.spark.sessions import prepare_worker

        prepare_worker()
        size, bytes_each = 1 << 16, 100
        ends = pa.array(range(0, (size + 1) * bytes_each, bytes_each), pa.int32()).buffers()[1]
        values = [None, ends, pa.py_buffer(random.Random(5).randbytes(size * bytes_each))]
        columns = {
            "offset": pa.array(range(size), pa.int64()),
            "epoch": pa.array([3] * size, pa.int32()),
            "timestamp": pa.array(range(size), pa.timestamp("us", tz="UTC")),
            "key": pa.nulls(size, pa.binary()),
            "value": pa.Array.from_buffers(pa.binary(), size, values),
        }
        batch = pa.RecordBatch.from_pydict({name: columns[name] for name in self.names})
        pieces = self._pieces(partition.value)
        many = self.rows // TASKS_OF_VALUES
        for first in range(0, many, size):
            made = batch.slice(0, min(size, many - first))
            if next(pieces, None) is not None:
                copied = pa.Array.from_buffers(pa.binary(), size, [None, ends, pa.py_buffer(values[2].to_pybytes())])
                at = made.schema.get_field_index("value")
                made = made.set_column(at, "value", copied.slice(0, made.num_rows))
            yield made

    def _pieces(self, task: int) -> Iterator[int]:
        """Read a share of each segment in pieces, and yield the checksum of each. They are as large as kraftlib's."""
        import os

        from kraftlib.records.checksum import crc32c

        for segment in self.segments:
            with open(segment, "rb", buffering=0) as file:
                share = os.path.getsize(segment) // TASKS_OF_VALUES
                file.seek(task * share)
                while share > 0 and (piece := file.read(min(share, PIECE_BYTES))):
                    yield crc32c(piece)
                    share -= len(piece)


@contextmanager
def one_file_a_task(spark: SparkSession) -> Iterator[None]:
    """Let Spark's own file sources plan a task for each small file."""
    sizes = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    before = {name: spark.conf.get(name) for name in sizes}
    for name in sizes:
        spark.conf.set(name, str(1 << 20))
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


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
    (context.directory / "small-parquet").mkdir()
    for number in range(TASKS):
        row = pa.table({"offset": pa.array([number], pa.int64())})
        pq.write_table(row, context.directory / "small-parquet" / f"{number}.parquet")
    parquet = spark.read.parquet(str(context.directory / "small-parquet"))
    spark.dataSource.register(IdleSource)
    idle_frame = spark.read.format("idle").load()
    with one_file_a_task(spark):
        for frame in (single, parquet):
            if (tasks := frame.selectExpr("offset").rdd.getNumPartitions()) != TASKS:
                raise RuntimeError(f"{tasks} tasks were planned, not {TASKS}")
        ours, as_planned, reading, idle, theirs = context.best(
            # A DataFrame that is asked again takes its first answer from the shuffle.
            lambda: single.selectExpr("sum(offset)").collect(),
            lambda: planned.selectExpr("sum(offset)").collect(),
            lambda: parquet.selectExpr("sum(offset)").collect(),
            lambda: idle_frame.selectExpr("sum(offset)").collect(),
            lambda: spark.range(0, TASKS, numPartitions=TASKS).selectExpr("sum(id)").collect(),
        )
    jvm = f"{TASKS} tasks of the JVM {theirs:.2f} s"
    return [
        Figure(name=f"{TASKS} small segments as planned, of {TASKS} tasks of the JVM", value=as_planned / theirs,
               unit="x", goal="<= 1.5", beside=f"{as_planned:.2f} s, {jvm}"),
        Figure(name="  one a task, of tasks in Python that make up a row", value=ours / idle,
               unit="x", goal="<= 1.5", beside=f"{ours:.2f} s, {idle:.2f} s"),
        Figure(name="  one a task, of ones of the JVM that read a small file", value=ours / reading,
               unit="x", beside=f"Parquet {reading:.2f} s; in Python, to make up a row: {idle / reading:.2f}"),
        Figure(name="  one a task, of ones of the JVM that read nothing", value=ours / theirs, unit="x",
               beside=f"{jvm}; in Python, to make up a row: {idle / theirs:.2f}"),
    ]  # fmt: skip
