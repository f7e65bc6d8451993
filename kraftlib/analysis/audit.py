"""Replicas against each other: what is missing, damaged or different in one that the others have.

A CRC does not cover a batch's base offset, length and epoch, and a batch that was replaced by a sound one passes every
check; only the other replicas can tell. KRaft copies batches byte by byte, so equal offsets mean equal epoch, length
and CRC. Batches are grouped by all of these, a group names the replicas that have exactly this batch, and only groups
that do not name all of them are looked at: however long the log, that is what is wrong with it.

A chain rule that a batch seems to break is no finding when another replica has the very same batch and breaks none:
then its neighbour is wrong. What a replica has not yet, or has no more, is lag or compaction, and no finding. An
uncommitted tail of a voter that was cut off differs from the others rightly, and is reported all the same: nothing in
its files says that it was never committed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kraftlib.analysis.audit_stretches import BATCH, COLUMNS
from kraftlib.analysis.files import Kind
from kraftlib.analysis.options import ReadOptions
from kraftlib.analysis.reading import options_of, read, read_splits, schema_for
from kraftlib.analysis.splits import chosen_files, plan
from kraftlib.errors import ConfigError

Log = tuple[str | None, str | None, int | None]
"""Cluster, topic, partition."""

KEYS: Final = ("cluster", "topic", "partition", *BATCH)


@attrs.frozen(kw_only=True, order=True)
class ReplicaRange:
    """The offsets that one replica of a log has: [start, end)."""

    log: Log = attrs.field(order=lambda log: tuple(map(str, log)))
    replica: str
    start: int
    end: int
    lag: int = 0
    """How many offsets the most advanced replica has beyond it."""


@attrs.frozen(kw_only=True)
class Group:
    """A batch, or what cannot be read of one, and the replicas that have exactly this."""

    log: Log
    base_offset: int | None
    last_offset: int | None
    epoch: int | None
    length: int | None
    """None: not a batch but a place where one should be."""
    crc: int | None
    crc_ok: bool | None
    problem: str | None
    replicas: frozenset[str]
    position: int
    """Of one of the replicas; exact where there is only one."""
    segment: str | None

    @property
    def content(self) -> tuple[int | None, ...]:
        """What replicas must agree on."""
        return self.last_offset, self.epoch, self.length, self.crc

    @property
    def is_sound(self) -> bool:
        """Whether it is a batch whose CRC fits."""
        return self.length is not None and self.crc_ok is True


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that is wrong with one replica."""

    cluster: str | None
    topic: str | None
    partition: int | None
    replica: str
    kind: str
    """`crc`, `unreadable`, `missing`, `offset`, `differs`, `chain`, `snapshot`; `undecided`, if none has a majority."""
    start_offset: int | None
    end_offset: int | None
    segment: str | None
    position: int | None
    what: str


@attrs.frozen(kw_only=True)
class Audit:
    """The outcome."""

    replicas: tuple[ReplicaRange, ...]
    findings: tuple[Finding, ...]
    batches: int
    """Different batches that were compared."""


def audit(path: str | os.PathLike[str], **options: object) -> Audit:
    """Compare all replicas below `path` in one process: the twin of `kraftlib.spark.jobs.audit`.

    Raises: ConfigError, if nothing tells replicas apart.
    """
    asked = audit_options(path, **options)
    table = _table(asked)
    groups = groups_of(table)
    ranges = ranges_of(_edges(table), asked)
    return judged(suspicious(groups, ranges), ranges, snapshot_findings(path, **options), batches=len(groups))


FIXED: Final = {"view": "batches", "mode": "PERMISSIVE", "columns": COLUMNS, "include": "log"}
"""The options of an audit: the batches of logs, each with what is wrong with it."""


def audit_options(path: str | os.PathLike[str], **options: object) -> ReadOptions:
    """Return what an audit reads."""
    return options_of(path, **{**options, **FIXED})


def _table(options: ReadOptions) -> Any:
    tables = list(read(options))
    if not tables:
        raise ConfigError(f"{options.path} holds no batch")
    table = pa.Table.from_batches(tables)
    return table.set_column(table.column_names.index("replica"), "replica", pc.fill_null(table["replica"], ""))


def _edges(table: Any) -> list[dict[str, Any]]:
    """Return the last offset of each replica, as far as it can be believed."""
    reliable = table.filter(pc.or_(pc.is_null(table["problem"]), pc.is_null(table["length"])))
    last = pc.coalesce(reliable["last_offset"], reliable["base_offset"])
    edges = reliable.append_column("last", last).group_by(["cluster", "topic", "partition", "replica"])
    return list(edges.aggregate([("last", "max")]).rename_columns({"last_max": "last_offset"}).to_pylist())


