"""The files of a log that are open for writing: the one that grows, and full ones until a flush has closed them.

An append is one write to the file that grows. A flush runs on another thread meanwhile. The two share no lock; the
order in which each touches the few names they share keeps them apart:

    append, on the loop                          flush, on the disk thread
    1 full? new file, old one to `_sealed`       1 the log remembers the `mark`: this is what will be durable
    2                then `_descriptor`          2 then `_descriptor`
    3 write                                      3 then `_sealed`
    4 move the `mark` of the chain               4 sync the sealed ones, the open one, the directory

Everything written below the remembered mark is in the file of step 2 or in those of step 3. Only a flush closes a
sealed file, and only it writes the caches of a segment.

`_sealed` and `_condemned` are queues, filled by the loop and emptied by the disk thread. `_descriptor` is for writing
only, since the disk thread may close it: a read opens its own. `_reserved` is the disk thread's.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kraftlib.frozen import immutable
from kraftlib.records.batch import Batch
from kraftlib.storage import files, names
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.spare import Spare
from kraftlib.storage.reserve import Reserve, left_out_if_full
from kraftlib.types import Offset

logger: Final = logging.getLogger(__name__)

EMPTY_PRODUCER_STATE: Final = bytes.fromhex("000148674bc700000000")
"""Kafka's producer state, version 1, with no producers: int16 version, CRC-32C of the rest, int32 count."""


@immutable(kw_only=True)
class SegmentSettings:
    """Sizes and times of segments; `FileReplicatedLog.open` says what each is for."""

    segment_bytes: int
    segment_ms: int
    file_mode: int
    reserve_bytes: int
    reserve: Reserve
    """Space that is freed when the disk is full, so that records that were accepted can still be written."""
    spare: Spare
    """The next segment, if it is filled with zeros beforehand."""


@immutable
class _Sealed:
    """A segment that is full: still to be synced, and its file to be closed. The log went on at `end_offset`."""

    segment: Segment
    descriptor: int
    end_offset: Offset


class OpenFiles:
    """The files that a chain of segments has open for writing, and those that are still to be removed."""

    def __init__(self, directory: Path, active: Segment, settings: SegmentSettings) -> None:
        """Open the file of `active`, which grows."""
        self._directory: Final = directory
        self._settings: Final = settings
        self._descriptor = files.open_existing(active.path, files.WRITE)
        self._sealed: deque[_Sealed] = deque()
        self._condemned: deque[Path] = deque()
        self._reserved = 0

    # On the loop ------------------------------------------------------------------------------------

    def write(self, batches: Sequence[Batch], position: int) -> None:
        """Write these batches at `position` of the file that grows. Raises OSError."""
        if len(batches) == 1:
            files.write_at(self._descriptor, batches[0].data, position)
        else:
            files.write_all_at(self._descriptor, [batch.data for batch in batches], position)

    def roll(self, full: Segment, new: Segment) -> None:
        """Go on in a new file; the next flush makes both durable."""
        descriptor = self._settings.reserve.spend(lambda: self._new_file(new.path))
        self._sealed.append(_Sealed(full, self._descriptor, new.base_offset))
        self._descriptor = descriptor

    def _new_file(self, path: Path) -> int:
        descriptor = self._settings.spare.take(path)
        return files.create(path, mode=self._settings.file_mode) if descriptor is None else descriptor

    def condemn(self, path: Path) -> None:
        """Let the next flush that begins remove a file."""
        self._condemned.append(path)

    @property
    def condemned_count(self) -> int:
        """The number of files that are still to be removed."""
        return len(self._condemned)

    # On the disk thread -----------------------------------------------------------------------------

    def sync(self) -> bool:
        """Make durable what was written before the call; return whether a segment came to its end."""
        # First the descriptor, then the sealed ones: see the top of the module.
        descriptor = self._descriptor
        sealed = [self._sealed[number] for number in range(len(self._sealed))] if self._sealed else []
        for full in sealed:
            if self._settings.spare.size:
                os.ftruncate(full.descriptor, full.segment.size)  # durable with the sync below
            files.sync_data(full.descriptor)
        files.sync_data(descriptor)
        if sealed:
            files.sync_directory(self._directory)
            self._finish(sealed)
        return bool(sealed)

    def _finish(self, sealed: Sequence[_Sealed]) -> None:
        """Close the files of full segments, now that they are durable, and write their caches."""
        for full in sealed:
            self._sealed.popleft()
            try:
                self._write_caches(full.segment, full.descriptor, full.end_offset)
            finally:
                os.close(full.descriptor)
            full.segment.forget_index()
        self._reserved = 0

    def _write_caches(self, segment: Segment, descriptor: int, end_offset: Offset) -> None:
        """Leave a segment as Kafka leaves one that it closes: no reserved space, indexes, and a producer state."""
        if self._settings.reserve_bytes or self._settings.spare.size:
            os.ftruncate(descriptor, segment.size)
        path, mode = self._directory / names.producer_state_name(end_offset), self._settings.file_mode
        segment.write_index_files(mode=mode)
        with left_out_if_full(f"{segment.path} has no producer state"):
            files.replace_file(path, EMPTY_PRODUCER_STATE, mode=mode, durable=False)

    def tidy(self, condemned_count: int, active: Segment) -> None:
        """Remove so many of the files that were condemned first, and reserve space ahead.

        Only files that were condemned before the flush began: the file in which the log goes on is durable then.
        """
        for _ in range(condemned_count):
            files.remove_beside(self._condemned.popleft())
        ahead, size = self._settings.reserve_bytes, active.size
        if ahead and size + ahead // 2 > self._reserved and not self._sealed:
            self._reserved = size + ahead
            try:
                files.reserve(self._descriptor, self._reserved)
            except OSError as error:
                # No harm yet: only an append that finds no space is an error.
                logger.warning("%s: no %d bytes can be reserved: %s", active.path, ahead, error)

    def remove_condemned(self) -> None:
        """Remove all that was condemned, before a file of such a name is made anew. The loop waits."""
        while self._condemned:
            files.remove(self._condemned[0])
            self._condemned.popleft()

    def cut(self, path: Path, position: int) -> None:
        """Cut the file that grows, durably."""
        with files.storage_errors("cut", path):
            self._settings.reserve.spend(lambda: os.ftruncate(self._descriptor, position))
            os.fsync(self._descriptor)
        self._reserved = 0

    def cut_surplus(self, active: Segment) -> None:
        """Cut off zeros that were written ahead of the last batch."""
        if os.fstat(self._descriptor).st_size > active.size:
            with files.storage_errors("cut", active.path):
                os.ftruncate(self._descriptor, active.size)

    def go_on_in(self, segment: Segment) -> None:
        """Open the file that grows from now on, and close all others."""
        # The new one is in its place before any other is closed: an error of that leaves none open.
        before, self._descriptor = self._descriptor, files.open_existing(segment.path, files.WRITE)
        self._reserved = 0
        try:
            self._close_sealed()
        finally:
            if before >= 0:
                os.close(before)

    def close(self, active: Segment, end_offset: Offset | None) -> None:
        """Release the files; with the end of a log that was synced also write the caches of the last segment."""
        try:
            if end_offset is not None:
                self._write_caches(active, self._descriptor, end_offset)
        finally:
            self._close_files()

    def _close_sealed(self) -> None:
        while self._sealed:
            os.close(self._sealed.popleft().descriptor)

    def _close_files(self) -> None:
        self._close_sealed()
        if self._descriptor >= 0:
            # Forgotten first: after an error it is closed all the same, and may be another file's by the next try.
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
