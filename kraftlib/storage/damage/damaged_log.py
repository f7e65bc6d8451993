"""A log with holes: the place at which it can begin behind a hole, and the repair of a hole.

A hole stays until another replica has sent its records, or a snapshot replaces them. Until then the log keeps its end
offset, and takes no new records.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import attrs

from kraftlib.errors import StorageError, ensure
from kraftlib.records.batch import Batch
from kraftlib.storage import files
from kraftlib.storage.damage.damaged_segments import DamagedSegments
from kraftlib.storage.damage.missing import keep_last_epoch, make_empty_segment, missing_before
from kraftlib.storage.damage.repair import HoleRepair, remove_repairs
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.growing_log import GrowingLog
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.prefix import tells_of_voters
from kraftlib.storage.log.unsynced import forget_unsynced, read_unsynced
from kraftlib.storage.reserve import NoSpaceError, is_full
from kraftlib.types import EpochStart, Offset, OffsetAndEpoch

logger: Final = logging.getLogger(__name__)

_REWRITE_BYTES: Final = 8 << 20


class DamagedLog:
    """Finds, steps over and repairs the holes of a log. For the disk thread, while the loop waits."""

    def __init__(self, log: GrowingLog) -> None:
        self._log: Final = log
        self._segments: Final = DamagedSegments(
            log.directory, log.segments, file_mode=log.file_mode, reserve=log.reserve
        )
        self._repair: HoleRepair | None = None

    def find(self, offset: Offset) -> None:
        """Read the segment that has this record, all of it, and note what is missing there."""
        log = self._log
        found = self._segments.holes_in_segment_of(offset, log.epochs, log.holes)
        log.holes = tuple(sorted([*log.holes, *found], key=_start_of))

    def look_closely(self) -> None:
        """Read damaged segments from their beginning: the scan may have begun in the midst, where it was told to."""
        log = self._log
        for base_offset in sorted({hole.segment for hole in log.holes}):
            known = [hole for hole in log.holes if hole.segment == base_offset]
            wider = self._segments.holes_in_segment_of(base_offset, log.epochs, ())
            if wider and wider[0].start_offset < known[0].start_offset and wider[-1].end_offset >= known[-1].end_offset:
                kept = [hole for hole in log.holes if hole.segment != base_offset]
                log.holes = tuple(sorted([*kept, *wider], key=_start_of))

    def leave_behind(self, offset: Offset) -> None:
        """Let a segment begin at `offset` if there are bad bytes before that in the one that has it."""
        log = self._log
        below = self._segments.holes_before(offset, log.holes)
        position = self._segments.place_behind(below[-1], offset) if below else None
        if position is None:
            return
        log.flush()
        self.drop_repair()
        log.forget_prefix()
        files.sync_directory(log.directory)  # before there is a segment that the notes do not know
        log.holes = tuple(log.failure.guard(lambda: self._segments.split(offset, position, log.holes)))

    def drop_below(self, offset: Offset) -> None:
        """Nothing is missing there any more: a snapshot has it."""
        log = self._log
        left = tuple(hole for hole in log.holes if hole.end_offset > offset)
        if len(left) < len(log.holes):
            self.drop_repair()
            log.holes = left
            if not left:
                log.failure.guard(self._note_whole)

    def _note_whole(self) -> None:
        """Nothing is missing any more. If there was a cut that could not be synced, that is made up for."""
        log = self._log
        noted = read_unsynced(log.directory)
        if noted is not None:
            self.renew_last_file()
        log.sync_point.replace(log.segments.mark)
        if noted is not None:
            forget_unsynced(log.directory)

    def renew_last_file(self) -> None:
        """Let a copy take the place of the last file, which may be longer on the disk than it seems."""
        self._log.forget_prefix()
        files.sync_directory(self._log.directory)  # before there is a file that the notes do not know
        self._segments.renew()

    def write_unsynced_again(self, durable_offset: Offset) -> None:
        """Copy what lies behind the place at which a sync failed, and behind `durable_offset`, to a new file."""
        log = self._log
        noted = read_unsynced(log.directory)
        if noted is None:
            return
        first = min(max(log.start_offset, noted.flushed_offset, durable_offset), log.end_offset)
        if log.holes:  # a damaged log does not grow
            if first < log.end_offset:
                raise StorageError(
                    f"{log.directory}: a sync failed in an earlier life, and records that were durable then are"
                    " damaged: give this replica a new, empty directory, and it fetches everything from the others",
                    path=log.directory,
                )
            return
        logger.warning(
            "%s: a sync failed in an earlier life, so all from offset %d on is written again", log.directory, first
        )
        batches: list[Batch] = []
        while (offset := batches[-1].end_offset if batches else first) < log.end_offset:
            batches += log.segments.read(offset, _REWRITE_BYTES)
        log.truncate(first)
        if noted.was_cut:
            self.renew_last_file()
        else:
            log.segments.roll()  # not into blocks that could not be written once
        for batch in batches:
            log.append([batch])
        log.flush()
        forget_unsynced(log.directory)

    def lose_beginning(self, lost: OffsetAndEpoch) -> None:
        """Count as missing all before the first segment, which only a snapshot had that is lost."""
        log = self._log
        log.segments.open_files.remove_condemned()  # records that are fetched again may bear their names
        self._reach_back()
        keep_last_epoch(log.epochs, lost, log.end_offset)
        log.forget_prefix()
        base_offset = log.segments.present[0].base_offset
        if base_offset == 0:
            return
        hole = missing_before(log.directory, 0, base_offset)
        if log.end_offset == base_offset:  # the segments are as empty as those of a new log
            mark = log.segments.mark._replace(end_epoch=log.epochs.latest_epoch)
            log.segments.mark = mark
            log.sync_point.replace(mark)
        empty = log.reserve.spend(lambda: make_empty_segment(log.directory, 0, file_mode=log.file_mode))
        log.segments.rearrange((empty, *log.segments.present))
        log.holes = (hole, *log.holes)

    def _reach_back(self) -> None:
        """Learn again what the first segment has below the start of the log."""
        log = self._log
        epochs, controls = EpochTable(), []
        for batch in self._segments.batches_below(log.start_offset):
            epochs.assign(batch.epoch, batch.base_offset)
            if batch.is_control and tells_of_voters(batch):
                controls.append(batch)
        for start in log.epochs.starts():
            epochs.assign(start.epoch, start.start_offset)
        known = [batch for batch in log.controls if batch.base_offset >= log.start_offset]
        log.epochs, log.controls = epochs, (*controls, *known)

    # Repair -----------------------------------------------------------------------------------------

    def write_repair(self, batches: Sequence[Batch]) -> bool:
        """Put batches into the first hole; return whether the log has now, durably, what was put there.

        The hole is full then, or these batches do not fit into its segment: then they are wanted once more. Raises:
        NoSpaceError, if there is no space for it: the log is as it was, and the repair begins anew.
        """
        log = self._log
        ensure(log.holes, "there is nothing to repair")
        if self._repair is not None and self._repair.hole != log.holes[0]:
            self.drop_repair()  # another hole was found before it meanwhile
        try:
            if self._repair is None:
                self._repair = HoleRepair(log.directory, log.holes[0], file_mode=log.file_mode)
            repair = self._repair
            if repair.fits(batches, log.segments.segment_bytes) and not repair.write(batches):
                return False
            self._segments.prepare(repair)
        except StorageError as error:
            if not is_full(error):
                raise
            self.drop_repair()
            remove_repairs(log.directory)
            raise NoSpaceError(str(error), path=log.directory) from error
        self._repair = None
        log.failure.guard(lambda: self._finish_repair(repair))
        return True

    def _finish_repair(self, repair: HoleRepair) -> None:
        log, hole, next_offset = self._log, repair.hole, repair.next_offset
        rest: list[Hole] = []
        if next_offset < hole.end_offset:
            self._segments.begin_behind(hole.segment, next_offset)
            rest = [attrs.evolve(hole, segment=next_offset, position=0, start_offset=next_offset)]
        with closing(repair):
            self._segments.swap(repair)
        end_offset = max(log.end_offset, next_offset)
        epochs = EpochTable(start for start in log.epochs.starts() if start.start_offset < hole.start_offset)
        later = [start for start in log.epochs.starts() if start.start_offset >= next_offset]
        if rest:  # of which only that may be known
            later = [EpochStart(epoch=log.epochs.epoch_before(next_offset + 1), start_offset=next_offset), *later]
        for start in [*repair.epochs, *later]:
            if start.epoch > epochs.latest_epoch:
                epochs.assign(start.epoch, start.start_offset)
        log.epochs = epochs
        known = [b for b in log.controls if not hole.start_offset <= b.base_offset < next_offset]
        log.controls = tuple(sorted([*known, *repair.controls], key=lambda batch: batch.base_offset))
        log.holes = (*rest, *log.holes[1:])
        log.end_offset = log.flushed_offset = end_offset
        log.segments.mark = log.segments.mark._replace(end_offset=end_offset, end_epoch=epochs.latest_epoch)
        log.write_epochs()
        if not log.holes:
            log.forget_prefix()
            self._note_whole()
        remove_repairs(log.directory)
        logger.warning("%s: offsets %d to %d are repaired", log.directory, hole.start_offset, next_offset)

    def drop_repair(self) -> None:
        """Give up what was fetched so far."""
        if self._repair is not None:
            self._repair.close()
            self._repair = None


def _start_of(hole: Hole) -> Offset:
    return hole.start_offset
