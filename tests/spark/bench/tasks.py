"""What a task costs that reads next to nothing, beside one of the JVM alone."""

from __future__ import annotations

from typing import Final

from kraftlib import spark as kraft
from tests.spark.bench import data
from tests.spark.bench.frame import Context, Figure

TASKS: Final = 200


def measure(context: Context) -> list[Figure]:
    """Return the ratio of 200 tasks of one batch each to 200 tasks that count in the JVM."""
    spark, path = context.spark, context.directory / "small"
    path.mkdir()
    for batch in data.batches(TASKS, records=1):
        (path / f"{batch.base_offset:020d}.log").write_bytes(bytes(batch.data))
    frame = kraft.read(spark, path, maxPartitionBytes=1, columns="offset")
    if frame.rdd.getNumPartitions() != TASKS:
        raise RuntimeError(f"{frame.rdd.getNumPartitions()} tasks were planned, not {TASKS}")
    ours, theirs = context.best(
        # A DataFrame that is asked again takes its first answer from the shuffle.
        lambda: frame.selectExpr("sum(offset)").collect(),
        lambda: spark.range(0, TASKS, numPartitions=TASKS).selectExpr("sum(id)").collect(),
    )
    return [Figure(name=f"{TASKS} small tasks, of the JVM's own", value=ours / theirs, unit="x", goal="<= 1.5",
                   beside=f"{ours:.2f} s, JVM {theirs:.2f} s")]  # fmt: skip
