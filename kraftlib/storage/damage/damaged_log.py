"""A log some of which is missing: where it is cut, where it goes on behind a hole, and how a hole is filled.

A hole is what was there and is not; `kraftlib.storage.damage.scan` finds it, and it stays until others have sent what
it held, or a snapshot stands in. The log is as long as ever meanwhile, and does not grow.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from kraftlib.errors import StorageError, ensure
from kraftlib.records.batch import Batch
from kraftlib.storage import files
from kraftlib.storage.damage.repair import HoleRepair, remove_repairs
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.growing_log import GrowingLog
from kraftlib.storage.log.prefix import controls_up_to, tells_of_voters
from kraftlib.storage.log.sync_point import Mark
from kraftlib.storage.log.unsynced import forget_unsynced, read_unsynced
from kraftlib.storage.reserve import NoSpaceError, is_full
from kraftlib.types import Offset, OffsetRange

logger: Final = logging.getLogger(__name__)


class DamagedLog(GrowingLog):
    """What a log does about holes, and without any, about its end."""

    _repair: HoleRepair | None = None

    def truncate(self, end_offset: Offset) -> Offset:
        """Drop the batches that reach beyond `end_offset`; return the new end. Durable on return."""
        ensure(end_offset >= self._start_offset, f"cannot truncate to {end_offset}, below {self._start_offset}")
        self.flush()
        if end_offset < self._end_offset:
            self._or_note(lambda: self._truncate(end_offset), is_cut=True)
        return self._end_offset

    def _truncate(self, end_offset: Offset) -> None:
        # Whoever finds a note of more than there is takes that for damage: it is lowered before anything is cut.
        mark = self._mark_at(end_offset)
        self._sync_point.replace(mark)
        self._forget_prefix()
        self._segments.truncate(mark)
        self._drop_repair()
        self._holes = tuple(hole for hole in self._holes if hole.start_offset < mark.end_offset)
        self._epochs.truncate_to(mark.end_offset)
        self._controls = tuple(controls_up_to(self._controls, mark.end_offset))
        self._tail = self._tail.up_to(mark.end_offset)
        self._end_offset = self._flushed_offset = mark.end_offset
        self._write_epochs()

    def _mark_at(self, end_offset: Offset) -> Mark:
        for hole in self._holes:
            if hole.start_offset == end_offset:
                return self._segments.mark_of_hole(hole, self._epochs)
        return self._segments.mark_at(end_offset, self._epochs)

    def holes(self) -> Sequence[OffsetRange]:
        """Return what is known to be missing, ascending."""
        return tuple(OffsetRange(hole.start_offset, hole.end_offset) for hole in self._holes)

    def _look_closely(self) -> None:
        """Read damaged segments from their beginning: the scan may have begun in the midst, where it was told to."""
        for base_offset in sorted({hole.segment for hole in self._holes}):
            known = [hole for hole in self._holes if hole.segment == base_offset]
            wider = self._segments.holes_in_segment_of(base_offset, self._epochs, ())
            if wider and wider[0].start_offset < known[0].start_offset and wider[-1].end_offset >= known[-1].end_offset:
                kept = [hole for hole in self._holes if hole.segment != base_offset]
                self._holes = tuple(sorted([*kept, *wider], key=lambda hole: hole.start_offset))

    def _leave_behind(self, offset: Offset) -> None:
        """Let a segment begin at `offset` if there are bad bytes before that in the one that has it."""
        below = self._segments.holes_before(offset, self._holes)
        position = self._segments.place_behind(below[-1], offset) if below else None
        if position is None:
            return
        self.flush()
        self._drop_repair()
        self._forget_prefix()
        files.sync_directory(self._directory)  # before there is a segment that the notes do not know
        self._holes = tuple(self._or_fail(lambda: self._segments.split(offset, position, self._holes)))

    def _drop_holes_below(self, offset: Offset) -> None:
        """Nothing is missing there any more: a snapshot has it."""
        left = tuple(hole for hole in self._holes if hole.end_offset > offset)
        if len(left) < len(self._holes):
            self._drop_repair()
            self._holes = left
            if not left:
                self._or_fail(self._note_whole)

    def _note_whole(self) -> None:
        """Nothing is missing any more. If there was a cut that could not be synced, that is made up for."""
        noted = read_unsynced(self._directory)
        if noted is not None:
            self._renew_last_file()
        self._sync_point.replace(self._segments.mark)
        if noted is not None:
            forget_unsynced(self._directory)

    def _renew_last_file(self) -> None:
        """Let a copy take the place of the last file, which may be longer on the disk than it seems."""
        self._forget_prefix()
        files.sync_directory(self._directory)  # before there is a file that the notes do not know
        self._segments.renew()

    # Repair -----------------------------------------------------------------------------------------

    def write_repair(self, batches: Sequence[Batch]) -> bool:
        """Put batches into the first hole; return whether it is full now, and the log whole there, durably.

        Raises: NoSpaceError, if there is no space for it: the log is as it was, and the repair begins anew.
        """
        self._ensure_usable()
        ensure(self._holes, "there is nothing to repair")
        if self._repair is not None and self._repair.hole != self._holes[0]:
            self._drop_repair()  # another hole was found before it meanwhile
        try:
            if self._repair is None:
                self._repair = HoleRepair(self._directory, self._holes[0], file_mode=self._file_mode)
            repair = self._repair
            if not repair.write(batches):
                return False
            self._segments.prepare(repair)
        except StorageError as error:
            if not is_full(error):
                raise
            self._drop_repair()
            remove_repairs(self._directory)
            raise NoSpaceError(str(error), path=self._directory) from error
        self._repair = None
        self._or_fail(lambda: self._finish_repair(repair))
        return True

    def _finish_repair(self, repair: HoleRepair) -> None:
        hole = repair.hole
        with closing(repair):
            fetched = self._segments.swap(repair)
        end_offset = max(self._end_offset, repair.next_offset)
        epochs = EpochTable(start for start in self._epochs.starts() if start.start_offset < hole.start_offset)
        for batch in fetched:
            epochs.assign(batch.epoch, batch.base_offset)
        for start in self._epochs.starts():
            if start.start_offset >= repair.next_offset:
                epochs.assign(start.epoch, start.start_offset)
        self._epochs = epochs
        new = [batch for batch in fetched if batch.is_control and tells_of_voters(batch)]
        known = [b for b in self._controls if not hole.start_offset <= b.base_offset < repair.next_offset]
        self._controls = tuple(sorted([*known, *new], key=lambda batch: batch.base_offset))
        self._holes = self._holes[1:]
        self._end_offset = self._flushed_offset = end_offset
        self._segments.mark = self._segments.mark._replace(end_offset=end_offset, end_epoch=epochs.latest_epoch)
        self._write_epochs()
        if not self._holes:
            self._forget_prefix()
            self._note_whole()
        remove_repairs(self._directory)
        logger.warning("%s: offsets %d to %d are repaired", self._directory, hole.start_offset, repair.next_offset)

    def _drop_repair(self) -> None:
        if self._repair is not None:
            self._repair.close()
            self._repair = None
