"""The chain of segments: the last one grows, the others only wait to be read or deleted.

An append is one write to the open file. A flush runs on another thread meanwhile. The two share no lock; what keeps
them apart is the order in which each touches the few names they share:

    append, on the loop                          flush, on the disk thread
    1 full? new file, old one to `_sealed`       1 the log remembers the `mark`: this is what will be durable
    2                then `_descriptor`          2 then `_descriptor`
    3 write                                      3 then `_sealed`
    4 move the `mark`                            4 sync the sealed ones, the open one, the directory

Whatever was written below the remembered mark is in the file of step 2 or in those of step 3. Only a flush closes a
sealed file, and only it writes the caches of a segment. `truncate` and `restart` run on the disk thread, too, and then
nobody appends.

By the rule of the package: `_segments` is a tuple that is replaced, by the loop where it appends and deletes, by the
disk thread while the loop waits; its last segment is the one that grows. `_sealed` and `_condemned` are queues, filled
by the loop and emptied by the disk thread. `_descriptor` is for writing only, since the disk thread may close it: a
read opens its own. `_reserved` and the sums of a segment are the disk thread's.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import CorruptBatchError, InvariantError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.records.checksum import crc32c
from kraftlib.storage import files, names
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.index import RELATIVE_OFFSET_MAX, SegmentIndex
from kraftlib.storage.log.prefix import KnownPrefix, SealedSegment
from kraftlib.storage.log.segment import EMPTY_PRODUCER_STATE, Segment
from kraftlib.storage.log.spare import Spare
from kraftlib.storage.log.sync_point import UNKNOWN_CRC, Mark
from kraftlib.storage.reserve import Reserve, is_full
from kraftlib.types import EpochStart, Offset

logger: Final = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
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


@attrs.frozen
class _Sealed:
    """A segment that is full: still to be synced, and its file to be closed. The log went on at `end_offset`."""

    segment: Segment
    descriptor: int
    end_offset: Offset


class SegmentChain:
    """The segments of a log, ascending and without a gap.

    After an OSError or a StorageError of any method but `read` and `scan` the files are not to be used any more.
    """

    mark: Mark
    """Where the last segment ends. Replaced, never changed: the disk thread may look at it at any time."""

    def __init__(self, directory: Path, segments: list[Segment], settings: SegmentSettings, *, mark: Mark) -> None:
        """Take over what recovery found: at least one segment, whose indexes are known or on disk."""
        self.mark = mark
        self._directory: Final = directory
        self._settings: Final = settings
        self._segments = tuple(segments)
        self._descriptor = files.open_existing(self.active.path, files.WRITE)
        self._sealed: deque[_Sealed] = deque()
        self._condemned: deque[Path] = deque()
        self._reserved = 0

    @property
    def present(self) -> Sequence[Segment]:
        """The segments of this moment. Another sequence tells that there was a change."""
        return self._segments

    @property
    def active(self) -> Segment:
        """The last segment, which grows."""
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    # On the loop ------------------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch], size: int) -> None:
        """Write these batches of `size` bytes in all behind the last one, into a new segment if this one is full."""
        active = self.active
        if active.size > 0 and self._is_full(active, batches[-1], size):
            active = self._roll(batches[0].base_offset)
        try:
            self._write(batches, active.size)
        except OSError as error:
            if not is_full(error):
                raise files.as_storage_error("append to", active.path, error) from error
            with files.storage_errors("append to", active.path):
                self._settings.reserve.spend(lambda: self._write(batches, active.size))
        if active.size == 0:
            active.first_timestamp = batches[0].max_timestamp
        index, crc = active.index, active.crc
        for batch in batches:
            index.add(batch, active.size)
            active.size += len(batch.data)
            if crc != UNKNOWN_CRC:
                crc = crc32c(batch.data, crc)
        active.crc = crc
        self.mark = Mark(active.base_offset, active.inode, active.size, batch.last_offset + 1, batch.epoch, crc)

    def _write(self, batches: Sequence[Batch], position: int) -> None:
        if len(batches) == 1:
            files.write_at(self._descriptor, batches[0].data, position)
        else:
            files.write_all_at(self._descriptor, [batch.data for batch in batches], position)

    def _is_full(self, active: Segment, last: Batch, size: int) -> bool:
        """Whether `size` bytes up to this batch belong into a new segment: Kafka's rules. Timestamps are the clock."""
        return (
            active.size + size > self._settings.segment_bytes
            or last.max_timestamp - active.first_timestamp > self._settings.segment_ms
            or last.last_offset - active.base_offset > RELATIVE_OFFSET_MAX
        )

    def _roll(self, base_offset: Offset) -> Segment:
        """Go on in a new segment; the next flush makes both durable."""
        new = Segment(self._directory, base_offset)
        new.index = SegmentIndex(base_offset)
        descriptor = self._settings.reserve.spend(lambda: self._new_file(new.path))
        self._sealed.append(_Sealed(self.active, self._descriptor, base_offset))
        self._descriptor = descriptor
        self._segments = (*self._segments, new)
        return new

    def _new_file(self, path: Path) -> int:
        descriptor = self._settings.spare.take(path)
        return files.create(path, mode=self._settings.file_mode) if descriptor is None else descriptor

    def read(self, start_offset: Offset, max_bytes: int, holes: Sequence[Hole] = ()) -> Sequence[Batch]:
        """Return batches of one segment from the one that contains `start_offset` on.

        Raises: CorruptBatchError; StorageError for an offset below all segments.
        """
        segment = self.segment_of(start_offset)
        behind = 0
        for hole in holes:
            if hole.segment == segment.base_offset and hole.end_position and hole.end_offset <= start_offset:
                behind = hole.end_position
        return segment.read(start_offset, max_bytes, not_before=behind)

    def segment_of(self, offset: Offset) -> Segment:
        """Return the segment in which this offset lies. Raises: StorageError, if it is below all of them."""
        segments = self._segments
        place = bisect_right(segments, offset, key=_base_of) - 1
        if place < 0:
            raise StorageError(f"{self._directory} has no segment of offset {offset}", path=self._directory)
        return segments[place]

    def scan(self) -> Iterator[Batch]:
        """Yield every batch, read from the files and checked."""
        for segment in self._segments:
            yield from segment.batches()

    def roll(self) -> None:
        """Let what is appended next go into a new segment."""
        if self.active.size > 0:
            self._roll(self.mark.end_offset)

    def delete_below(self, offset: Offset) -> None:
        """Forget the segments that end at or below `offset`, but the last one; the next flush removes the files."""
        segments = self._segments
        first = max(0, bisect_right(segments, offset, key=_base_of) - 1)
        self._segments = segments[first:]
        for segment in segments[:first]:
            for name in (names.segment_name, names.index_name, names.time_index_name, names.producer_state_name):
                self.condemn(self._directory / name(segment.base_offset))

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
                os.ftruncate(full.descriptor, full.segment.size)  # durable with what follows
            files.sync_data(full.descriptor)
        files.sync_data(descriptor)
        if sealed:
            files.sync_directory(self._directory)
            self._finish(sealed)
        return bool(sealed)

    def known_prefix(
        self, mark: Mark, start_offset: Offset, epochs: Sequence[EpochStart], controls: Sequence[Batch]
    ) -> KnownPrefix | None:
        """Describe the log up to `mark`, which is durable, and write the indexes that go with it.

        None, if the loop has deleted the segment of the mark meanwhile.
        """
        segments = self._segments
        last = _segment_at(segments, mark.segment)
        if last is None:
            return None
        if last is segments[-1]:
            if len(last.index):
                last.write_index_files(mode=self._settings.file_mode)
            last.sums.append((mark.position, mark.crc))
        return KnownPrefix(
            mark=mark,
            start_offset=start_offset,
            index_entries=last.index.entries_below(mark.position),
            sealed=tuple(
                SealedSegment(segment.base_offset, segment.size, segment.crc, segment.inode)
                for segment in segments
                if segment.base_offset < mark.segment
            ),
            epochs=tuple(epochs),
            controls=tuple(controls),
        )

    def segment_at(self, base_offset: Offset) -> Segment:
        """Return the segment that begins there. For while the loop waits."""
        found = _segment_at(self._segments, base_offset)
        if found is None:
            bases = [segment.base_offset for segment in self._segments]
            raise InvariantError(f"{self._directory} has no segment that begins at {base_offset}, but {bases}")
        return found

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
        try:
            files.replace_file(path, EMPTY_PRODUCER_STATE, mode=mode, durable=False)
        except StorageError as error:
            if not is_full(error):
                raise
            # They are caches, and the reserve is there for votes and records.
            logger.warning("%s: the disk is full, so it is left without a producer state: %s", segment.path, error)

    def tidy(self, condemned_count: int) -> None:
        """Remove so many of the files that were condemned first, and reserve space ahead.

        Only what was condemned before the flush began: what the log goes on in is durable then.
        """
        for _ in range(condemned_count):
            files.remove(self._condemned.popleft())
        ahead, size = self._settings.reserve_bytes, self.active.size
        if ahead and size + ahead // 2 > self._reserved and not self._sealed:
            self._reserved = size + ahead
            try:
                files.reserve(self._descriptor, self._reserved)
            except OSError as error:
                # No harm yet: only an append that finds no space is an error.
                logger.warning("%s: no %d bytes can be reserved: %s", self.active.path, ahead, error)

    def remove_condemned(self) -> None:
        """Remove all that was condemned, before a file of such a name is made anew. The loop waits."""
        while self._condemned:
            files.remove(self._condemned[0])
            self._condemned.popleft()

    def mark_at(self, end_offset: Offset, epochs: EpochTable, holes: Sequence[Hole] = ()) -> Mark:
        """Return the place behind the last batch that ends by `end_offset`, or where a hole begins.

        Everything was synced.
        """
        for hole in holes:
            if hole.start_offset == end_offset:
                segment = self.segment_at(hole.segment)
                crc = segment.sum_of(0, hole.position, 0)
                epoch = epochs.epoch_before(end_offset)
                return Mark(segment.base_offset, segment.inode, hole.position, end_offset, epoch, crc)
        segment = self.segment_of(end_offset)
        located = segment.locate(end_offset)
        if located is None:
            raise CorruptBatchError(f"{segment.path} has no batch of offset {end_offset}", path=segment.path)
        position, new_end = located
        crc = self._sum_up_to(segment, position)
        return Mark(segment.base_offset, segment.inode, position, new_end, epochs.epoch_before(new_end), crc)

    def _sum_up_to(self, segment: Segment, position: int) -> int:
        """Return the CRC-32C of the first bytes of a segment, read from the nearest place at which it is known."""
        if segment.crc == UNKNOWN_CRC:
            return UNKNOWN_CRC
        at, crc = segment.sums[bisect_right(segment.sums, position, key=lambda entry: entry[0]) - 1]
        return segment.sum_of(at, position, crc)

    def truncate(self, mark: Mark) -> None:
        """Cut at this place, durably. Everything was synced."""
        segment = self.segment_at(mark.segment)
        segment.remove_index_files()
        self._drop_segments_behind(segment, mark)
        with files.storage_errors("cut", segment.path):
            self._settings.reserve.spend(lambda: os.ftruncate(self._descriptor, mark.position))
            os.fsync(self._descriptor)
        self.mark = mark
        self._reserved = 0
        for name in files.list_names(self._directory):
            of_producers = names.parse_producer_state_name(name)
            if of_producers is not None and of_producers > mark.end_offset:
                files.remove(self._directory / name)
        files.sync_directory(self._directory)

    def _drop_segments_behind(self, segment: Segment, mark: Mark) -> None:
        """Remove the segments behind this one, durably, the last one first, and let it grow again from `mark` on.

        A read that begins meanwhile finds the log that remains: nothing that is committed lies behind that.
        """
        place = self._segments.index(segment)
        behind = self._segments[place + 1 :]
        if behind:
            self.go_on_in(segment)
        # Of a full segment the index is made anew: what is cut off may be damaged, and tells it nothing.
        kept = segment.cut_at(mark.position, mark.crc, is_growing=not behind)
        self._segments = (*self._segments[:place], kept)
        for dropped in reversed(behind):
            dropped.remove_files()
            files.sync_directory(self._directory)  # one by one, else a crash may leave a gap
        kept.load_index()

    def restart(self, offset: Offset) -> None:
        """Remove every batch, durably, and go on in an empty segment at `offset`."""
        self.remove_condemned()
        active = restart_at(self._directory, offset, file_mode=self._settings.file_mode)
        self.go_on_in(active)
        self._segments = (active,)
        self.mark = Mark(offset, active.inode, 0, offset, -1, 0)

    def rearrange(self, segments: Sequence[Segment]) -> None:
        """Let these be the segments, whose files are in place. The loop waits."""
        self._segments = tuple(segments)

    def cut_surplus(self) -> None:
        """Cut off zeros that were written ahead of the last batch."""
        active = self.active
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

    def close(self, end_offset: Offset | None) -> None:
        """Release the files; with the end of a log that was synced also write the caches of the last segment."""
        try:
            if end_offset is not None:
                self._write_caches(self.active, self._descriptor, end_offset)
        finally:
            self._close_files()

    @property
    def changed_ns(self) -> int:
        """When the file of the last segment was changed last, in ns since 1970."""
        with files.storage_errors("look at", self.active.path):
            return os.stat(self.active.path, follow_symlinks=False).st_mtime_ns

    def _close_sealed(self) -> None:
        while self._sealed:
            os.close(self._sealed.popleft().descriptor)

    def _close_files(self) -> None:
        self._close_sealed()
        if self._descriptor >= 0:
            # Forgotten first: after an error it is closed all the same, and may be another file's by the next try.
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def restart_at(directory: Path, offset: Offset, *, file_mode: int) -> Segment:
    """Remove every segment and create an empty one at `offset`, durably.

    From the last to the first, so that a stop in between leaves a shorter log, which is still behind the snapshot; a
    disk may carry out removals in any order unless told to wait.
    """
    files.remove(directory / names.PREFIX)
    for name in reversed(files.list_names(directory)):
        if names.parse_segment_name(name) is not None:
            files.sync_directory(directory)
        if names.parse_name_of_segment_file(name) is not None or names.parse_producer_state_name(name) is not None:
            files.remove(directory / name)
    files.sync_directory(directory)
    segment = Segment(directory, offset)
    segment.index = SegmentIndex(offset)
    os.close(files.create(segment.path, mode=file_mode))
    files.sync_directory(directory)
    return segment


def _base_of(segment: Segment) -> Offset:
    return segment.base_offset


def _segment_at(segments: Sequence[Segment], base_offset: Offset) -> Segment | None:
    """Return the one that begins there."""
    place = bisect_right(segments, base_offset, key=_base_of) - 1
    return segments[place] if place >= 0 and segments[place].base_offset == base_offset else None
