"""Parts of a log of which nothing is left: its segments, all of them or the first ones, or the snapshot before them.

A new replica has no segment either, nor has one that stopped between the removal of its log and the new segment behind
a downloaded snapshot. Notes elsewhere tell them apart: the sync point says how far the log was durable, and is lowered
to nothing before a log is removed on purpose; `kraftlib.json` and `leader-epoch-checkpoint` say that there was one at
all.

The missing records become a hole like any other, in an empty segment that is made where it begins; the repair fills it,
or takes a snapshot of the leader's in its place.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.storage import files, names
from kraftlib.storage.damage.recovered_log import RecoveredLog
from kraftlib.storage.election.store import doubt_vote
from kraftlib.storage.log.epochs import EpochTable, decode_epochs
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.index import SegmentIndex
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.sync_point import UNKNOWN_CRC, Mark, SyncPoint, replace_sync_point
from kraftlib.types import Offset, OffsetAndEpoch

logger: Final = logging.getLogger(__name__)

_SMALL_MAX_BYTES: Final = 1 << 20


def had_segments(log: RecoveredLog, noted: SyncPoint | None) -> bool:
    """Whether a directory without any segment had some that were not removed on purpose."""
    if log.sync_point is not None:
        return True
    # A note that claims nothing was written by us when nothing was there, or before all of it was removed.
    return (noted is None or not noted.claims_nothing) and _log_was_opened(log.directory)


def _log_was_opened(directory: Path) -> bool:
    if (directory / names.HAS_RUN).exists():
        return True
    data = files.read_file(directory / names.EPOCH_CHECKPOINT, max_bytes=_SMALL_MAX_BYTES, may_be_lost=True)
    try:
        return data is not None and len(decode_epochs(data)) > 0
    except StorageError:
        return True


def begin_without_segments(log: RecoveredLog, *, file_mode: int, keep_damage: bool) -> None:
    """Let a log of which no segment is left be as long as it is known to have been, all of it missing.

    Raises: CorruptBatchError, unless damage is to be kept.
    """
    note = log.sync_point
    known = f"its log was durable up to {note.mark.end_offset}" if note is not None else "a replica has run there"
    reason = f"{log.directory} has no segment left, and {known}"
    if not keep_damage:
        raise CorruptBatchError(
            f"{reason}. This is damage: give this replica a new, empty directory, and it fetches the log from the"
            " others",
            path=log.directory,
            position=0,
        )
    logger.error("%s: it is fetched again, and this replica grants no vote before it has all", reason)
    doubt_vote(log.directory, file_mode=file_mode)
    start_offset = log.snapshots[-1].offset if log.snapshots else 0
    end_offset = start_offset if note is None else max(start_offset, note.mark.end_offset)
    log.segments = [_make_segment(log, start_offset, note if end_offset > start_offset else None, file_mode=file_mode)]
    log.end_offset, log.is_doubtful = end_offset, True
    if note is None or end_offset == start_offset:
        return
    log.epochs.assign(max(note.mark.end_epoch, 0), start_offset)
    log.holes = [_hole(start_offset, end_offset, reason)]


def begin_before(log: RecoveredLog, *, file_mode: int) -> None:
    """Count as missing what stands before the first segment and in no snapshot."""
    base_offset = log.segments[0].base_offset
    begin = max((kept.offset for kept in log.snapshots if kept.offset < base_offset), default=0)
    log.known_start = begin
    if begin == base_offset:
        return
    hole = missing_before(log.directory, begin, base_offset)
    for end in _known_ends(log):
        keep_last_epoch(log.epochs, end, log.end_offset)
    if log.epochs.latest_epoch < 0:
        # The epoch of the last record is unknown, and the next start finds empty segments only.
        doubt_vote(log.directory, file_mode=file_mode)
        log.is_doubtful = True
    elif log.is_empty:
        # Durably, before the segments that could tell are as empty as those of a new log.
        replace_sync_point(log.directory, log.mark, file_mode=file_mode)
    log.segments.insert(0, make_empty_segment(log.directory, begin, file_mode=file_mode))
    log.holes.insert(0, hole)


def _known_ends(log: RecoveredLog) -> list[OffsetAndEpoch]:
    """Return the ends of the lost snapshots and of the log that was noted as durable."""
    ends = [lost.snapshot_id for lost in log.lost_snapshots]
    if log.sync_point is not None:
        ends.append(end_of(log.sync_point.mark))
    return ends


def end_of(mark: Mark) -> OffsetAndEpoch:
    """Return the end of a log as its mark tells it; epoch -1, if there was no record."""
    return OffsetAndEpoch(offset=mark.end_offset, epoch=mark.end_epoch)


def keep_last_epoch(epochs: EpochTable, lost_end: OffsetAndEpoch, end_offset: Offset) -> None:
    """Note the epoch of the last record of a log of which nothing is left: elections compare it."""
    if epochs.latest_epoch < 0 <= lost_end.epoch and 0 < lost_end.offset == end_offset:
        epochs.assign(lost_end.epoch, end_offset - 1)


def missing_before(directory: Path, begin: Offset, base_offset: Offset) -> Hole:
    """Return the hole between a snapshot, or the beginning of everything, and the first segment."""
    reason = f"{directory} has a log that begins at {base_offset}, and nothing from {begin} to there, nor a snapshot"
    logger.error("%s", reason)
    return _hole(begin, base_offset, reason)


def _hole(start_offset: Offset, end_offset: Offset, reason: str) -> Hole:
    """Return a hole that is all there is of a segment."""
    return Hole(segment=start_offset, position=0, start_offset=start_offset, end_offset=end_offset, reason=reason)


def make_empty_segment(directory: Path, base_offset: Offset, *, file_mode: int) -> Segment:
    """Make a segment for the missing records, durably; one of that name may be there, if it has only what is
    missing."""
    files.replace_file(directory / names.segment_name(base_offset), b"", mode=file_mode)
    return _empty_segment(directory, base_offset)


def _empty_segment(directory: Path, base_offset: Offset) -> Segment:
    segment = Segment(directory, base_offset)
    segment.index = SegmentIndex(base_offset)
    segment.remove_index_files()
    return segment


def _make_segment(log: RecoveredLog, base_offset: Offset, note: SyncPoint | None, *, file_mode: int) -> Segment:
    """Make an empty segment; with a note, one that the note then names, so that it stays valid."""
    if note is None:
        return make_empty_segment(log.directory, base_offset, file_mode=file_mode)
    path = log.directory / names.segment_name(base_offset)
    temporary = path.with_name(path.name + ".tmp")
    files.remove(temporary)
    descriptor = files.create(temporary, mode=file_mode)
    try:
        with files.storage_errors("sync", temporary):
            inode = os.fstat(descriptor).st_ino
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # The note first: of a file that it does not name it would count no more, and the log for an empty one.
    named = note.mark._replace(segment=base_offset, inode=inode, crc=UNKNOWN_CRC)
    replace_sync_point(log.directory, named, file_mode=file_mode)
    files.rename(temporary, path)
    files.sync_directory(log.directory)
    return _empty_segment(log.directory, base_offset)