def snapshot_findings(path: str | os.PathLike[str], **options: object) -> list[Finding]:
    """Return the snapshots below `path` that are no whole snapshots."""
    asked = options_of(path, **{**options, "view": "files"})
    # Of the files that are there: to look into the logs, too, would be to read everything twice.
    splits = [split for group in plan(asked) for split in group if split.file.kind is Kind.SNAPSHOT]
    tables = read_splits(splits, asked, schema_for(asked))
    return [
        Finding(
            cluster=row["cluster"],
            topic=row["topic"],
            partition=row["partition"],
            replica=row["replica"] or "",
            kind="snapshot",
            start_offset=None,
            end_offset=row["offset"],
            segment=row["path"],
            position=None,
            what=row["problem"],
        )
        for table in tables
        for row in table.to_pylist()
        if row["problem"] is not None
    ]


def groups_of(table: Any) -> list[Group]:
    """Return the batches of replicas (columns COLUMNS) in groups that have all of KEYS alike."""
    grouped = table.group_by(list(KEYS), use_threads=False).aggregate(
        [("replica", "list"), ("position", "min"), ("segment", "min")]
    )
    renamed = grouped.rename_columns({"replica_list": "replicas", "position_min": "position", "segment_min": "segment"})
    return [_group(row) for row in renamed.to_pylist()]


def suspicious(groups: Sequence[Group], ranges: Sequence[ReplicaRange]) -> list[Group]:
    """Return the groups that are suspect, and all others of the same offsets."""
    suspects = {(group.log, group.base_offset) for group in groups if is_suspect(group, ranges)}
    return [group for group in groups if (group.log, group.base_offset) in suspects]


def _group(row: dict[str, Any]) -> Group:
    return Group(
        log=(row["cluster"], row["topic"], row["partition"]),
        replicas=frozenset(row["replicas"]),
        position=row["position"],
        segment=row["segment"],
        **{name: row[name] for name in BATCH},
    )


def ranges_of(rows: Iterable[dict[str, Any]], options: ReadOptions) -> tuple[ReplicaRange, ...]:
    """Return the offsets that each replica has, with its lag. Where a log begins, the names of its segments say."""
    starts: dict[tuple[Log, str], int] = {}
    for file in chosen_files(options):
        labels = file.labels
        key = ((labels.cluster, labels.topic, labels.partition), labels.replica or "")
        starts[key] = min(starts.get(key, file.offset), file.offset)
    ranges = [
        ReplicaRange(
            log=(row["cluster"], row["topic"], row["partition"]),
            replica=row["replica"],
            start=starts[(row["cluster"], row["topic"], row["partition"]), row["replica"]],
            end=row["last_offset"] + 1,
        )
        for row in rows
        if row["last_offset"] is not None
    ]
    ends: dict[Log, int] = defaultdict(int)
    for found in ranges:
        ends[found.log] = max(ends[found.log], found.end)
    return tuple(sorted(attrs.evolve(found, lag=ends[found.log] - found.end) for found in ranges))


def is_suspect(group: Group, ranges: Sequence[ReplicaRange]) -> bool:
    """Whether there is something to be said of a group: a problem, or a replica that should have it and lacks it."""
    base = group.base_offset
    if base is None or group.problem is not None:
        return True
    return len(group.replicas) < sum(found.log == group.log and found.start <= base < found.end for found in ranges)


# Judging -------------------------------------------------------------------------------------------


def judged(
    groups: Iterable[Group], ranges: Sequence[ReplicaRange], snapshots: Sequence[Finding], *, batches: int
) -> Audit:
    """Return the findings that follow from the suspects and all other groups of the same offsets."""
    by_log: dict[Log, list[Group]] = defaultdict(list)
    for group in groups:
        by_log[group.log].append(group)
    findings = list(snapshots)
    for log, members in by_log.items():
        findings += _LogJudge(log, members, [found for found in ranges if found.log == log]).findings()
    findings.sort(key=lambda f: (*map(str, (f.cluster, f.topic, f.partition, f.replica)), f.start_offset or 0, f.kind))
    return Audit(replicas=tuple(ranges), findings=tuple(findings), batches=batches)


