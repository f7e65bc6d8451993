"""The judgement of bad bytes in a log: a torn tail, or damage. A start acts on it, and `verify-dir` only reports it.

The scanned log is compared with the note of its durable end (`kraftlib.storage.log.sync_point`). The note may be older
than the log, but never claims too much, so any record that the note covers and the log lacks is damage. The note is
**void** if Kafka has written since: Kafka does not keep the note and may have truncated the log. A `quorum-state`
without our CRC shows that.

If the note names another file, the directory was copied or a file was put back. The note still holds: the bytes up to
the noted place must have the noted CRC. A whole copy passes; a damaged copy is reported as damaged and does not open
shorter. Only the notes that make a start fast are not used then, and the whole log is read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kraftlib.frozen import immutable
from kraftlib.records.batch import HEADER_SIZE
from kraftlib.storage import files, names
from kraftlib.storage.damage.recovered_log import RecoveredLog
from kraftlib.storage.election.store import kafka_wrote_last, we_wrote_last
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.prefix import KnownPrefix, read_prefix
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.sync_point import SyncPoint
from kraftlib.types import Offset


@immutable(kw_only=True)
class Judgement:
    """The verdict on the holes of a log."""

    damaged: Sequence[Hole]
    """Holes in which records are missing that may have been acknowledged."""
    torn: Hole | None
    """The hole at which a torn tail begins, or None: nothing from there on was ever acknowledged."""
    why: str | None
    """The reason why the last damaged hole is no torn tail; None if there is no damage."""


def is_void(directory: Path, note: SyncPoint) -> bool:
    """Whether a note says nothing about the log: it claims nothing, or Kafka has written since."""
    return note.claims_nothing or kafka_wrote_last(directory)


def is_of_other_files(directory: Path, note: SyncPoint, bases: Sequence[Offset]) -> bool:
    """Whether the segment of a note is another file, or one that was changed after our clean end."""
    if note.mark.segment not in bases:
        return False  # the file is gone, which is what the note is there to notice
    path = directory / names.segment_name(note.mark.segment)
    with files.storage_errors("look at", path):
        found = os.stat(path, follow_symlinks=False)
    return found.st_ino != note.mark.inode or note.mtime_ns not in (0, found.st_mtime_ns)


def note_known(log: RecoveredLog) -> KnownPrefix | None:
    """Return what was noted of the log up to some place, and let the scan compare the epochs; None, if nothing was.

    That of other files holds, too: a copy has the same batches.
    """
    note = log.sync_point
    known = None if note is None else read_prefix(log.directory)
    if note is None or known is None or known.mark.end_offset > note.mark.end_offset:
        return None
    log.noted_epochs, log.noted_end = EpochTable(known.epochs), known.mark.end_offset
    return known


def should_have_sync_point(directory: Path) -> bool:
    """Whether the log is one that we have kept a sync point for, so that it was there once."""
    return (directory / names.SYNC_POINT).exists() or we_wrote_last(directory)


def judge(log: RecoveredLog, *, doubtful: bool) -> Judgement:
    """Say which holes are damage and where a torn tail begins. The end of the log moves to its last durable offset.

    `doubtful`: the note of the durable offset should exist, and cannot be read.
    """
    _note_missing_end(log)
    damaged, why = list(log.holes), None
    while damaged and (why := _objection(log, damaged[-1], doubtful=doubtful)) is None:
        damaged.pop()  # several segments may have been begun, and none of them synced
    torn = log.holes[len(damaged)] if len(damaged) < len(log.holes) else None
    return Judgement(damaged=damaged, torn=torn, why=why)


def _objection(log: RecoveredLog, hole: Hole, *, doubtful: bool) -> str | None:
    """Return why a hole is no torn tail, with nothing whole behind it; None if it is."""
    if log.is_torn and hole is log.holes[-1]:
        return None
    behind = [segment for segment in log.segments if segment.base_offset > hole.segment]
    if hole.was_durable:
        return "whole batches stand behind it, or stood there"
    if any(segment.size > 0 for segment in behind):
        return f"{behind[0].path.name} behind it has whole batches"
    if log.snapshots and log.snapshots[-1].offset > hole.start_offset:
        return f"snapshot {log.snapshots[-1]} reaches beyond it"
    if log.sync_point is not None and log.sync_point.mark.end_offset > hole.start_offset:
        return f"the log was durable up to {log.sync_point.mark.end_offset}"
    last = next(segment for segment in log.segments if segment.base_offset == hole.segment)
    if doubtful and not _is_no_batch(last):
        return f"{names.SYNC_POINT}, which would tell a torn tail from damage, is lost"
    return None


def _note_missing_end(log: RecoveredLog) -> None:
    """Compare the end of the log with the sync point: records that it names beyond the end are missing. The end moves
    there.

    Unless a newer epoch stands there: then the log was cut and written on by a program that knows no sync points.
    """
    note = log.sync_point
    if note is None or note.mark.end_offset <= log.end_offset:
        return
    if log.epochs.latest_epoch > note.mark.end_epoch and not log.holes:
        log.sync_point = None
        return
    end, segment = note.mark.end_offset, log.segments[-1]
    reason = f"{segment.path}, position {segment.size}: the log ends at {log.end_offset} and was durable up to {end}"
    position, start_offset = segment.size, log.end_offset
    if log.holes and log.holes[-1].segment == segment.base_offset:
        last = log.holes.pop()
        position, start_offset, reason = last.position, last.start_offset, f"{last.reason}; {reason}"
    log.holes.append(
        Hole(segment=segment.base_offset, position=position, start_offset=start_offset, end_offset=end, reason=reason)
    )
    log.end_offset = end
    if note.mark.end_epoch > log.epochs.latest_epoch:
        log.epochs.assign(note.mark.end_epoch, start_offset)


def _is_no_batch(segment: Segment) -> bool:
    """Whether what stands behind the last whole batch is zeros, or too short for a batch."""
    size = files.size_of(segment.path) - segment.size
    if size < HEADER_SIZE:
        return True
    with files.opened(segment.path) as descriptor, files.storage_errors("read", segment.path):
        return all(
            not any(files.read_at(descriptor, 1 << 20, at)) for at in range(segment.size, segment.size + size, 1 << 20)
        )
