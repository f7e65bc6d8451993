"""The replica audit on Spark: executors read, compare in stretches, and judge what differs; the driver hears of ranges.

`kraftlib.analysis.audit_stretches` explains stretches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.analysis.audit import FIXED, LOG, Audit, audit_options, concluded, index_of, scope_of
from kraftlib.analysis.audit_findings import Finding
from kraftlib.analysis.audit_judge import IndexOf, LogJudge
from kraftlib.analysis.audit_rows import ReplicaRange, collapsed, rows_of
from kraftlib.analysis.audit_snapshots import snapshot_findings
from kraftlib.analysis.audit_stretches import STRETCH, STRETCHES, told_apart
from kraftlib.analysis.log_files import Log
from kraftlib.analysis.metadata_state import FoldError
from kraftlib.analysis.options import ReadOptions, pin_text
from kraftlib.analysis.reading import schema_for
from kraftlib.analysis.schemas import Schema
from kraftlib.analysis.splits import pin
from kraftlib.spark.jobs.compact import metadata
from kraftlib.spark.tables import load, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDING: Final = (
    "cluster string, topic string, partition int, replica string, kind string, start_offset bigint, end_offset bigint,"
    " segment string, position bigint, what string, batches bigint"
)
"""`Finding` as Spark sees it."""
TASK_BYTES: Final = "512m"
"""The bytes of a task, unless the caller says otherwise. A row stands for many batches, so the cost is in the tasks."""
CHUNK_BYTES: Final = "2m"
"""The bytes that a task reads at once: so few are still in the cache of the processor when their checksums are made."""


def audit(spark: SparkSession, path: str | os.PathLike[str], **options: object) -> Audit:
    """Compare all replicas below `path`. The answer is that of `kraftlib.analysis.audit.audit`.

    Only ranges with faults come to the driver, a bounded number for each replica, however long the logs are.
    """
    from pyspark.sql import functions as f

    # A log that grows while it is read must not look like one that lacks something.
    asked = audit_options(path, **options)
    given = {
        "maxPartitionBytes": TASK_BYTES,
        "chunkBytes": CHUNK_BYTES,
        **options,
        **FIXED,
        "pin": pin_text(pin(asked)),
    }
    rows = _stretches(spark, path, given).withColumn("replica", f.coalesce("replica", f.lit("")))
    told = f.struct(*(name for name in STRETCHES.names if name not in (*LOG, "stretch")))
    beside = rows.groupBy(*LOG, "stretch").agg(f.collect_list(told).alias("told")).persist()
    try:
        edges, count = _edges(beside)
        scope = scope_of(edges, asked)
        fold = partial(_metadata_rows, spark)
        findings, more = _judged(_suspects(beside, scope.ranges), scope.ranges, asked)
        findings += snapshot_findings(path, scope.ranges, fold, in_logs=tuple(findings), **options)
        return concluded(scope, findings, batches=count + more)
    finally:
        beside.unpersist()


def _judged(suspects: DataFrame, ranges: Sequence[ReplicaRange], options: ReadOptions) -> tuple[list[Finding], int]:
    """Return what is wrong in stretches that are not alike, and how many more batches are there than were counted."""
    from pyspark.sql import functions as f

    # Plain functions: those of Arrow want pandas (see `compact`).
    kind = f"struct<more: bigint, findings: array<struct<{FINDING}>>>"
    judge = f.udf(_Judge(ranges, index_of(options), schema_for(options)), kind, useArrow=False)
    by_log = suspects.groupBy(*LOG).agg(f.collect_list("told").alias("told"))
    found = [row.judged for row in by_log.select(judge(*LOG, "told").alias("judged")).collect()]
    findings = [Finding(**finding.asDict()) for judged in found for finding in judged.findings]
    return findings, sum(judged.more for judged in found)


def _metadata_rows(spark: SparkSession, path: str, **options: object) -> Iterator[tuple[bytes, bytes]]:
    """Return key and value of the state of Kafka's metadata, folded by executors.

    Raises: KraftError, if there is no such metadata.
    """
    from pyspark.errors import PySparkException

    try:
        for row in metadata(spark, path, **options).toLocalIterator():
            yield bytes(row.key), bytes(row.value)
    except PySparkException as error:
        raise FoldError(f"{path} cannot be folded: {error}") from error


class _Judge:
    """Tells the batches of the stretches of one log apart, and judges them; works in an executor."""

    def __init__(self, ranges: Sequence[ReplicaRange], index_of: IndexOf, schema: Schema) -> None:
        self._ranges = ranges
        self._index_of = index_of
        self._schema = schema

    def __call__(
        self, cluster: str | None, topic: str | None, partition: int | None, stretches: Sequence[Sequence[Any]]
    ) -> tuple[int, list[tuple[Any, ...]]]:
        log = cluster, topic, partition
        place: dict[str, Any] = dict(zip(LOG, log, strict=True))
        more, rows = 0, []
        for told in stretches:
            apart = rows_of(told_apart(({**place, **one.asDict()} for one in told), self._schema))
            counted = sum({bytes(one.content): one.batches for one in told}.values())
            more += len({(row.base_offset, row.content) for row in apart}) - counted
            rows += collapsed(apart)
        ranges = [found for found in self._ranges if found.log == log]
        return more, [attrs.astuple(finding) for finding in LogJudge(log, rows, ranges, self._index_of).findings()]


def _stretches(spark: SparkSession, path: str | os.PathLike[str], given: Mapping[str, object]) -> DataFrame:
    from kraftlib.spark.audits import FORMAT, AuditSource

    register(spark)  # which brings kraftlib to executors that lack it
    spark.dataSource.register(AuditSource)
    return load(spark, FORMAT, path, given)


def _edges(beside: DataFrame) -> tuple[list[dict[str, Any]], int]:
    """Return the last offset of each replica, as far as it can be believed; and the number of batches, of which those
    that stand in equal stretches count as one."""
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


def _suspects(beside: DataFrame, ranges: Sequence[ReplicaRange]) -> DataFrame:
    """Return the stretches but those of which every replica that has offsets there has the same, sound batches."""
    from pyspark.sql import functions as f

    # A function, and no sum of conditions: that would be as deep as there are replicas, and too deep for a fleet.
    expected = f.udf(_Expected(ranges), "bigint", useArrow=False)
    holders = "size(array_distinct(transform(filter(told, o -> o.content = t.content), o -> o.replica)))"
    sound = f.expr(f"transform(told, t -> IF(t.problems IS NULL, {holders}, -1))")
    is_alike = f.coalesce(f.forall(sound, lambda many: many == f.col("expected")), f.lit(False))
    counted = beside.withColumn("expected", expected(*LOG, "stretch"))
    return counted.where(~(is_alike & f.col("stretch").isNotNull())).drop("expected")


class _Expected:
    """Says how many replicas have offsets of a stretch; works in an executor."""

    def __init__(self, ranges: Sequence[ReplicaRange]) -> None:
        self._ranges: dict[Log, list[tuple[int, int]]] = {}
        for found in ranges:
            self._ranges.setdefault(found.log, []).append((found.start, found.end))

    def __call__(self, cluster: str | None, topic: str | None, partition: int | None, stretch: int | None) -> int:
        if stretch is None:
            return 0
        first, end = stretch * STRETCH, (stretch + 1) * STRETCH
        ranges = self._ranges.get((cluster, topic, partition), ())
        return sum(first < range_end and end > start for start, range_end in ranges)
