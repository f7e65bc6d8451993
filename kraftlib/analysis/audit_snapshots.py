"""Checkpoints under audit: whole, within the log, of its epoch, alike in all replicas, and what the log comes to.

Replicas make a checkpoint each for itself, so bytes may differ where the state does not: states are compared. That of
Kafka's metadata is folded (`metadata_state`), and any other one is its records, in whatever order. The log of a
replica decides, if it reaches back to its beginning, can be folded, and nothing is wrong with it up to there; else the
majority does. With the checkpoint of offset 0 a node was formatted: it is nothing that a log came to.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import pyarrow.compute as pc

from kraftlib.analysis.audit_findings import Finding
from kraftlib.analysis.audit_rows import ReplicaRange
from kraftlib.analysis.log_files import Kind, Log, LogFile
from kraftlib.analysis.metadata_state import FoldError, metadata_state
from kraftlib.analysis.ranged_files import named
from kraftlib.analysis.reading import options_of, read, read_splits, schema_for
from kraftlib.analysis.splits import chosen_files, plan
from kraftlib.errors import KraftError
from kraftlib.metadata import decode_record
from kraftlib.types import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch

_BITS: Final = 128

Fold = Callable[..., Iterable[tuple[bytes, bytes]]]
"""Returns key and value of the state of Kafka's metadata at a path, with options of reading: `metadata_rows`, or its
twin on Spark. Raises: KraftError, if there is no such metadata."""


@attrs.frozen(kw_only=True)
class _Checkpoint:
    log: Log
    replica: str
    path: str
    place: str
    """Names it to a reader; beside `path`, for one in a store."""
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
    for file, row in _files(path, **options):
        checkpoint = _Checkpoint(
            log=(row["cluster"], row["topic"], row["partition"]),
            replica=row["replica"] or "",
            path=file.path,
            place=named(file.root, file.path),
            offset=row["offset"],
            epoch=row["epoch"],
        )
        end = ends.get((checkpoint.log, checkpoint.replica))
        if row["problem"] is not None:
            findings.append(_finding(checkpoint, "snapshot", row["problem"]))
        elif end is not None and checkpoint.offset > end:
            what = f"it ends at {checkpoint.offset}, and the log of its replica at {end}"
            findings.append(_finding(checkpoint, "snapshot", what))
        elif OffsetAndEpoch(offset=checkpoint.offset, epoch=checkpoint.epoch) != BOOTSTRAP_SNAPSHOT:
            sound[checkpoint.id].append(checkpoint)
    in_logs = tuple(in_logs)
    directories = _directories(path, **options) if sound else {}
    whole_logs = _whole_logs(directories, ranges, in_logs)
    for (log, offset, epoch), members in sound.items():
        in_log = _epoch_before(log, offset, directories, ranges, in_logs)
        if in_log not in (None, epoch):
            what = f"it is of epoch {epoch}, and the record before offset {offset} has epoch {in_log} in the log"
            findings += [_finding(member, "snapshot", what) for member in members]
            continue
        directory, sound_until = whole_logs.get(log, (None, 0))
        # The jobs of a fold that fails fill the log of Spark: of another state machine none is begun.
        fold_of = fold if all(map(_may_be_metadata, members)) else _no_fold
        log_state = _log_state(directory, offset, fold_of) if directory and offset <= sound_until else None
        findings += _compared(members, log_state, fold_of)
    return findings


def _files(path: str | os.PathLike[str], **options: object) -> Iterator[tuple[LogFile, dict[str, Any]]]:
    asked = options_of(path, **{**options, "view": "files"})
    # Of the files that are there: to look into the logs, too, would be to read everything twice.
    splits = [split for group in plan(asked) for split in group if split.file.kind is Kind.SNAPSHOT]
    for split, table in zip(splits, read_splits(splits, asked, schema_for(asked)), strict=True):
        yield split.file, *table.to_pylist()


def _directories(path: str | os.PathLike[str], **options: object) -> dict[tuple[Log, str], str]:
    """Return where the segments of each replica are, as a reader is told it."""
    files = chosen_files(options_of(path, **{**options, "include": "log"}))
    return {
        ((file.labels.cluster, file.labels.topic, file.labels.partition), file.labels.replica or ""): named(
            file.root, file.directory
        )
        for file in files
    }


def _whole_logs(
    directories: Mapping[tuple[Log, str], str], ranges: Iterable[ReplicaRange], in_logs: Iterable[Finding]
) -> dict[Log, tuple[str, int]]:
    """Return the directory of a replica of each log that reaches back to its beginning, and the offset to which it is
    sound: of several replicas, one that is sound the farthest."""
    sound_until = {(found.log, found.replica): found.end for found in ranges if found.start == 0}
    for one in in_logs:
        key = (one.cluster, one.topic, one.partition), one.replica
        if key in sound_until:
            sound_until[key] = min(sound_until[key], one.start_offset or 0)
    found: dict[Log, tuple[str, int]] = {}
    for (log, replica), directory in directories.items():
        end = sound_until.get((log, replica))
        if end is not None and (log not in found or found[log][1] < end):
            found[log] = directory, end
    return found


def _epoch_before(
    log: Log,
    offset: int,
    directories: Mapping[tuple[Log, str], str],
    ranges: Iterable[ReplicaRange],
    in_logs: Iterable[Finding],
) -> int | None:
    """Return the epoch of the record before `offset`, by a replica in which nothing is wrong there; None if no such."""
    last = offset - 1
    harmed = {
        one.replica
        for one in in_logs
        if (one.cluster, one.topic, one.partition) == log
        and (one.start_offset or 0) <= last
        and (one.end_offset is None or last <= one.end_offset)
    }
    for found in ranges:
        if found.log == log and found.start <= last < found.end and found.replica not in harmed:
            asked = options_of(
                directories[log, found.replica], view="batches", mode="PERMISSIVE", include="log",
                columns="last_offset,epoch,problem", startOffset=last, endOffset=offset,
            )  # fmt: skip
            for row in (row for table in read(asked) for row in table.to_pylist()):
                if row["problem"] is None and row["last_offset"] == last:
                    return int(row["epoch"])
    return None


def _may_be_metadata(checkpoint: _Checkpoint) -> bool:
    """Whether the first record of a sound checkpoint, if it has one, is a record of Kafka's metadata."""
    for table in read(options_of(checkpoint.place, columns="control,value")):
        for row in table.to_pylist():
            if not row["control"]:
                try:
                    decode_record(row["value"] or b"")
                except KraftError:
                    return False
                return True
    return True


def _no_fold(path: str, **_: object) -> Iterator[tuple[bytes, bytes]]:
    raise FoldError(f"{path} holds no metadata of Kafka's")


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
        return _sum(fold(checkpoint.place))
    except KraftError:
        asked = options_of(checkpoint.place, columns="control,key,value")
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
