"""The chain of segments: the last one grows, the others only wait to be read or deleted.

`kraftlib.storage.log.open_files` has the file that is written to, and says how an append and a flush stay apart.
`truncate` and `restart` run on the disk thread, too, and no append runs then.

By the rule of the package: `_segments` is a tuple that is replaced, by the loop where it appends and deletes, by the
disk thread while the loop waits; its last segment is the one that grows. The sums of a segment are the disk thread's.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kraftlib.errors import CorruptBatchError, InvariantError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.records.checksum import crc32c
from kraftlib.storage import files, names
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.index import RELATIVE_OFFSET_MAX, SegmentIndex
from kraftlib.storage.log.open_files import OpenFiles, SegmentSettings
from kraftlib.storage.log.prefix import KnownPrefix, SealedSegment
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.sync_point import UNKNOWN_CRC, Mark
from kraftlib.storage.reserve import is_full
from kraftlib.types import EpochStart, Offset


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
        self.open_files: Final = OpenFiles(directory, self.active, settings)

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

    @property
    def segment_bytes(self) -> int:
        """The size at which a segment is full."""
        return self._settings.segment_bytes

    # On the loop ------------------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch], size: int) -> None:
        """Write these batches of `size` bytes in all behind the last one, into a new segment if this one is full."""
        active = self._segments[-1]
        if active.size > 0 and self._is_full(active, batches[-1], size):
            active = self._roll(batches[0].base_offset)
        try:
            self.open_files.write(batches, active.size)
        except OSError as error:
            if not is_full(error):
                raise files.as_storage_error("append to", active.path, error) from error
            with files.storage_errors("append to", active.path):
                self._settings.reserve.spend(lambda: self.open_files.write(batches, active.size))
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
        self.open_files.roll(self.active, new)
        self._segments = (*self._segments, new)
        return new

    def read(self, start_offset: Offset, max_bytes: int, holes: Sequence[Hole] = ()) -> Sequence[Batch]:
        """Return batches of one segment from the one that contains `start_offset` on.

        Raises: CorruptBatchError; StorageError for an offset below all segments.
        """
        segment = self.segment_of(start_offset)
        return segment.read(start_offset, max_bytes, not_before=_behind_holes(segment, start_offset, holes))

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
                self.open_files.condemn(self._directory / name(segment.base_offset))

    # On the disk thread -----------------------------------------------------------------------------

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
        located = segment.locate(end_offset, not_before=_behind_holes(segment, end_offset, holes))
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
        self.open_files.cut(segment.path, mark.position)
        self.mark = mark
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
            self.open_files.go_on_in(segment)
        # Of a full segment the index is made anew: the batches that are cut off may be damaged, and do not count.
        kept = segment.cut_at(mark.position, mark.crc, is_growing=not behind)
        self._segments = (*self._segments[:place], kept)
        for dropped in reversed(behind):
            dropped.remove_files()
            files.sync_directory(self._directory)  # one by one, else a crash may leave a gap
        kept.load_index()

    def restart(self, offset: Offset) -> None:
        """Remove every batch, durably, and go on in an empty segment at `offset`."""
        self.open_files.remove_condemned()
        active = restart_at(self._directory, offset, file_mode=self._settings.file_mode)
        self.open_files.go_on_in(active)
        self._segments = (active,)
        self.mark = Mark(offset, active.inode, 0, offset, -1, 0)

    def rearrange(self, segments: Sequence[Segment]) -> None:
        """Let these be the segments, whose files are in place. The loop waits."""
        self._segments = tuple(segments)

    def close(self, end_offset: Offset | None) -> None:
        """Release the files; with the end of a log that was synced also write the caches of the last segment."""
        self.open_files.close(self.active, end_offset)

    @property
    def changed_ns(self) -> int:
        """When the file of the last segment was changed last, in ns since 1970."""
        with files.storage_errors("look at", self.active.path):
            return os.stat(self.active.path, follow_symlinks=False).st_mtime_ns


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


def _behind_holes(segment: Segment, offset: Offset, holes: Sequence[Hole]) -> int:
    """Return the position in a segment from which on nothing is missing up to `offset`, or that has been read."""
    own = (hole for hole in holes if hole.segment == segment.base_offset and hole.end_offset <= offset)
    return max((hole.end_position or 0 for hole in own), default=0)


def _base_of(segment: Segment) -> Offset:
    return segment.base_offset


def _segment_at(segments: Sequence[Segment], base_offset: Offset) -> Segment | None:
    """Return the one that begins there."""
    place = bisect_right(segments, base_offset, key=_base_of) - 1
    return segments[place] if place >= 0 and segments[place].base_offset == base_offset else None
