"""Recovery of a log directory at a start, after a stop of any kind.

A replica may forget only records that it never acknowledged. So there are two kinds of bad bytes:

* a **torn tail**: no whole batch follows the bad bytes, and no note says that they were durable. They were being
  written when the machine stopped and were never acknowledged. They are cut off, durably, before anything is appended;
* **damage**: a whole batch or segment follows the bad bytes, or the sync point or a snapshot lies beyond them, or a
  whole batch stands in the wrong place. Records that were acknowledged may be gone. Nothing is cut.

Behind an **exact** sync point nothing was ever acknowledged, so bad bytes there are a torn tail, even before whole
batches. If there should be a sync point and none can be read, a bad tail is **doubtful**: it is treated as damage,
unless it is all zeros or too short for a batch.

Only the end of the log is read, from the position in `kraftlib-prefix.json` on; the rest is checked when it is read,
and by the scrubber. The bytes that were read may still be on their way to the disk, if only the process stopped and
not the machine, so they are synced before the replica acknowledges them. A snapshot that is newer than the log means
that the replica stopped between a download and the truncation which follows it: that is finished here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.storage import files, names
from kraftlib.storage.damage.judgement import (
    Judgement,
    is_of_other_files,
    is_void,
    judge,
    note_known,
    should_have_sync_point,
)
from kraftlib.storage.damage.missing import begin_before, begin_without_segments, end_of, had_segments, keep_last_epoch
from kraftlib.storage.damage.recovered_log import RecoveredLog
from kraftlib.storage.damage.scan import scan_segment
from kraftlib.storage.log.chain import restart_at
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.prefix import KnownPrefix, is_believed
from kraftlib.storage.log.sync_point import NOTHING, SyncPoint, read_sync_point, replace_sync_point
from kraftlib.storage.snapshots.damaged_snapshots import (
    LostSnapshot,
    fault_at_start,
    kept_aside,
    read_snapshot,
    set_aside,
)
from kraftlib.storage.snapshots.snapshot_files import drop_snapshots_before, list_snapshots
from kraftlib.types import Offset, OffsetAndEpoch

logger: Final = logging.getLogger(__name__)


def recover(directory: Path, *, file_mode: int, keep_damage: bool = False) -> RecoveredLog:
    """Scan a log directory and leave it as one that was closed well.

    With `keep_damage`, what is damaged is left for a repair, as `holes`, and the log is as long as it ever was. Raises:
    else CorruptBatchError that names file and position; StorageError, if the log begins beyond offset 0 and no snapshot
    covers what is missing.
    """
    remove_left_overs(directory)
    log = RecoveredLog(directory, list_snapshots(directory))
    if keep_damage:
        _set_damaged_snapshots_aside(log, file_mode=file_mode)
    bases = sorted(base for base in map(names.parse_segment_name, files.list_names(directory)) if base is not None)
    note = _read_note(log, file_mode=file_mode)
    _read(log, bases)
    if not bases and had_segments(log, note):
        begin_without_segments(log, file_mode=file_mode, keep_damage=keep_damage)
    else:
        found = judge(log, doubtful=note is None and should_have_sync_point(directory))
        _act_on(log, found, keep_damage=keep_damage)
        _begin_after_snapshot(log, file_mode=file_mode, keep_damage=keep_damage)
    if keep_damage:
        log.lost_snapshots += _lost_before(log)
    if not _is_covered(log) and keep_damage:
        if log.known_start > log.segments[0].base_offset and files.remove(directory / names.PREFIX):
            # The records below the first segment are wanted again, and the notes do not list its content.
            return _again(log, file_mode=file_mode)
        begin_before(log, file_mode=file_mode)
    else:
        _check_start(log)
    if log.noted_end == 0:
        # Once the log has grown, the notes of another log would be believed of this one. The sync below makes it go.
        files.remove(directory / names.PREFIX)
    _cut_zero_tails(log)
    for segment in log.segments[:-1]:
        if segment.lacks_index_files:
            segment.write_index_files(mode=file_mode)
        segment.forget_index()
    files.sync_directory(directory)
    return log


def _read_note(log: RecoveredLog, *, file_mode: int) -> SyncPoint | None:
    """Return the note of the durable offset, and believe it unless it is void."""
    note = read_sync_point(log.directory)
    if note is None or not is_void(log.directory, note):
        log.sync_point = note
    elif not note.claims_nothing:
        logger.warning("%s: Kafka has written since %s was noted: all is read", log.directory, note.mark)
        replace_sync_point(log.directory, NOTHING, file_mode=file_mode)
    return note


def _read(log: RecoveredLog, bases: Sequence[Offset]) -> None:
    """Read the part of the log that is not known yet."""
    known = _known_prefix(log, bases)
    if known is not None and log.take_over(known):
        bases = [base for base in bases if base >= known.mark.segment]
    for base_offset in bases:
        scan_segment(log, base_offset)


def _known_prefix(log: RecoveredLog, bases: Sequence[Offset]) -> KnownPrefix | None:
    """Return what is known of the log without being read; None, if nothing is, or if these are other files."""
    note, known = log.sync_point, note_known(log)
    if note is None:
        return None
    if is_of_other_files(log.directory, note, bases):
        logger.warning(
            "%s: %s is not the file of which %s tells, but a copy, or changed since: the whole log is read,"
            " and the records up to the durable offset %d must be there",
            log.directory,
            names.segment_name(note.mark.segment),
            names.SYNC_POINT,
            note.mark.end_offset,
        )
        return None
    return known if known is not None and is_believed(known, note.mark, log.directory, bases) else None


# The verdict --------------------------------------------------------------------------------------


def _act_on(log: RecoveredLog, found: Judgement, *, keep_damage: bool) -> None:
    """Cut a torn tail. Raises: CorruptBatchError, with nothing changed, for damage that is not to be kept."""
    if found.damaged and not keep_damage:
        alone = len(found.damaged) == len(log.holes) == 1
        why = found.why if found.why is not None and alone else "whole batches stand behind it"
        raise _damage(log, found.damaged[0], why)
    if found.torn is not None:
        _cut_torn_tail(log, found.torn)
    elif log.holes:
        last = log.holes[-1]
        if log.sync_point is not None:
            keep_last_epoch(log.epochs, end_of(log.sync_point.mark), log.end_offset)
        if last.end_offset == last.start_offset and last.end_position is None:
            # The number of missing records is unknown: at least one record.
            log.is_doubtful = True
            log.end_offset = last.start_offset + 1
            log.holes[-1] = attrs.evolve(last, end_offset=log.end_offset)


def _cut_torn_tail(log: RecoveredLog, hole: Hole) -> None:
    """Cut the log where the bad bytes begin, with the empty segments behind."""
    last = next(segment for segment in log.segments if segment.base_offset == hole.segment)
    torn, end_offset = files.size_of(last.path) - hole.position, hole.start_offset
    logger.warning("%s: a torn tail of %d bytes is cut off at offset %d: %s", last.path, torn, end_offset, hole.reason)
    while log.segments[-1] is not last:
        log.segments.pop().remove_files()
    last.remove_index_files()
    files.cut(last.path, hole.position)
    files.sync_directory(log.directory)
    log.end_offset = end_offset
    del log.holes[log.holes.index(hole) :]


def _cut_zero_tails(log: RecoveredLog) -> None:
    """Cut off zeros behind the last batch of a segment: they were written ahead, and are no records."""
    for segment in log.zero_tails:
        if segment in log.segments:
            surplus = files.size_of(segment.path) - segment.size
            logger.info("%s: %d zeros that were written ahead are cut off", segment.path, surplus)
            segment.remove_index_files()
            files.cut(segment.path, segment.size)


def _damage(log: RecoveredLog, hole: Hole, why: str) -> CorruptBatchError:
    return CorruptBatchError(
        f"{hole.reason}; {why}. This is damage, no torn tail: nothing was cut. Give this replica a new, empty"
        " directory, and it fetches the log from the others",
        path=log.directory / names.segment_name(hole.segment),
        position=hole.position,
    )


def remove_left_overs(directory: Path) -> None:
    """Remove what a process that went down in the middle of something left behind."""
    for name in files.list_names(directory):
        if names.is_left_over(name):
            files.remove(directory / name)


def _set_damaged_snapshots_aside(log: RecoveredLog, *, file_mode: int) -> None:
    """Count no snapshot of which a glance shows that it is not whole."""
    for snapshot_id in list(log.snapshots):
        reason = fault_at_start(log.directory, snapshot_id)
        if reason is not None:
            _set_aside(log, snapshot_id, reason, file_mode=file_mode)


def _set_aside(log: RecoveredLog, snapshot_id: OffsetAndEpoch, reason: str, *, file_mode: int) -> None:
    log.lost_snapshots.append(set_aside(log.directory, snapshot_id, reason, file_mode=file_mode))
    log.snapshots.remove(snapshot_id)


def _lost_before(log: RecoveredLog) -> list[LostSnapshot]:
    """Return the snapshots that were lost in an earlier life, unless another one stands in for their records.

    Their headers say who votes, and until the repair has ended nothing else may.
    """
    missing_end = log.start_offset
    if missing_end == 0 and log.holes and log.holes[0].start_offset == 0:
        missing_end = log.holes[0].end_offset
    if missing_end == 0 or log.snapshots:
        return []
    known = [lost.snapshot_id for lost in log.lost_snapshots]
    return [
        lost
        for lost in kept_aside(log.directory)
        if missing_end <= lost.snapshot_id.offset <= log.end_offset and lost.snapshot_id not in known
    ]


def _begin_after_snapshot(log: RecoveredLog, *, file_mode: int, keep_damage: bool) -> None:
    """Begin the log anew at the end of the newest snapshot, if that is beyond it, or at all, if there is no log.

    The whole log then relies on that snapshot, so it is read to its end first.
    """
    newest = log.snapshots[-1] if log.snapshots else None
    if newest is not None and keep_damage and (not log.segments or _is_beyond(log, newest)):
        try:
            read_snapshot(log.directory, newest)
        except CorruptBatchError as error:
            _set_aside(log, newest, str(error), file_mode=file_mode)
            _begin_after_snapshot(log, file_mode=file_mode, keep_damage=keep_damage)
            return
    if not log.segments:
        _restart(log, newest.offset if newest else 0, file_mode=file_mode)
    elif newest is not None and _is_beyond(log, newest):
        where, end_offset = log.directory, log.end_offset
        logger.warning("%s: snapshot %s replaces the log, which ends at %d", where, newest, end_offset)
        _restart(log, newest.offset, file_mode=file_mode)
        log.snapshots = drop_snapshots_before(log.directory, log.snapshots, newest)


def _is_beyond(log: RecoveredLog, snapshot_id: OffsetAndEpoch) -> bool:
    """Whether a snapshot reaches beyond the log, or is of a later epoch than its last record: then that record was
    never committed, and the snapshot was to replace the log."""
    if snapshot_id.offset < log.start_offset or (log.is_empty and log.end_offset == snapshot_id.offset):
        return False
    if log.holes:
        return _was_left_behind(log, snapshot_id)
    return snapshot_id.offset > log.end_offset or snapshot_id.epoch > log.epochs.latest_epoch


def _was_left_behind(log: RecoveredLog, snapshot_id: OffsetAndEpoch) -> bool:
    """Whether a log with missing records parts from the committed one before the end of a snapshot: its last record is
    at that end or behind, can be read, and is of an earlier epoch.

    Epochs never fall: so nothing from the last record of the snapshot on was ever committed here, and the snapshot has
    all before. If the last record is missing, it may be of that epoch, and acknowledged.
    """
    is_last_there = log.holes[-1].end_offset < log.end_offset
    noted_epoch = -1 if log.sync_point is None else log.sync_point.mark.end_epoch
    is_later = snapshot_id.epoch > max(log.epochs.latest_epoch, noted_epoch)
    return is_last_there and is_later and snapshot_id.offset <= log.end_offset


def _restart(log: RecoveredLog, offset: Offset, *, file_mode: int) -> None:
    if log.segments:
        replace_sync_point(log.directory, NOTHING, file_mode=file_mode)
    log.segments = [restart_at(log.directory, offset, file_mode=file_mode)]
    log.epochs, log.end_offset, log.control_batches, log.known_start = EpochTable(), offset, [], offset
    log.holes = []


def _is_covered(log: RecoveredLog) -> bool:
    """Whether a snapshot has what was deleted before the start of the log."""
    return log.start_offset == 0 or (bool(log.snapshots) and log.snapshots[-1].offset >= log.start_offset)


def _again(log: RecoveredLog, *, file_mode: int) -> RecoveredLog:
    """Recover once more, without the notes, and remember the snapshots that were lost."""
    found = recover(log.directory, file_mode=file_mode, keep_damage=True)
    found.lost_snapshots += log.lost_snapshots
    return found


def _check_start(log: RecoveredLog) -> None:
    """Check that a snapshot covers what was deleted before the start of the log, and drop those below."""
    start_offset = log.start_offset
    if not _is_covered(log):
        raise StorageError(
            f"{log.directory} has a log that begins at {start_offset} and no snapshot of the records before it: give"
            " this replica a new, empty directory, and it fetches everything from the others",
            path=log.directory,
        )
    covering = next((kept for kept in log.snapshots if kept.offset >= start_offset), None)
    if covering is not None:
        log.snapshots = drop_snapshots_before(log.directory, log.snapshots, covering)
