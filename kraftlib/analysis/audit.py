"""Replicas against each other: records that are missing, damaged or different in one and not in the others.

A CRC does not cover a batch's base offset, length and epoch, and a batch that was replaced by a sound one passes every
check; only the other replicas can tell (`audit_judge`). However long the log, only the offsets at which something is
wrong are judged.

Records that a replica does not have yet, or no longer has, are lag or compaction, and no finding. An uncommitted tail
of a voter that was cut off differs from the others rightly, and is reported all the same: nothing in its files says
that it was never committed. Every replica below the path is listed; one that has no record although others have is a
finding.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftlib.analysis.audit_findings import Finding
from kraftlib.analysis.audit_judge import IndexOf, LogJudge
from kraftlib.analysis.audit_rows import ReplicaRange, collapsed, rows_of
from kraftlib.analysis.audit_snapshots import metadata_rows, snapshot_findings
from kraftlib.analysis.audit_stretches import COLUMNS
from kraftlib.analysis.files import find_replicas
from kraftlib.analysis.log_files import Labels, Log, LogFile
from kraftlib.analysis.marks import IndexMarks
from kraftlib.analysis.options import ReadOptions
from kraftlib.analysis.reading import options_of, read, schema_for
from kraftlib.analysis.splits import chosen_files
from kraftlib.analysis.varints import Array
from kraftlib.errors import ConfigError

LOG: Final = ("cluster", "topic", "partition")
CONTENT: Final = (*LOG, "base_offset", "last_offset", "epoch", "length", "crc")


@attrs.frozen(kw_only=True)
class Audit:
    """The outcome."""

    replicas: tuple[ReplicaRange, ...]
    findings: tuple[Finding, ...]
    batches: int
    """Different batches that were compared."""


def audit(path: str | os.PathLike[str], **options: object) -> Audit:
    """Compare all replicas below `path` in one process: the twin of `kraftlib.spark.jobs.audit`.

    Raises: ConfigError, if nothing tells replicas apart, or none holds a batch.
    """
    asked = audit_options(path, **options)
    table = _table(asked)
    scope = scope_of(_edges(table), asked)
    findings: list[Finding] = []
    for log, rows in _by_log(table).items():
        findings += judged(log, rows, scope.of(log), index_of(asked))
    findings += snapshot_findings(path, scope.ranges, metadata_rows, in_logs=tuple(findings), **options)
    return concluded(scope, findings, batches=different(table))


def judged(log: Log, table: Any, ranges: Sequence[ReplicaRange], index_of: IndexOf) -> list[Finding]:
    """Return what is wrong with the replicas of one log. `table` may leave out offsets at which all agree."""
    return LogJudge(log, collapsed(rows_of(_suspicious(table, ranges))), ranges, index_of).findings()


def different(table: Any) -> int:
    """Return the number of different batches."""
    count: int = table.group_by(list(CONTENT)).aggregate([]).num_rows
    return count


FIXED: Final = {"view": "batches", "mode": "PERMISSIVE", "columns": COLUMNS, "include": "log"}
"""The options of an audit: the batches of logs, each with its faults."""


def audit_options(path: str | os.PathLike[str], **options: object) -> ReadOptions:
    """Return what an audit reads."""
    return options_of(path, **{**options, **FIXED})


# The things to compare -------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Scope:
    """The replicas of an audit, and those that have nothing to compare."""

    ranges: tuple[ReplicaRange, ...]
    empty: tuple[Finding, ...]

    def of(self, log: Log) -> list[ReplicaRange]:
        """Return the replicas of one log."""
        return [found for found in self.ranges if found.log == log]


def scope_of(rows: Iterable[Mapping[str, Any]], options: ReadOptions) -> Scope:
    """Return the offsets that each replica has, given last ones (`last_offset`). Segment names say where it begins.

    Raises: ConfigError, if no replica has a batch.
    """
    ends = ends_of(rows)
    if not ends:
        raise ConfigError(f"{options.path} holds no batch")
    newest: dict[Log, int] = defaultdict(int)
    for (log, _), end in ends.items():
        newest[log] = max(newest[log], end)
    segments = _segments(options)
    ranges, empty = [], []
    for labels, snapshot_end in find_replicas(options.path, logs=newest, layout=options.layout).items():
        log, replica = key = _place(labels)
        start = min((file.offset for file in segments[key]), default=snapshot_end)
        end = ends.get(key, start)
        ranges.append(ReplicaRange(log=log, replica=replica, start=start, end=end, lag=newest[log] - end))
        # A log that has just been replaced by a snapshot is empty rightly.
        if key not in ends and not (segments[key] and start == snapshot_end > 0):
            empty.append(_empty(log, replica, snapshot_end, segments[key]))
    return Scope(ranges=tuple(sorted(ranges)), empty=tuple(empty))


def ends_of(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Log, str], int]:
    """Return one past the greatest `last_offset` of each replica; none, if it has no such one."""
    ends: dict[tuple[Log, str], int] = {}
    for row in rows:
        if row["last_offset"] is not None:
            ends[_key(row)] = max(ends.get(_key(row), 0), row["last_offset"] + 1)
    return ends


def starts_of(options: ReadOptions) -> dict[tuple[Log, str], int]:
    """Return the offset at which each replica that has segments begins."""
    return {key: min(file.offset for file in files) for key, files in _segments(options).items()}


def _segments(options: ReadOptions) -> dict[tuple[Log, str], list[LogFile]]:
    segments: dict[tuple[Log, str], list[LogFile]] = defaultdict(list)
    for file in chosen_files(options):
        segments[_place(file.labels)].append(file)
    return segments


def _empty(log: Log, replica: str, snapshot_end: int, segments: Sequence[LogFile]) -> Finding:
    cluster, topic, partition = log
    what = "its segments are empty" if segments else "it has no segment"
    kept = f", and its newest checkpoint ends at {snapshot_end}" if snapshot_end else ""
    return Finding(
        cluster=cluster,
        topic=topic,
        partition=partition,
        replica=replica,
        kind="empty",
        start_offset=None,
        end_offset=None,
        segment=segments[0].path if segments else None,
        position=None,
        what=f"{what}{kept}: there is nothing to compare",
        batches=0,
    )


def _place(labels: Labels) -> tuple[Log, str]:
    return (labels.cluster, labels.topic, labels.partition), labels.replica or ""


def _key(row: Mapping[str, Any]) -> tuple[Log, str]:
    return (row["cluster"], row["topic"], row["partition"]), row["replica"] or ""


def _table(options: ReadOptions) -> Any:
    table = pa.Table.from_batches(list(read(options)), schema=schema_for(options))
    return table.set_column(table.column_names.index("replica"), "replica", pc.fill_null(table["replica"], ""))


def _edges(table: Any) -> list[dict[str, Any]]:
    """Return the last offset of each replica, as far as it can be believed."""
    reliable = table.filter(pc.or_(pc.is_null(table["problem"]), pc.is_null(table["length"])))
    last = pc.coalesce(reliable["last_offset"], reliable["base_offset"])
    edges = reliable.append_column("last", last).group_by([*LOG, "replica"])
    return list(edges.aggregate([("last", "max")]).rename_columns({"last_max": "last_offset"}).to_pylist())


def _suspicious(table: Any, ranges: Sequence[ReplicaRange]) -> Any:
    """Return the batches of offsets at which something is wrong, or a replica lacks what it should have; of one log."""
    groups = table.group_by(list(CONTENT)).aggregate([("replica", "count_distinct"), ("problem", "count")])
    table = table.sort_by([(name, "ascending") for name in ("replica", "segment", "position")])
    base = pc.fill_null(groups["base_offset"], -1).to_numpy()
    holders, problems = (groups[name].to_numpy() for name in ("replica_count_distinct", "problem_count"))
    expected = np.zeros(len(groups), dtype=np.int64)
    for found in ranges:
        expected += (found.start <= base) & (base < found.end)
    wrong = (base < 0) | (problems > 0) | (holders < expected) | pc.is_null(groups["length"]).to_numpy()
    last = np.maximum(base, pc.fill_null(groups["last_offset"], -1).to_numpy())
    first = pc.fill_null(table["base_offset"], -1).to_numpy()
    ultimate = np.maximum(first, pc.fill_null(table["last_offset"], -1).to_numpy())

    def overlapping(starts: Array, ends: Array) -> Array:
        # As many ranges begin up to the last offset of a batch as end before its first one, where none overlaps it.
        return np.searchsorted(np.sort(starts), ultimate, "right") > np.searchsorted(np.sort(ends), first, "left")

    suspicious = overlapping(base[wrong], last[wrong]) | (first < 0)
    # And their neighbours in the file, with what others have there: a range that cannot be read ends at the next batch.
    suspicious[1:] |= suspicious[:-1]
    suspicious[:-1] |= suspicious[1:]
    return table.filter(pa.array(suspicious | overlapping(first[suspicious], ultimate[suspicious])))


def _by_log(table: Any) -> dict[Log, Any]:
    out: dict[Log, Any] = {}
    for row in table.group_by(list(LOG)).aggregate([]).to_pylist():
        log: Log = (row["cluster"], row["topic"], row["partition"])
        mask = np.ones(len(table), dtype=bool)
        for name, value in zip(LOG, log, strict=True):
            column = table[name]
            mask &= (pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)).to_numpy()
        out[log] = table.filter(pa.array(mask))
    return out


def index_of(options: ReadOptions) -> IndexOf:
    """Return what finds the index of a segment. It can be sent to another process."""
    return partial(_index_of, {file.path: file for file in chosen_files(options)})


def _index_of(files: Mapping[str, LogFile], segment: str) -> IndexMarks | None:
    file = files.get(segment)
    return None if file is None else IndexMarks.of(file)


# Conclusions --------------------------------------------------------------------------------------


def concluded(scope: Scope, findings: Iterable[Finding], *, batches: int) -> Audit:
    """Return the outcome, in order."""

    def order(finding: Finding) -> tuple[object, ...]:
        place = (finding.cluster, finding.topic, finding.partition, finding.replica)
        return *map(str, place), finding.start_offset or 0, finding.kind

    return Audit(replicas=scope.ranges, findings=tuple(sorted([*findings, *scope.empty], key=order)), batches=batches)
