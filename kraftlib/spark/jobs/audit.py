"""The replica audit on Spark: executors read, and compare in stretches; the driver judges the few that are not alike.

See `kraftlib.analysis.audit_stretches` for what a stretch is, and why.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kraftlib.analysis.audit import (
    FIXED,
    Audit,
    ReplicaRange,
    audit_options,
    groups_of,
    judged,
    ranges_of,
    snapshot_findings,
    suspicious,
)
from kraftlib.analysis.audit_stretches import STRETCH, STRETCHES, told_apart
from kraftlib.analysis.options import pin_text
from kraftlib.analysis.reading import schema_for
from kraftlib.analysis.splits import pin
from kraftlib.errors import ConfigError
from kraftlib.spark.tables import load, register

LOG: Final = ("cluster", "topic", "partition")
TASK_BYTES: Final = "512m"
"""What a task reads, unless it is said: a row stands for many batches, so rows are few, and tasks are what costs."""


def audit(spark: Any, path: str | os.PathLike[str], **options: object) -> Audit:
    """Compare all replicas below `path`. The answer is that of `kraftlib.analysis.audit.audit`.

    What is wrong comes to the driver, however long the logs are.
    """
    from pyspark.sql import functions as f

    # A log that grows while it is read must not look like one that lacks something.
    asked = audit_options(path, **options)
    given = {"maxPartitionBytes": TASK_BYTES, **options, **FIXED, "pin": pin_text(pin(asked))}
    rows = _stretches(spark, path, given).withColumn("replica", f.coalesce("replica", f.lit("")))
    told = f.struct(*(name for name in STRETCHES.names if name not in (*LOG, "stretch")))
    beside = rows.groupBy(*LOG, "stretch").agg(f.collect_list(told).alias("told")).persist()
    try:
        edges, count = _edges(beside)
        ranges = ranges_of(edges, asked)
        if not ranges:
            raise ConfigError(f"{os.fspath(path)} holds no batch")
        suspects = [row.asDict(recursive=True) for row in beside.where(~_is_alike(ranges)).collect()]
        apart = told_apart(_rows(suspects), schema_for(asked))
        groups = groups_of(apart)
        batches = count - sum(map(_batches, suspects)) + len(groups)
        return judged(suspicious(groups, ranges), ranges, snapshot_findings(path, **options), batches=batches)
    finally:
        beside.unpersist()


def _stretches(spark: Any, path: str | os.PathLike[str], given: Mapping[str, object]) -> Any:
    from kraftlib.spark.audits import FORMAT, AuditSource

    register(spark)  # which brings kraftlib to executors that lack it
    spark.dataSource.register(AuditSource)
    return load(spark, FORMAT, path, given)


def _edges(beside: Any) -> tuple[list[dict[str, Any]], int]:
    """Return the last offset of each replica, as far as it can be believed; and how many batches there are, of those
    that stand in equal stretches one."""
    from pyspark.sql import functions as f

    each = beside.select(*LOG, "told", f.posexplode("told").alias("place", "one"))
    is_first = f.expr("array_position(transform(told, t -> t.content), one.content) = place + 1")
    rows = (
        each.groupBy(*LOG, f.col("one.replica").alias("replica"))
        .agg(
            f.max("one.last_offset").alias("last_offset"),
            f.sum(f.when(is_first, f.col("one.batches")).otherwise(0)).alias("batches"),
        )
        .collect()
    )
    found = [row.asDict() for row in rows]
    return found, sum(row.pop("batches") for row in found)


def _is_alike(ranges: Sequence[ReplicaRange]) -> Any:
    """Return whether every replica that has offsets of a stretch has the same batches there, and none is wrong."""
    from pyspark.sql import functions as f

    first = f.col("stretch") * STRETCH
    expected = f.lit(0)
    for found in ranges:
        same = [f.col(name).eqNullSafe(f.lit(value)) for name, value in zip(LOG, found.log, strict=True)]
        within = (first < found.end) & (first + STRETCH > found.start)
        expected = expected + f.when(same[0] & same[1] & same[2] & within, 1).otherwise(0)
    holders = "size(array_distinct(transform(filter(told, o -> o.content = t.content), o -> o.replica)))"
    sound = f.expr(f"transform(told, t -> IF(t.problems IS NULL, {holders}, -1))")
    return f.coalesce(f.forall(sound, lambda many: many == expected), f.lit(False)) & f.col("stretch").isNotNull()


def _batches(suspect: Mapping[str, Any]) -> int:
    """Return how many batches `_edges` counted for a stretch."""
    return sum({bytes(one["content"]): one["batches"] for one in suspect["told"]}.values())


def _rows(suspects: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for suspect in suspects:
        place = {name: suspect[name] for name in LOG}
        yield from ({**place, **one} for one in suspect["told"])