class _LogJudge:
    """Finds what is wrong with the replicas of one log."""

    def __init__(self, log: Log, groups: Sequence[Group], ranges: Sequence[ReplicaRange]) -> None:
        self.log = log
        self.ranges = ranges
        self.by_base: dict[int, list[Group]] = defaultdict(list)
        self.strays: list[Group] = []
        for group in groups:
            if group.base_offset is None:
                self.strays.append(group)
            else:
                self.by_base[group.base_offset].append(group)
        self.out: list[Finding] = []

    def findings(self) -> list[Finding]:
        missing: dict[str, dict[int, Group]] = defaultdict(dict)
        suspects: dict[str, list[Group]] = defaultdict(list)
        for base, groups in sorted(self.by_base.items()):
            expected = self.replicas_at(base)
            winner = self.winner(base)
            for group in groups:
                if winner is None or group.content != winner.content or not self.is_exonerated(group):
                    for replica in group.replicas:
                        suspects[replica].append(group)
            present = {replica for group in groups if group.length is not None for replica in group.replicas}
            if winner is not None:
                for replica in expected - present:
                    missing[replica][base] = winner
        for stray in self.strays:
            for replica in stray.replicas:
                suspects[replica].append(stray)
        for replica in sorted({*missing, *suspects}):
            self.conclude(replica, suspects[replica], missing[replica])
        return self.out

    def replicas_at(self, base: int) -> set[str]:
        """Return the replicas that should have this offset."""
        return {found.replica for found in self.ranges if found.start <= base < found.end}

    def winner(self, base: int) -> Group | None:
        """Return the batch that most replicas have there, None if none can be told."""
        holders: dict[tuple[int | None, ...], set[str]] = defaultdict(set)
        found: dict[tuple[int | None, ...], Group] = {}
        for group in self.by_base[base]:
            if group.is_sound:
                holders[group.content] |= group.replicas
                if group.problem is None or group.content not in found:
                    found[group.content] = group
        # One that breaks a rule loses against one, held by as many, that does not.
        ranked = sorted(
            found, key=lambda content: (len(holders[content]), found[content].problem is None), reverse=True
        )
        if not ranked:
            return None
        first = found[ranked[0]]
        if len(ranked) > 1 and len(holders[ranked[0]]) == len(holders[ranked[1]]):
            return first if first.problem is None and found[ranked[1]].problem is not None else None
        # A batch that few have, of an offset that most lack, is more likely out of place.
        return first if 2 * len(holders[ranked[0]]) > len(self.replicas_at(base)) else None

    def is_exonerated(self, group: Group) -> bool:
        """Whether some replica has the very same batch and it breaks no rule there."""
        same = [other for other in self.by_base[group.base_offset or 0] if other.content == group.content]
        return group.is_sound and any(other.is_sound and other.problem is None for other in same)

    def conclude(self, replica: str, suspects: list[Group], lacking: dict[int, Group]) -> None:
        """Report on one replica: what it has and should not have, then what it lacks and nothing explains."""
        for group in suspects:
            base = group.base_offset
            if group.length is None:
                end = self.explain(lacking, base)
                self.report(replica, "unreadable", base, end, group, group.problem or "")
            elif group.crc_ok is False:
                self.report(replica, "crc", base, group.last_offset, group, group.problem or "its CRC does not fit")
            else:
                self.differs(replica, group, lacking)
        run: list[int] = []
        for base in sorted(lacking):
            if run and self.next_base(run, lacking) != base:
                self.report_missing(replica, run, lacking)
                run = []
            run.append(base)
        if run:
            self.report_missing(replica, run, lacking)

    def explain(self, lacking: dict[int, Group], base: int | None) -> int | None:
        """Take the offsets that are missing from `base` on out of `lacking`; return where they end."""
        end = base
        while end is not None and end in lacking:
            end = (lacking.pop(end).last_offset or end) + 1
        return end

    def differs(self, replica: str, group: Group, lacking: dict[int, Group]) -> None:
        base = group.base_offset or 0
        moved = next(
            (b for b, winner in lacking.items() if (winner.length, winner.crc) == (group.length, group.crc)), None
        )
        if moved is not None:
            what = f"its base offset is {base}, it should be {moved}"
            self.report(replica, "offset", moved, self.next_base([moved], lacking) - 1, group, what)
            del lacking[moved]
            return
        winner = self.winner(base)
        if winner is not None and winner.content == group.content:
            self.report(replica, "chain", base, group.last_offset, group, group.problem or "")
        elif winner is None:
            self.report(
                replica, "undecided", base, group.last_offset, group, "replicas differ, and none has a majority"
            )
        else:
            names = ("last_offset", "epoch", "length", "crc")
            pairs = zip(names, group.content, winner.content, strict=True)
            what = ", ".join(f"{name} {ours}, most have {theirs}" for name, ours, theirs in pairs if ours != theirs)
            self.report(replica, "differs", base, group.last_offset, group, what or group.problem or "")

    def next_base(self, run: list[int], lacking: dict[int, Group]) -> int:
        return (lacking[run[-1]].last_offset or run[-1]) + 1

    def report_missing(self, replica: str, run: list[int], lacking: dict[int, Group]) -> None:
        end = self.next_base(run, lacking)
        what = f"the offsets from {run[0]} up to {end} are missing, and other replicas have them"
        self.report(replica, "missing", run[0], end, None, what)

    def report(
        self, replica: str, kind: str, start: int | None, last: int | None, group: Group | None, what: str
    ) -> None:
        end = last if kind in ("missing", "unreadable") or last is None else last + 1
        cluster, topic, partition = self.log
        self.out.append(
            Finding(
                cluster=cluster,
                topic=topic,
                partition=partition,
                replica=replica,
                kind=kind,
                start_offset=start,
                end_offset=end,
                segment=group.segment if group else None,
                position=group.position if group else None,
                what=what,
            )
        )
