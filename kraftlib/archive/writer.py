"""The segments of an archive: batches are added at the end, and that is all that ever happens to them.

A segment is closed before it would grow too large, and its index is written then. It is synced *before* the next one is
created, so after a crash only the last segment can end in a torn batch. That is cut off: it was never reported, and the
quorum still has it, or has a checkpoint of it.

Where the quorum had compacted what the archive lacks, a checkpoint comes instead, and a new segment begins at its end.
The gap stays visible in the names: a segment begins where the one before does not end, and a checkpoint ends there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Final

from kraftlib.archive.directory import ArchiveDirectory
from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage import files
from kraftlib.storage.damage.recovery import remove_left_overs
from kraftlib.storage.damage.salvage import find_whole_batch
from kraftlib.storage.log.index import RELATIVE_OFFSET_MAX, SegmentIndex
from kraftlib.storage.log.segment import Segment, batches_in
from kraftlib.types import Epoch, Offset, OffsetAndEpoch

logger: Final = logging.getLogger(__name__)

SEGMENT_BYTES: Final = 256 << 20
SEGMENT_MS: Final = 7 * 24 * 3_600 * 1_000


class ArchiveWriter:
    """The end of an archive. Its owner holds the lock of the directory, and calls one method at a time."""

    def __init__(
        self,
        directory: ArchiveDirectory,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segment_ms: int = SEGMENT_MS,
        file_mode: int = files.FILE_MODE,
    ) -> None:
        """Find the end, and cut a torn batch off. Raises: CorruptBatchError for damage, and then nothing is changed."""
        self._directory: Final = directory
        self._segment_bytes: Final = segment_bytes
        self._segment_ms: Final = segment_ms
        self._file_mode: Final = file_mode
        self._descriptor = -1
        self.end_offset: Offset = 0
        """One past the last record; all of it is durable."""
        self.last_epoch: Epoch = 0
        self.bytes_written = 0
        """By this writer, not in all."""
        remove_left_overs(directory.partition)
        self._segment: Segment | None = None
        self._recover()

    # Finding the end --------------------------------------------------------------------------------

    def _recover(self) -> None:
        bases = self._directory.segment_offsets()
        if bases:
            self._segment = self._scan_last(bases[-1])
            if self._segment.size == 0:
                # It was just begun, so the epoch stands at the end of the records before it.
                self.last_epoch = self._epoch_before(bases)
        newest = max(self._directory.checkpoints(), key=lambda checkpoint: checkpoint.offset, default=None)
        if newest is not None:
            self.begin_after(newest)  # if the process stopped between a download and the segment that follows it

    def _scan_last(self, base_offset: Offset) -> Segment:
        """Read the last segment to its end, which is where the next batch goes."""
        segment = Segment(self._directory.partition, base_offset)
        segment.index = SegmentIndex(base_offset)
        self.end_offset = base_offset
        self._descriptor = files.open_existing(segment.path, files.WRITE)
        torn: CorruptBatchError | None = None
        try:
            for batch in batches_in(self._descriptor, segment.path, 0, os.fstat(self._descriptor).st_size):
                if batch.base_offset != self.end_offset or batch.epoch < self.last_epoch:
                    torn = _damage(segment, f"{batch!r} does not continue an archive that ends at {self.end_offset}")
                    raise torn
                self._take(segment, batch)
        except CorruptBatchError as error:
            if error is torn or find_whole_batch(segment.path, segment.size, expected_offset=self.end_offset):
                self.close()
                raise error if error is torn else _damage(segment, str(error)) from error
            logger.warning("%s: a torn batch is cut off at offset %d: %s", segment.path, self.end_offset, error)
            files.cut(segment.path, segment.size)
        self._sync()  # the records read may still be on their way to the disk
        return segment

    def _take(self, segment: Segment, batch: Batch) -> None:
        if segment.size == 0:
            segment.first_timestamp = batch.max_timestamp
        segment.index.add(batch, segment.size)
        segment.size += len(batch.data)
        self.end_offset, self.last_epoch = batch.last_offset + 1, batch.epoch

    def _epoch_before(self, bases: Sequence[Offset]) -> Epoch:
        """Return the epoch of the record before an empty last segment."""
        ended = [checkpoint.epoch for checkpoint in self._directory.checkpoints() if checkpoint.offset == bases[-1]]
        if ended or len(bases) < 2:
            return max(ended, default=0)
        before = Segment(self._directory.partition, bases[-2])
        before.size = files.size_of(before.path)
        *_, last = before.batches(before.index.position_before(bases[-1] - 1))
        return last.epoch

    # Growing ----------------------------------------------------------------------------------------

    def write(self, batches: Sequence[Batch]) -> None:
        """Add committed batches, durably; those that are there already are left out.

        Raises: StorageError, also for batches that do not continue the archive; it cannot be used any more then.
        """
        new = [batch for batch in batches if batch.last_offset >= self.end_offset]
        first = 0
        while first < len(new):
            segment = self._segment_for(new[first])
            first += self._write_into(segment, new[first:])
        if new:
            self._sync()

    def _write_into(self, segment: Segment, batches: Sequence[Batch]) -> int:
        """Write as many batches as fit into one segment; return how many."""
        written, position, index = 0, segment.size, segment.index
        for batch in batches:
            self._check_continues(batch)
            if written and self._is_full(segment, batch, position):
                break
            index.add(batch, position)
            position += len(batch.data)
            self.end_offset, self.last_epoch = batch.last_offset + 1, batch.epoch
            written += 1
        with files.storage_errors("append to", segment.path):
            files.write_all_at(self._descriptor, [batch.data for batch in batches[:written]], segment.size)
        self.bytes_written += position - segment.size
        segment.size = position
        return written

    def _check_continues(self, batch: Batch) -> None:
        if batch.base_offset != self.end_offset or batch.epoch < self.last_epoch:
            raise StorageError(
                f"{batch!r} does not continue the archive in {self._directory.path}, which ends at {self.end_offset} in"
                f" epoch {self.last_epoch}: the quorum is not the one that was followed, or it lost committed records",
                path=self._directory.path,
            )

    def _segment_for(self, batch: Batch) -> Segment:
        """Return the segment that this batch goes into: the last one, or a new one."""
        segment = self._segment
        if segment is not None and not self._is_full(segment, batch, segment.size):
            if segment.size == 0:
                segment.first_timestamp = batch.max_timestamp
            return segment
        self._check_continues(batch)
        segment = self._create(batch.base_offset)
        segment.first_timestamp = batch.max_timestamp
        return segment

    def _is_full(self, segment: Segment, batch: Batch, size: int) -> bool:
        return size > 0 and (
            size + len(batch.data) > self._segment_bytes
            or batch.max_timestamp - segment.first_timestamp > self._segment_ms
            or batch.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        )

    def begin_after(self, checkpoint: OffsetAndEpoch) -> None:
        """Go on behind a stored checkpoint, if the archive ends before it: the records between are gone at the
        quorum."""
        if checkpoint.offset > self.end_offset:
            self._create(checkpoint.offset)
            self.end_offset, self.last_epoch = checkpoint.offset, checkpoint.epoch

    def _create(self, base_offset: Offset) -> Segment:
        """Close the last segment and begin a new one, durably."""
        self._close_segment()
        segment = Segment(self._directory.partition, base_offset)
        segment.index = SegmentIndex(base_offset)
        self._descriptor = files.create(segment.path, mode=self._file_mode)
        self._segment = segment
        files.sync_directory(self._directory.partition)
        return segment

    def _close_segment(self) -> None:
        if self._segment is not None:
            self._sync()
            self._segment.write_index_files(mode=self._file_mode)
            self._segment.forget_index()
        self.close()

    def _sync(self) -> None:
        with files.storage_errors("sync", self._directory.partition):
            files.sync_data(self._descriptor)

    def close(self) -> None:
        """Release the file; all of it is durable. Calling it twice is allowed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _damage(segment: Segment, what: str) -> CorruptBatchError:
    return CorruptBatchError(
        f"{what}. This is damage at position {segment.size} of {segment.path}, no torn batch: nothing was changed. Keep"
        " this archive for `kraftlib archive verify`, and follow into another directory",
        path=segment.path,
        position=segment.size,
    )
