"""Jobs over logs: `kraftlib.analysis.compacting` does the same in one process, these on as many processors as Spark
has.

Each reads a pinned input, so that a log that grows meanwhile is one and the same in all its passes: the newest snapshot
and the log behind it. The result is a table of key and value, fit for `write.format("kraft")`.

For the latest of each key the textbook plan, a window over all columns, moves every value through the shuffle. Here
only keys and positions are grouped; the winner is then picked out by position, eight bytes a row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftlib.analysis.compacting import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    QUORUM,
    SNAPSHOT_POSITION,
    Reducer,
    check_whole,
    quorum_columns,
    write_increment,
)
from kraftlib.analysis.metadata_state import PLANNED_BY, plan_of
from kraftlib.errors import ConfigError
from kraftlib.records.control_messages import VotersRecord
from kraftlib.spark.tables import pin, read
from kraftlib.types import OffsetAndEpoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROADCAST_BYTES: Final = 5 << 28
"""Of a log up to this size the positions that won, eight bytes each, fit into a heap of 1 GB, however many keys."""

_GROUPED_BYTES: Final = 1 << 29
"""Keys are grouped within a task before the shuffle: the more of them one task sees, the fewer leave it twice."""

_POSITION: Final = f"IF(origin = 'snapshot', offset + {SNAPSHOT_POSITION}L, offset) AS position"


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    key: str = "key",
    value: str = "value",
    keep_deleted: bool = False,
    **options: object,
) -> DataFrame:
    """Return key and value of the last record of each key, of those that were not deleted.

    `key` and `value` are SQL over the columns key and value of a record, for strings or binary: records of KRaft have
    no keys, so their values hold the fields that tell them apart. A value of null deletes the key; a key of null is an
    error. `options` are those of reading (endOffset, …).
    """
    keyed = "key" if key == "key" else "key, value"
    rows = _rows(spark, path, keyed, {"pin": _pinned(path, options), "maxPartitionBytes": _GROUPED_BYTES, **options})
    key, value = f"CAST(({key}) AS BINARY)", f"CAST(({value}) AS BINARY)"
    checked = (
        f"IF({key} IS NULL, raise_error(concat('the record at position ', position, ' has no key')), {key}) AS key"
    )
    winners = rows.selectExpr("position", checked).groupBy("key").agg({"position": "max"}).select("max(position)")
    winners = winners.withColumnRenamed("max(position)", "position")
    if _size(path, options) <= BROADCAST_BYTES:
        winners = winners.hint("broadcast")
    kept = _rows(spark, path, "key, value", options).join(winners, "position", "left_semi")
    state = kept.selectExpr(f"{key} AS key", f"{value} AS value")
    return state if keep_deleted else state.where("value IS NOT NULL")


def fold(
    spark: SparkSession,
    path: str | os.PathLike[str],
    reducer: Reducer,
    *,
    void: Sequence[tuple[int, int]] = (),
    **options: object,
) -> DataFrame:
    """Return key and value of the state to which the records lead, as `reducer` folds them, group by group.

    Records at positions in `void`, ranges from first to last, are left out. An error of the reducer fails the job.
    Groups are folded whole: the largest one must fit into the memory of an executor.
    """
    from pyspark.sql import functions as f

    def fold_group(values: list[bytes]) -> list[tuple[bytes, bytes]]:
        state: dict[bytes, bytes] = {}
        for value in values:
            reducer.fold(state, bytes(value))
        return list(state.items())

    # Plain functions: those of Arrow want pandas, mapInArrow and applyInArrow among them, up to PySpark 4.3 at least.
    group_of = f.udf(lambda value: reducer.group_of(bytes(value)), "binary", useArrow=False)
    folded = f.udf(fold_group, "array<struct<key: binary, value: binary>>", useArrow=False)
    rows = _rows(spark, path, "value", options)
    for first, last in void:
        rows = rows.where(f"position NOT BETWEEN {first}L AND {last}L")
    grouped = rows.withColumn("grp", group_of("value")).groupBy("grp")
    ordered = grouped.agg(f.sort_array(f.collect_list(f.struct("position", "value"))).alias("rows"))
    states = ordered.select(folded(f.transform("rows", lambda row: row.value)).alias("state"))
    return states.select(f.explode("state").alias("item")).select("item.key", "item.value")


def metadata(spark: SparkSession, path: str | os.PathLike[str], **options: object) -> DataFrame:
    """Return key and value of the state of a Kafka cluster: the content of a snapshot at the end of the log, or at
    endOffset.

    The twin is `kraftlib.analysis.metadata_state.metadata_state`. Its errors fail the job.
    """
    kinds = ", ".join(str(int(kind)) for kind in PLANNED_BY)
    first = _rows(spark, path, "type, value", options).where(f"type IN ({kinds})")
    plan = plan_of((row.position, bytes(row.value)) for row in first.select("position", "value").toLocalIterator())
    return fold(spark, path, plan.reducer, void=plan.void, **options)


def quorum(spark: SparkSession, path: str | os.PathLike[str], **options: object) -> tuple[int, VotersRecord | None]:
    """Return the kraft.version and the voters in force at the end of the log, or at `endOffset`: for a checkpoint.

    The twin is `kraftlib.analysis.compacting.quorum_at`.
    """
    given = {"include": "latest", "pin": _pinned(path, options), **options}
    check_whole(path, **given)
    said = read(spark, path, columns=QUORUM, **given)
    return quorum_columns(said.where(f"control_type IN ('{KRAFT_VERSION}', '{KRAFT_VOTERS}')").toArrow())


def increment(
    spark: SparkSession,
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    base: OffsetAndEpoch,
    target: OffsetAndEpoch,
    key: str = "key",
    value: str = "value",
    timestamp_ms: int = 0,
    **options: object,
) -> Path:
    """Write what changed from `base` to `target` as an incremental snapshot; return the file.

    The changes must fit into the memory of the driver; so they should, or a full checkpoint is the better choice.
    """
    between = {**options, "include": "log", "startOffset": base.offset, "endOffset": target.offset}
    changes = compact(spark, path, key=key, value=value, keep_deleted=True, **between)
    table = changes.sort("key").toArrow()
    return write_increment(table, Path(directory), base=base, target=target, timestamp_ms=timestamp_ms)


def metadata_increment(
    spark: SparkSession,
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    base: OffsetAndEpoch,
    target: OffsetAndEpoch,
    timestamp_ms: int = 0,
    **options: object,
) -> Path:
    """As `increment`, of the state of a Kafka cluster: its records are changes of each other, so two states differ.

    Both are folded from the beginning of the log, which an archive has.
    """
    given = {**options, "include": "log", "pin": _pinned(path, options)}
    before = metadata(spark, path, **given, endOffset=base.offset).withColumnRenamed("value", "was")
    after = metadata(spark, path, **given, endOffset=target.offset)
    changes = before.join(after, "key", "full_outer").where("NOT (was <=> value)").select("key", "value")
    table = changes.sort("key").toArrow()
    return write_increment(table, Path(directory), base=base, target=target, timestamp_ms=timestamp_ms)


def _rows(spark: SparkSession, path: str | os.PathLike[str], columns: str, options: dict[str, object]) -> DataFrame:
    """Return position and columns of the data records, of a pinned input."""
    if "columns" in options or "view" in options:
        raise ConfigError("a job chooses view and columns itself")
    given = {"include": "latest", "pin": _pinned(path, options), **options}
    check_whole(path, **given)
    frame = read(spark, path, columns=f"origin,control,offset,{columns.replace(' ', '')}", **given)
    return frame.where("NOT control").selectExpr(_POSITION, *columns.split(", "))


def _pinned(path: str | os.PathLike[str], options: dict[str, object]) -> str:
    if "pin" not in options:
        options["pin"] = pin(path)
    return str(options["pin"])


def _size(path: str | os.PathLike[str], options: dict[str, object]) -> int:
    return sum(size for _, size in json.loads(_pinned(path, options)))
