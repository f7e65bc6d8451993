"""The replica audit on Spark: executors read, compare in stretches, and judge what differs; the driver hears of ranges.

`kraftlib.analysis.audit_stretches` explains stretches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa

from kraftlib.analysis.audit import (
    FIXED,
    LOG,
    Audit,
    audit_options,
    concluded,
    different,
    index_of,
    judged,
    scope_of,
    starts_of,
)
from kraftlib.analysis.audit_findings import Finding
from kraftlib.analysis.audit_judge import IndexOf
from kraftlib.analysis.audit_rows import ReplicaRange
from kraftlib.analysis.audit_snapshots import snapshot_findings
from kraftlib.analysis.audit_stretches import EDGE, STRETCH, STRETCHES, told_apart
from kraftlib.analysis.log_files import Log
from kraftlib.analysis.metadata_state import FoldError
from kraftlib.analysis.options import ReadOptions, pin_text
from kraftlib.analysis.reading import schema_for
from kraftlib.analysis.schemas import BATCHES, Schema
from kraftlib.analysis.splits import pin
from kraftlib.spark.jobs.compact import metadata
from kraftlib.spark.tables import load, register
from kraftlib.spark.types import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDING: Final = (
    "cluster string, topic string, partition int, replica string, kind string, start_offset bigint, end_offset bigint,"
    " segment string, position bigint, what string, batches bigint"
)
"""`Finding` as Spark sees it."""
TASK_BYTES: Final = "512m"
"""The bytes of a task, unless the caller says otherwise. A row stands for many batches, so the cost is in the tasks."""
CHUNK_BYTES: Final = "4m"
"""The bytes that a task reads at once: so few are still in the cache of the processor when their checksums are made."""
STARTS: Final = pa.schema(
    [
        pa.field("log", pa.struct([BATCHES.field(name) for name in LOG])),
        pa.field("starts", pa.list_(pa.struct([("replica", pa.string()), ("start_offset", pa.int64())]))),
    ]
)
"""Where each replica of a log begins."""


def audit(spark: SparkSession, path: str | os.PathLike[str], **options: object) -> Audit:
    """Compare all replicas below `path`. The answer is that of `kraftlib.analysis.audit.audit`.

    Only ranges with faults come to the driver, a bounded number for each replica, however long the logs are.
    """
    # A log that grows while it is read must not look like one that lacks something.
    asked = audit_options(path, **options)
    given = {
        "maxPartitionBytes": TASK_BYTES,
        "chunkBytes": CHUNK_BYTES,
        **options,
        **FIXED,
        "pin": pin_text(pin(asked)),
    }
    edges: list[dict[str, Any]] = []
    findings: list[Finding] = []
    batches = 0
    beside = _beside(spark, path, given).persist()  # two parts of one query need it, and each would read the logs
    try:
        for row in _judged(beside, asked).collect():
            edges += [{**row.log.asDict(), **edge.asDict()} for edge in row.edges]
            findings += [Finding(**finding.asDict()) for finding in row.judged.findings]
            batches += row.batches + row.judged.batches
    finally:
        beside.unpersist()
    scope = scope_of(edges, asked)
    fold = partial(_metadata_rows, spark)
    findings += snapshot_findings(path, scope.ranges, fold, in_logs=tuple(findings), **options)
    return concluded(scope, findings, batches=batches)


def _beside(spark: SparkSession, path: str | os.PathLike[str], given: Mapping[str, object]) -> DataFrame:
    """Return each stretch of each log with all that replicas have there."""
    from pyspark.sql import functions as f

    from kraftlib.spark.audits import FORMAT, AuditSource

    register(spark)  # which brings kraftlib to executors that lack it
    spark.dataSource.register(AuditSource)
    rows = load(spark, FORMAT, path, given, columns=ddl_of(STRETCHES))
    rows = rows.withColumn("replica", f.coalesce("replica", f.lit("")))
    told = f.struct(*(name for name in STRETCHES.names if name not in (*LOG, "stretch")))
    return rows.groupBy(f.struct(*LOG).alias("log"), "stretch").agg(f.collect_list(told).alias("told"))


def _judged(beside: DataFrame, options: ReadOptions) -> DataFrame:
    """Return a row for each log: the ends of its files, the number of its different batches, and the findings.

    A stretch is alike if every replica that has offsets there has the same, sound batches. Only others are looked into.
    """
    from pyspark.sql import functions as f

    starts = beside.sparkSession.createDataFrame(pa.Table.from_pylist(_starts(options), STARTS))
    # The rows that end files say how far they go; a replica ends where the last of its files does.
    edges = "transform(told, t -> struct(t.replica, t.last_offset))"
    last = "array_max(transform(filter(edges, e -> e.replica = s.replica), e -> e.last_offset))"
    ranges = f"transform(starts, s -> struct(s.replica, s.start_offset, {last} + 1 AS end_offset))"
    logs = (
        beside.where(f.col("stretch") == EDGE)
        .select("log", f.expr(edges).alias("edges"))
        .join(f.broadcast(starts), "log")
        .select("log", "edges", f.expr(ranges).alias("ranges"))
    )
    owners = f"r -> r.start_offset < (stretch + 1) * {STRETCH} AND r.end_offset > stretch * {STRETCH}"
    is_alike = (
        f"coalesce(stretch = {EDGE} OR (stretch IS NOT NULL AND forall(told, t -> t.problems IS NULL)"
        f" AND size(array_distinct(told.content)) = 1"
        f" AND size(array_distinct(told.replica)) = size(filter(ranges, {owners}))), false)"
    )
    compared = (
        beside.join(f.broadcast(logs), "log")
        .select("*", f.expr(is_alike).alias("is_alike"))
        .groupBy("log")
        .agg(
            f.first("edges").alias("edges"),
            f.first("ranges").alias("ranges"),
            f.expr("sum(IF(is_alike, told[0].batches, 0))").alias("batches"),
            f.expr("flatten(collect_list(IF(is_alike, NULL, told)))").alias("told"),
        )
    )
    # A plain function: those of Arrow want pandas (see `compact`).
    kind = f"struct<batches: bigint, findings: array<struct<{FINDING}>>>"
    judge = f.udf(_Judge(index_of(options), schema_for(options)), kind, useArrow=False)
    return compared.select("log", "edges", "batches", judge("log", "ranges", "told").alias("judged"))


def _starts(options: ReadOptions) -> list[dict[str, object]]:
    """Return where the replicas of each log begin."""
    starts: dict[Log, list[dict[str, object]]] = {}
    for (log, replica), start in starts_of(options).items():
        starts.setdefault(log, []).append({"replica": replica, "start_offset": start})
    return [{"log": dict(zip(LOG, log, strict=True)), "starts": own} for log, own in starts.items()]


class _Judge:
    """Tells the batches of the stretches of one log apart, and judges them; works in an executor."""

    def __init__(self, index_of: IndexOf, schema: Schema) -> None:
        self._index_of = index_of
        self._schema = schema

    def __call__(self, log: Any, ranges: Sequence[Any], told: Sequence[Any]) -> tuple[int, list[tuple[Any, ...]]]:
        table = told_apart([{**log.asDict(), **one.asDict()} for one in told], self._schema)
        known = [
            ReplicaRange(log=tuple(log), replica=name, start=start, end=start if end is None else end)
            for name, start, end in ranges
        ]
        findings = judged(tuple(log), table, known, self._index_of)
        return different(table), [attrs.astuple(finding) for finding in findings]


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
