"""The replica audit on Spark: executors read and group the batches, the driver judges the few that are not alike."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from kraftlib.analysis.audit import (
    COLUMNS,
    KEYS,
    Audit,
    ReplicaRange,
    audit_options,
    group_of,
    judged,
    ranges_of,
    snapshot_findings,
)
from kraftlib.analysis.options import pin_text
from kraftlib.analysis.splits import pin
from kraftlib.errors import ConfigError
from kraftlib.spark.tables import read

PLACE: Final = ("cluster", "topic", "partition", "base_offset")
TASK_BYTES: Final = "512m"
"""What a task reads, unless it is said: a row stands for a whole batch, so rows are few, and tasks are what costs."""


def audit(spark: Any, path: str | os.PathLike[str], **options: object) -> Audit:
    """Compare all replicas below `path`. The answer is that of `kraftlib.analysis.audit.audit`.

    What is wrong comes to the driver, however long the logs are.
    """
    from pyspark.sql import functions as f

    # A log that grows while it is read must not look like one that lacks something.
    asked = audit_options(path, **options)
    held = pin_text(pin(asked))
    fixed = {"view": "batches", "mode": "PERMISSIVE", "columns": COLUMNS, "pin": held}
    given = {"maxPartitionBytes": TASK_BYTES, **options, **fixed}
    batches = read(spark, path, **given).withColumn("replica", f.coalesce("replica", f.lit("")))
    named = [f.collect_set("replica").alias("replicas"), *(f.min(name).alias(name) for name in ("position", "segment"))]
    groups = batches.groupBy(*KEYS).agg(*named).persist()
    try:
        edges, count = _edges(groups)
        ranges = ranges_of(edges, asked)
        if not ranges:
            raise ConfigError(f"{os.fspath(path)} holds no batch")
        suspects = {_place(row) for row in groups.where(_is_suspect(ranges)).select(*PLACE).collect()}
        offsets = spark.createDataFrame([(offset,) for *_, offset in sorted(suspects, key=str)], "base_offset bigint")
        same_offset = groups.base_offset.eqNullSafe(offsets.base_offset)
        beside = groups.join(f.broadcast(offsets.distinct()), same_offset, "left_semi").collect() if suspects else []
        found = [group_of(row.asDict()) for row in beside if _place(row) in suspects]
        return judged(found, ranges, snapshot_findings(path, **options), batches=count)
    finally:
        groups.unpersist()


def _place(row: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in PLACE)


def _edges(groups: Any) -> tuple[list[dict[str, Any]], int]:
    """Return the last offset of each replica, as far as it can be believed; and how many groups there are."""
    from pyspark.sql import functions as f

    edges = groups.select("*", f.explode("replicas").alias("replica"))
    is_reliable = f.expr("problem IS NULL OR length IS NULL")
    last = f.max(f.when(is_reliable, f.coalesce("last_offset", "base_offset"))).alias("last_offset")
    # Each group counts once, with the replica that it names first.
    first = f.count_if(f.col("replica") == f.col("replicas")[0]).alias("first")
    rows = edges.groupBy("cluster", "topic", "partition", "replica").agg(last, first)
    found = [row.asDict() for row in rows.collect()]
    return found, sum(row.pop("first") for row in found)


def _is_suspect(ranges: Sequence[ReplicaRange]) -> Any:
    """Return `kraftlib.analysis.audit.is_suspect` as a condition of Spark."""
    from pyspark.sql import functions as f

    expected = f.lit(0)
    for found in ranges:
        cluster, topic, partition = found.log
        same = (
            f.col("cluster").eqNullSafe(f.lit(cluster))
            & f.col("topic").eqNullSafe(f.lit(topic))
            & f.col("partition").eqNullSafe(f.lit(partition))
        )
        within = (f.col("base_offset") >= found.start) & (f.col("base_offset") < found.end)
        expected = expected + f.when(same & within, 1).otherwise(0)
    return f.col("base_offset").isNull() | f.col("problem").isNotNull() | (f.size("replicas") < expected)
