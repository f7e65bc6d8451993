"""What a log directory holds after a stop of any kind: every batch is looked at before one is believed.

A replica may forget only what it never acknowledged. So there are two kinds of bad bytes:

* a **torn tail**: nothing whole stands behind them. They were being written when the machine stopped, nobody was told
  that they are safe, and they are cut off, durably, before anything is appended there;
* **damage**: a whole batch stands behind them, or a snapshot reaches beyond them, or they are a whole batch in the
  wrong place. Records that were acknowledged may be gone. Nothing is cut, and the log does not open.

What was read may still be on its way to the disk, if only the process stopped and not the machine; so it is synced
before anybody is told that it is there. Epoch starts and indexes are caches and come out of the same scan. A snapshot
that is newer than the log means that the replica stopped between a download and the truncation which follows it: that
is finished here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage import files, names
from kraftlib.storage.epoch_file import EpochTable
from kraftlib.storage.index import SegmentIndex
from kraftlib.storage.salvage import has_whole_batch, has_whole_batch_behind
from kraftlib.storage.segment import Segment, batches_in
from kraftlib.storage.snapshot_files import list_snapshots
from kraftlib.types import Offset, OffsetAndEpoch

logger: Final = logging.getLogger(__name__)


@attrs.define
class RecoveredLog:
    """What a scan of the whole directory found."""

    directory: Path
    snapshots: list[OffsetAndEpoch]
    segments: list[Segment] = attrs.Factory(list)
    """Ascending; the last one is to grow. At least one, once recovery has ended."""
    epochs: EpochTable = attrs.Factory(EpochTable)
    end_offset: Offset = 0
    control_batches: list[Batch] = attrs.Factory(list)
    """Those in the log: what voters and protocol version follow from."""

    @property
    def start_offset(self) -> Offset:
        """Base offset of the first segment: where the log starts is not kept anywhere else."""
        return self.segments[0].base_offset

    @property
    def is_empty(self) -> bool:
        """Whether there is no batch."""
        return self.start_offset == self.end_offset


def recover(directory: Path, *, file_mode: int) -> RecoveredLog:
    """Scan a log directory and leave it as one that was closed well.

    Raises: CorruptBatchError that names file and position, if there is damage; StorageError, if the log begins beyond
    offset 0 and no snapshot covers what is missing.
    """
    remove_left_overs(directory)
    log = RecoveredLog(directory, list_snapshots(directory))
    bases = sorted(base for base in map(names.parse_segment_name, files.list_names(directory)) if base is not None)
    for base_offset in bases:
        bad = _scan(log, base_offset)
        if bad is not None:
            _cut_torn_tail(log, bad, later=[base for base in bases if base > log.segments[-1].base_offset])
            break
    _begin_after_snapshot(log, file_mode=file_mode)
    _check_start(log)
    for segment in log.segments[:-1]:
        if not segment.has_index_files():
            segment.write_index_files(mode=file_mode)
        segment.forget_index()
    files.sync_directory(directory)
    return log


def remove_left_overs(directory: Path) -> None:
    """Remove what a process that went down in the middle of something left behind."""
    for name in files.list_names(directory):
        if names.is_left_over(name):
            files.remove(directory / name)


def _scan(log: RecoveredLog, base_offset: Offset) -> CorruptBatchError | None:
    """Add the segment of this base offset to `log`; return where bad bytes begin, if there are any."""
    if log.segments and base_offset != log.end_offset:
        last = log.segments[-1]
        return CorruptBatchError(
            f"{last.path} ends at offset {log.end_offset}, the next segment begins at {base_offset}",
            path=last.path,
            position=last.size,
        )
    segment = Segment(log.directory, base_offset)
    segment.index = SegmentIndex(base_offset)
    log.segments.append(segment)
    log.end_offset = base_offset
    misplaced: Batch | None = None
    descriptor = files.open_existing(segment.path)
    try:
        for batch in batches_in(descriptor, segment.path, 0, files.size_of(segment.path)):
            if batch.base_offset != log.end_offset or batch.epoch < log.epochs.latest_epoch:
                misplaced = batch
                break
            _take(log, segment, batch)
        with files.storage_errors("sync", segment.path):
            files.sync_data(descriptor)
    except CorruptBatchError as bad:
        return bad
    finally:
        os.close(descriptor)
    if misplaced is not None:
        raise _damage(
            f"{segment.path}, position {segment.size}: {misplaced!r} does not continue a log that ends at"
            f" {log.end_offset} in epoch {log.epochs.latest_epoch}",
            segment.path,
            segment.size,
        )
    return None


def _take(log: RecoveredLog, segment: Segment, batch: Batch) -> None:
    """Take note of the next batch."""
    if batch.epoch != log.epochs.latest_epoch:
        log.epochs.assign(batch.epoch, batch.base_offset)
    if segment.size == 0:
        segment.first_timestamp = batch.max_timestamp
    if batch.is_control:
        log.control_batches.append(_copied(batch))
    segment.index.add(batch, segment.size)
    segment.size += len(batch.data)
    log.end_offset = batch.last_offset + 1


def _copied(batch: Batch) -> Batch:
    """Return the batch with bytes of its own, so that it does not keep all that was read with it."""
    return Batch(
        batch.base_offset, batch.last_offset, batch.epoch, batch.is_control, batch.max_timestamp, bytes(batch.data)
    )


def _cut_torn_tail(log: RecoveredLog, bad: CorruptBatchError, later: Sequence[Offset]) -> None:
    """Cut the log where the bad bytes begin, and all segments behind. Raises: CorruptBatchError, if they are damage."""
    segment = log.segments[-1]
    if log.snapshots and log.snapshots[-1].offset > log.end_offset:
        raise _damage(f"{bad}; snapshot {log.snapshots[-1]} reaches beyond it", segment.path, segment.size)
    if has_whole_batch_behind(segment.path, segment.size, expected_offset=log.end_offset):
        raise _damage(f"{bad}; whole batches stand behind it", segment.path, segment.size)
    for base_offset in later:
        path = log.directory / names.segment_name(base_offset)
        if has_whole_batch(path, base_offset):
            raise _damage(f"{bad}; {path.name} behind it has whole batches", segment.path, segment.size)
    torn = files.size_of(segment.path) - segment.size
    logger.warning("%s: a torn tail of %d bytes is cut off at offset %d: %s", segment.path, torn, log.end_offset, bad)
    for base_offset in reversed(later):
        Segment(log.directory, base_offset).remove_files()
    segment.remove_index_files()
    cut(segment.path, segment.size)
    files.sync_directory(log.directory)


def _damage(what: str, path: Path, position: int) -> CorruptBatchError:
    return CorruptBatchError(
        f"{what}. This is damage, no torn tail: nothing was cut. Give this replica a new, empty directory, and it"
        " fetches the log from the others",
        path=path,
        position=position,
    )


def cut(path: Path, size: int) -> None:
    """Cut a file to `size`, durably."""
    descriptor = files.open_existing(path, files.WRITE)
    with files.storage_errors("cut", path):
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _begin_after_snapshot(log: RecoveredLog, *, file_mode: int) -> None:
    """Begin the log anew at the end of the newest snapshot, if that is beyond it, or at all, if there is no log."""
    newest = log.snapshots[-1] if log.snapshots else None
    if not log.segments:
        _restart(log, newest.offset if newest else 0, file_mode=file_mode)
    elif newest is not None and _is_beyond(log, newest):
        where, end_offset = log.directory, log.end_offset
        logger.warning("%s: snapshot %s replaces the log, which ends at %d", where, newest, end_offset)
        _restart(log, newest.offset, file_mode=file_mode)
        log.snapshots = drop_snapshots_before(log.directory, log.snapshots, newest)


def _is_beyond(log: RecoveredLog, snapshot_id: OffsetAndEpoch) -> bool:
    if log.is_empty and log.end_offset == snapshot_id.offset:
        return False
    return snapshot_id > OffsetAndEpoch(offset=log.end_offset, epoch=log.epochs.latest_epoch)


def _restart(log: RecoveredLog, offset: Offset, *, file_mode: int) -> None:
    log.segments = [restart_at(log.directory, offset, file_mode=file_mode)]
    log.epochs, log.end_offset, log.control_batches = EpochTable(), offset, []


def restart_at(directory: Path, offset: Offset, *, file_mode: int) -> Segment:
    """Remove every segment and create an empty one at `offset`, durably.

    From the last to the first, so that a stop in between leaves a shorter log, which is still behind the snapshot.
    """
    for name in reversed(files.list_names(directory)):
        if names.parse_name_of_segment_file(name) is not None or names.parse_producer_state_name(name) is not None:
            files.remove(directory / name)
    segment = Segment(directory, offset)
    segment.index = SegmentIndex(offset)
    os.close(files.create(segment.path, mode=file_mode))
    files.sync_directory(directory)
    return segment


def drop_snapshots_before(
    directory: Path, snapshots: Sequence[OffsetAndEpoch], snapshot_id: OffsetAndEpoch
) -> list[OffsetAndEpoch]:
    """Remove the snapshots that are older than this one; return those that remain."""
    for older in snapshots:
        if older < snapshot_id:
            files.remove(directory / names.checkpoint_name(older))
    return [kept for kept in snapshots if kept >= snapshot_id]


def _check_start(log: RecoveredLog) -> None:
    """Check that a snapshot covers what was deleted before the start of the log, and drop those below."""
    start_offset = log.start_offset
    if start_offset > 0 and (not log.snapshots or log.snapshots[-1].offset < start_offset):
        raise StorageError(
            f"{log.directory} has a log that begins at {start_offset} and no snapshot of what stood before: give this"
            " replica a new, empty directory, and it fetches everything from the others",
            path=log.directory,
        )
    covering = next((kept for kept in log.snapshots if kept.offset >= start_offset), None)
    if covering is not None:
        log.snapshots = drop_snapshots_before(log.directory, log.snapshots, covering)
