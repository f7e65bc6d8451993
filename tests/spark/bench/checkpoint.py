"""Writing a checkpoint of two million records, beside what Spark needs to make the rows and beside one process."""

from __future__ import annotations

import shutil
from typing import Final

import pyarrow.parquet as pq

from kraftlib import spark as kraft
from kraftlib.analysis.checkpoint import parse_checkpoint_options, write_table
from tests.spark.bench.frame import Context, Figure

RECORDS: Final = 2_000_000
ROWS: Final = (
    "CAST(lpad(id * 7919 % {count}, 12, '0') AS BINARY) AS key",
    "CAST(concat(sha2(CAST(id AS STRING), 224), repeat('v', 44)) AS BINARY) AS value",
)
"""Keys in no order, values of a hundred bytes."""


def measure(context: Context) -> list[Figure]:
    """Return records a second, from rows in memory to a file that was read back and has its name."""
    spark = context.spark
    kraft.register(spark)
    count = RECORDS * min(context.megabytes, 1024) // 1024
    rows = spark.range(count).selectExpr(*(text.format(count=count) for text in ROWS)).persist()
    rows.count()
    # By way of a file: the driver's heap need not hold them all.
    rows.write.parquet(str(context.directory / "rows"))
    table = pq.read_table(context.directory / "rows")
    here, there = (context.directory / name for name in ("checkpoint-here", "checkpoint-there"))
    options = {"endOffset": "1", "epoch": "1"}

    def by_spark() -> None:
        shutil.rmtree(there, ignore_errors=True)
        rows.write.format("kraft").mode("append").options(**options).save(str(there))

    def by_one_process() -> None:
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir()
        write_table(table, parse_checkpoint_options({"path": str(here), **options}))

    def nowhere() -> None:
        rows.write.format("noop").mode("overwrite").save()

    spark_s, process_s, noop_s = context.best(by_spark, by_one_process, nowhere)
    rows.unpersist()
    same = [path.read_bytes() for path in here.iterdir()] == [path.read_bytes() for path in there.iterdir()]
    beside = f"{spark_s:.2f} s; one process {count / process_s / 1e6:.2f} M/s; rows to nowhere {noop_s:.2f} s"
    return [
        Figure(name=f"checkpoint of {count / 1e6:.2f} M records", value=count / spark_s / 1e6, unit="M records/s",
               goal=">= 0.8", beside=beside),
        Figure(name="  is that of one process to the byte", value=float(same), unit="", goal="= 1"),
    ]  # fmt: skip
