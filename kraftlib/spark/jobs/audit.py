"""The replica audit on Spark: executors read, compare in stretches, and judge what differs; the driver hears of ranges.

`kraftlib.analysis.audit_stretches` explains stretches.

Where a replica ends is known when all of it has been read. Until then, a whole stretch that it does not have may be
lag. If the judge finds that it is lacking, a second query looks into it. Most audits need one, in which nothing waits
for the ends of replicas.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.analysis.audit import (
    FIXED,
    LOG,
    Audit,
    audit_options,
    concluded,
    different,
    ends_of,
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
from kraftlib.analysis.schemas import Schema
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
    told = _told(spark, path, given)
    rows = _judged(told, asked, {}).collect()
    if lacking := {tuple(row.log): range(*row.judged.lacking) for row in rows if row.judged.lacking}:
        rows = _judged(told, asked, lacking).collect()
    edges: list[dict[str, Any]] = []
    findings: list[Finding] = []
    batches = 0
    for row in rows:
        edges += [{**row.log.asDict(), **edge.asDict()} for edge in row.edges]
        findings += [Finding(**finding.asDict()) for finding in row.judged.findings]
        batches += row.batches + row.judged.batches
    scope = scope_of(edges, asked)
    fold = partial(_metadata_rows, spark)
    findings += snapshot_findings(path, scope.ranges, fold, in_logs=tuple(findings), **options)
    return concluded(scope, findings, batches=batches)


def _told(spark: SparkSession, path: str | os.PathLike[str], given: Mapping[str, object]) -> DataFrame:
    """Return what each replica tells of each stretch of each log."""
    from kraftlib.spark.audits import FORMAT, AuditSource

    register(spark)  # which brings kraftlib to executors that lack it
    spark.dataSource.register(AuditSource)
    rows = load(spark, FORMAT, path, given, columns=ddl_of(STRETCHES))
    facts = ", ".join(name for name in STRETCHES.names if name not in (*LOG, "replica", "stretch"))
    told = f"struct(coalesce(replica, '') AS replica, {facts}) AS told"
    return rows.selectExpr(f"struct({', '.join(LOG)}) AS log", "stretch", told)


def _judged(rows: DataFrame, options: ReadOptions, lacking: Mapping[Log, range]) -> DataFrame:
    """Return a row for each log: the ends of its files, the number of its different batches, and what is wrong.

    A stretch is alike if all replicas that have it have the same, sound batches there. Only others are looked into, and
    those in the ranges of `lacking` that not all replicas have.
    """
    from pyspark.sql import functions as f

    starts = starts_of(options)
    most = max(Counter(log for log, _ in starts).values(), default=0)
    is_sound = "stretch IS NOT NULL AND forall(told, t -> t.problems IS NULL)"
    beside = (
        rows.groupBy("log", "stretch")
        .agg(f.expr("collect_list(told) AS told"))
        .selectExpr(
            "*",
            "size(array_distinct(told.replica)) AS holders",
            f"{is_sound} AND size(array_distinct(told.content)) = 1 AS is_alike",
        )
    )
    if lacking:
        is_in = f.udf(lambda log, stretch: stretch in lacking.get(tuple(log), ()), "boolean", useArrow=False)
        looked_into = (f.col("holders") < most) & is_in("log", "stretch")
        beside = beside.withColumn("is_alike", f.col("is_alike") & ~looked_into)
    edges = "transform(told, t -> struct(t.replica, t.last_offset))"
    compared = beside.groupBy("log").agg(
        f.expr(f"flatten(collect_list(IF(stretch = {EDGE}, {edges}, NULL))) AS edges"),
        f.expr(f"collect_list(IF(is_alike AND holders < {most}, struct(stretch, holders), NULL)) AS held"),
        f.expr("sum(IF(is_alike, told[0].batches, 0)) AS batches"),
        f.expr("flatten(collect_list(IF(is_alike, NULL, told))) AS told"),
    )
    # A plain function: those of Arrow want pandas (see `compact`).
    kind = f"struct<lacking: array<bigint>, batches: bigint, findings: array<struct<{FINDING}>>>"
    judge = f.udf(_Judge(index_of(options), starts, schema_for(options)), kind, useArrow=False)
    return compared.select("log", "edges", "batches", judge("log", "edges", "held", "told").alias("judged"))


class _Judge:
    """Tells the batches of the stretches of one log apart, and judges them; works in an executor."""

    def __init__(self, index_of: IndexOf, starts: Mapping[tuple[Log, str], int], schema: Schema) -> None:
        self._index_of = index_of
        self._starts = starts
        self._schema = schema

    def __call__(
        self, log: Any, edges: Sequence[Any], held: Sequence[tuple[int, int]], told: Sequence[Any]
    ) -> tuple[list[int], int, list[tuple[Any, ...]]]:
        """Return the range of stretches that a replica lacks although all others agree, or what is wrong elsewhere."""
        ends = ends_of({**log.asDict(), **edge.asDict()} for edge in edges)
        known = [
            ReplicaRange(log=own, replica=name, start=start, end=ends.get((own, name), start))
            for (own, name), start in self._starts.items()
            if own == tuple(log)
        ]
        if lacking := [stretch for stretch, holders in held if holders < _expected(known, stretch)]:
            return [min(lacking), max(lacking) + 1], 0, []
        table = told_apart([{**log.asDict(), **one.asDict()} for one in told], self._schema)
        findings = judged(tuple(log), table, known, self._index_of)
        return [], different(table), [attrs.astuple(finding) for finding in findings]


def _expected(ranges: Sequence[ReplicaRange], stretch: int) -> int:
    """Return how many replicas have offsets in a stretch."""
    start, end = stretch * STRETCH, (stretch + 1) * STRETCH
    return sum(max(each.start, start) < min(each.end, end) for each in ranges)


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
