"""Checkpoints under audit: whole, within the log, alike in all replicas, and what the log comes to.

Replicas make a checkpoint each for itself, so bytes may differ where the state does not: states are compared. That of
Kafka's metadata is folded (`metadata_state`), and any other one is its records, in whatever order. The log of a
replica decides, if it reaches back to its beginning, can be folded, and nothing is wrong with it up to there; else the
majority does.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow.compute as pc

from kraftlib.analysis.audit_findings import Finding
from kraftlib.analysis.audit_rows import ReplicaRange
from kraftlib.analysis.log_files import Kind, Log
from kraftlib.analysis.metadata_state import metadata_state
from kraftlib.analysis.reading import options_of, read, read_splits, schema_for
from kraftlib.analysis.splits import chosen_files, plan
from kraftlib.errors import KraftError

_BITS: Final = 128

Fold = Callable[..., Iterable[tuple[bytes, bytes]]]
"""Returns key and value of the state of Kafka's metadata at a path, with options of reading: `metadata_rows`, or its
twin on Spark. Raises: KraftError, if there is no such metadata."""


@attrs.frozen(kw_only=True)
class _Checkpoint:
    log: Log
    replica: str
    path: str
    offset: int
    epoch: int

    @property
    def id(self) -> tuple[Log, int, int]:
        return self.log, self.offset, self.epoch


def metadata_rows(path: str, **options: object) -> Iterator[tuple[bytes, bytes]]:
    """Return key and value of the state of Kafka's metadata, folded in this process."""
    table = metadata_state(path, **options)
    return zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)


def snapshot_findings(
    path: str | os.PathLike[str],
    ranges: Sequence[ReplicaRange],
    fold: Fold,
    *,
    in_logs: Iterable[Finding],
    **options: object,
) -> list[Finding]:
    """Return what is wrong with the checkpoints below `path`; `in_logs` is what is wrong with the logs."""
    findings: list[Finding] = []
    sound: dict[tuple[Log, int, int], list[_Checkpoint]] = defaultdict(list)
    ends = {(found.log, found.replica): found.end for found in ranges}
    for row in _files(path, **options):
        checkpoint = _Checkpoint(
            log=(row["cluster"], row["topic"], row["partition"]),
            replica=row["replica"] or "",
            path=row["path"],
            offset=row["offset"],
            epoch=row["epoch"],
        )
        end = ends.get((checkpoint.log, checkpoint.replica))
        if row["problem"] is not None:
            findings.append(_finding(checkpoint, "snapshot", row["problem"]))
        elif end is not None and checkpoint.offset > end:
            what = f"it ends at {checkpoint.offset}, and the log of its replica at {end}"
            findings.append(_finding(checkpoint, "snapshot", what))
        else:
            sound[checkpoint.id].append(checkpoint)
    whole_logs = _whole_logs(path, ranges, in_logs, **options) if sound else {}
    for (log, offset, _), members in sound.items():
        directory, sound_until = whole_logs.get(log, (None, 0))
        log_state = _log_state(directory, offset, fold) if directory and offset <= sound_until else None
        findings += _compared(members, log_state, fold)
    return findings


def _files(path: str | os.PathLike[str], **options: object) -> Iterator[dict[str, Any]]:
    asked = options_of(path, **{**options, "view": "files"})
    # Of the files that are there: to look into the logs, too, would be to read everything twice.
    splits = [split for group in plan(asked) for split in group if split.file.kind is Kind.SNAPSHOT]
    for table in read_splits(splits, asked, schema_for(asked)):
        yield from table.to_pylist()


def _whole_logs(
    path: str | os.PathLike[str], ranges: Sequence[ReplicaRange], in_logs: Iterable[Finding], **options: object
) -> dict[Log, tuple[str, int]]:
    """Return the directory of a replica of each log that reaches back to its beginning, and the offset to which it is
    sound: of several replicas, one that is sound the farthest."""
    sound_until = {(found.log, found.replica): found.end for found in ranges if found.start == 0}
    for one in in_logs:
        key = (one.cluster, one.topic, one.partition), one.replica
        if key in sound_until:
            sound_until[key] = min(sound_until[key], one.start_offset or 0)
    directories: dict[Log, tuple[str, int]] = {}
    for file in chosen_files(options_of(path, **{**options, "include": "log"})):
        labels = file.labels
        log: Log = (labels.cluster, labels.topic, labels.partition)
        end = sound_until.get((log, labels.replica or ""))
        if end is not None and (log not in directories or directories[log][1] < end):
            directories[log] = file.directory, end
    return directories


def _log_state(directory: str, end_offset: int, fold: Fold) -> int | None:
    """Return the state of a log at `end_offset`, None if it cannot be determined."""
    try:
        return _sum(fold(directory, include="log", endOffset=end_offset))
    except KraftError:
        return None  # it is no metadata of Kafka's: others report damage


def _compared(members: Sequence[_Checkpoint], log_state: int | None, fold: Fold) -> list[Finding]:
    states = {member.replica: _state(member, fold) for member in members}
    if log_state is not None and None not in states.values():
        wrong = [member for member in members if states[member.replica] != log_state]
        return [_finding(member, "snapshot", "it does not say what the log comes to") for member in wrong]
    counts = Counter(state for state in states.values())
    if len(counts) == 1:
        return []
    (first, votes), (_, others) = counts.most_common(2)
    if votes > others:
        what = "its records are not those that most replicas have in the checkpoint of this id"
        return [_finding(member, "snapshot", what) for member in members if states[member.replica] != first]
    what = "checkpoints of this id differ, and nothing tells which of them is right"
    return [_finding(member, "undecided", what) for member in members]


def _state(checkpoint: _Checkpoint, fold: Fold) -> int:
    """Return the state of a sound checkpoint as a number: equal for equal states."""
    try:
        return _sum(fold(checkpoint.path))
    except KraftError:
        asked = options_of(checkpoint.path, columns="control,key,value")
        rows = (row for table in read(asked) for row in table.filter(pc.invert(table["control"])).to_pylist())
        return _sum((row["key"] or b"", row["value"] or b"") for row in rows)


def _sum(rows: Iterable[tuple[bytes, bytes]]) -> int:
    """Return a sum over rows that does not depend on their order."""
    total = 0
    for key, value in rows:
        head = len(key).to_bytes(8)
        total += int.from_bytes(hashlib.blake2b(head + key + value, digest_size=_BITS // 8).digest())
    return total % (1 << _BITS)


def _finding(checkpoint: _Checkpoint, kind: str, what: str) -> Finding:
    cluster, topic, partition = checkpoint.log
    return Finding(
        cluster=cluster,
        topic=topic,
        partition=partition,
        replica=checkpoint.replica,
        kind=kind,
        start_offset=None,
        end_offset=checkpoint.offset,
        segment=checkpoint.path,
        position=None,
        what=what,
        batches=0,
    )
