"""One file of the log: batches back to back, from the base offset that is its name.

A read opens the file for itself. So a long log does not hold a descriptor for every gigabyte, and a file that is closed
or replaced on another thread is still open for the read that has begun.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, Batch, is_incomplete, parse_header, read_batch
from kraftlib.records.checksum import crc32c
from kraftlib.storage import files, names
from kraftlib.storage.log.index import INTERVAL_BYTES, SegmentIndex, index_of
from kraftlib.storage.reserve import left_out_if_full
from kraftlib.types import Offset

logger: Final = logging.getLogger(__name__)

SEGMENT_BYTES_MAX: Final = 2**31 - 1
"""Positions in an index are 32 bits wide. At this size neither index can reach the 10 MiB at which Kafka rolls."""

BATCH_MAX_BYTES: Final = 128 << 20
"""A batch that claims more is damaged: no request is that large."""

_CHUNK: Final = 1 << 20
_INDEX_MAX_BYTES: Final = 64 << 20


class Segment:
    """Place, size and index of a segment. `size` counts valid bytes; the file may be larger until it is cut.

    It only grows, by appends of the loop. Where the file is cut or another one takes its place, there is another
    `Segment`: a read that has begun goes on with this one.
    """

    __slots__ = ("_first_timestamp", "_index", "_inode", "base_offset", "crc", "directory", "path", "size", "sums")

    def __init__(self, directory: Path, base_offset: Offset) -> None:
        self.directory: Final = directory
        self.base_offset: Final = base_offset
        self.path: Final = directory / names.segment_name(base_offset)
        self.size = 0
        self.crc = 0
        """CRC-32C of the `size` bytes, offsets and epochs included; -1 if they were never all read."""
        self.sums: list[tuple[int, int]] = [(0, 0)]
        """Positions, ascending, and the CRC-32C up to there, where that is known. For the disk thread alone."""
        self._first_timestamp: int | None = None
        self._inode: int | None = None
        self._index: SegmentIndex | None = None

    def cut_at(self, position: int, crc: int, *, is_growing: bool) -> Segment:
        """Return the segment that this is once its file is cut. One that is growing has its index in memory."""
        kept = Segment(self.directory, self.base_offset)
        kept.size, kept.crc = position, crc
        kept._first_timestamp = self._first_timestamp if position else None
        if is_growing:
            kept._index = self.index.up_to(position)
            kept.sums = [entry for entry in self.sums if entry[0] <= position]
        return kept

    def in_new_file(self) -> Segment:
        """Return the segment that this is once a copy has taken the place of its file."""
        copy = Segment(self.directory, self.base_offset)
        copy.size, copy.crc, copy._index = self.size, self.crc, self._index
        copy._first_timestamp = self._first_timestamp
        return copy

    @property
    def inode(self) -> int:
        """Number of the file, which a copy of it does not have."""
        if self._inode is None:
            with files.storage_errors("look at", self.path):
                self._inode = os.stat(self.path, follow_symlinks=False).st_ino
        return self._inode

    @property
    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch, by which the age of the segment is measured; -1 while it is empty.

        It is -1, too, if the first batch is damaged: the log then goes on in another segment, and the next reader of
        the batch reports the damage.
        """
        if self._first_timestamp is None and self.size > 0:
            try:
                with files.opened(self.path) as descriptor, files.storage_errors("read", self.path):
                    self._first_timestamp = parse_header(files.read_at(descriptor, HEADER_SIZE, 0)).max_timestamp
            except StorageError as error:
                logger.error("%s", error)
                self._first_timestamp = -1
        return -1 if self._first_timestamp is None else self._first_timestamp

    @first_timestamp.setter
    def first_timestamp(self, timestamp: int) -> None:
        self._first_timestamp = timestamp

    @property
    def index(self) -> SegmentIndex:
        """The index; loaded, or made by a scan, where it is not in memory."""
        index = self._index  # read once: a flush may free it meanwhile
        if index is None:
            index = self._index = self._load_index() or self._index_by_scan()
        return index

    @index.setter
    def index(self, index: SegmentIndex) -> None:
        self._index = index

    def load_index(self) -> None:
        """Have the index in memory: the segment is to grow."""
        self._index = self.index

    def forget_index(self) -> None:
        """Free the memory of the index; the files have it."""
        self._index = None

    def _load_index(self) -> SegmentIndex | None:
        entries = self._read_cache(names.index_name(self.base_offset))
        index = SegmentIndex(self.base_offset)
        return index if entries is not None and index.load(entries, segment_size=self.size) else None

    def resume_index(self, size: int, *, entries: int) -> bool:
        """Load both indexes of a segment that is to grow on from `size`; False, if they have fewer than `entries`."""
        offsets = self._read_cache(names.index_name(self.base_offset))
        times = self._read_cache(names.time_index_name(self.base_offset))
        index = SegmentIndex(self.base_offset)
        if not index.resume(offsets or b"", times or b"", size=size) or len(index) < entries:
            return False
        self._index = index
        return True

    def _read_cache(self, name: str) -> bytes | None:
        """Return what stands in an index file; None, if there is none, or if the disk has lost it."""
        try:
            return files.read_file(self.directory / name, max_bytes=_INDEX_MAX_BYTES)
        except StorageError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO:
                logger.warning("%s", error)
                return None
            raise

    def _index_by_scan(self) -> SegmentIndex:
        try:
            return self.rebuilt_index()
        except CorruptBatchError:
            return SegmentIndex(self.base_offset)  # the read for which this is done will say where

    def rebuilt_index(self) -> SegmentIndex:
        """Return the index as it follows from the batches."""
        return index_of(self.base_offset, self.batches())

    @property
    def lacks_index_files(self) -> bool:
        """Whether the index is in memory, from a scan, and there is none like it on disk."""
        if self._index is None:
            return False
        stored = self._load_index()
        return stored is None or len(stored) != len(self._index)

    def write_index_files(self, *, mode: int) -> None:
        """Write both indexes. Not durable: they are caches, and a full disk does without."""
        index = self.index
        offset_path = self.directory / names.index_name(self.base_offset)
        time_path = self.directory / names.time_index_name(self.base_offset)
        with left_out_if_full(f"{self.path} has no index"):
            files.replace_file(offset_path, index.offset_entries(), mode=mode, durable=False)
            files.replace_file(time_path, index.time_entries(), mode=mode, durable=False)

    def remove_index_files(self) -> None:
        """Remove both indexes, since they no longer fit."""
        files.remove(self.directory / names.index_name(self.base_offset))
        files.remove(self.directory / names.time_index_name(self.base_offset))

    def remove_files(self) -> None:
        """Remove the segment and its indexes."""
        files.remove(self.path)
        self.remove_index_files()

    def batches(self, position: int = 0) -> Generator[Batch, None, None]:
        """Yield the batches from the one at `position` on, CRC checked. Raises: CorruptBatchError, StorageError."""
        with files.opened(self.path) as descriptor:
            yield from batches_in(descriptor, self.path, position, self.size)

    def read(self, start_offset: Offset, max_bytes: int, *, not_before: int = 0) -> list[Batch]:
        """Return batches from the one that contains `start_offset` on, at most `max_bytes` but at least one.

        Nothing below position `not_before` is read: it is damaged.
        """
        with files.opened(self.path) as descriptor:
            position = max(not_before, self._position_before(descriptor, start_offset))
            found: list[Batch] = []
            size, chunk = 0, min(max_bytes + 2 * INTERVAL_BYTES, _CHUNK)
            next_offset = self.base_offset if position == 0 else -1
            try:
                for batch in batches_in(descriptor, self.path, position, self.size, chunk=chunk):
                    if batch.base_offset != next_offset and (next_offset >= 0 or batch.base_offset > start_offset):
                        # A whole batch in the wrong place: its checksum does not cover where it belongs.
                        raise damaged(
                            self.path, position, f"{batch!r} stands where {max(next_offset, start_offset)} is"
                        )
                    position += len(batch.data)
                    next_offset = batch.last_offset + 1
                    if batch.last_offset < start_offset:
                        continue
                    size += len(batch.data)
                    if found and size > max_bytes:
                        break
                    found.append(batch)
            except CorruptBatchError:
                if not found:  # else what stands before the bad bytes is good, and the next read finds them again
                    raise
            return found

    def locate(self, offset: Offset, *, not_before: int = 0) -> tuple[int, Offset] | None:
        """Return position and base offset of the batch that contains `offset`, None if it lies beyond the segment."""
        with files.opened(self.path) as descriptor:
            position = max(not_before, self._position_before(descriptor, offset))
            for batch in batches_in(descriptor, self.path, position, self.size):
                if batch.last_offset >= offset:
                    return position, batch.base_offset
                position += len(batch.data)
        return None

    def reread(self) -> Segment:
        """Return the segment that is in the file now, which was replaced. Raises: CorruptBatchError."""
        found = Segment(self.directory, self.base_offset)
        found.size = files.size_of(self.path)
        found.crc = found.sum_of(0, found.size, 0)
        found._index = found.rebuilt_index()
        return found

    def sum_of(self, position: int, end: int, crc: int) -> int:
        """Return the CRC-32C of the bytes up to `end`, given that of those up to `position`."""
        with files.opened(self.path) as descriptor, files.storage_errors("read", self.path):
            while position < end:
                data = files.read_at(descriptor, min(_CHUNK, end - position), position)
                if not data:
                    raise damaged(self.path, position, "the file ends here")
                crc = crc32c(data, crc)
                position += len(data)
        return crc

    def _position_before(self, descriptor: int, offset: Offset) -> int:
        """Return where a scan for `offset` may begin: where the index says, unless it leads astray."""
        position, last_offset = self.index.entry_before(offset)
        if position > 0:
            try:
                batch = next(batches_in(descriptor, self.path, position, self.size, chunk=INTERVAL_BYTES), None)
            except CorruptBatchError:
                return 0
            if batch is None or batch.last_offset > last_offset:
                return 0  # or the batch says that it is a later one: its checksum does not cover that
        return position


def batches_in(descriptor: int, path: Path, position: int, end: int, *, chunk: int = _CHUNK) -> Iterator[Batch]:
    """Yield the batches that stand back to back between `position` and `end` of an open file, CRC checked.

    Raises: CorruptBatchError that names path and position, also for a batch that does not end by `end`; StorageError.
    """
    while position < end:
        wanted = min(chunk, end - position)
        try:
            data = files.read_at(descriptor, wanted, position)
        except OSError as error:
            if error.errno == errno.EIO:  # the disk has lost it: others may have it
                raise damaged(path, position, f"it cannot be read: {error.strerror}") from error
            raise files.as_storage_error("read", path, error) from error
        at, size = 0, len(data)
        try:
            while at < size or at == 0:
                batch = read_batch(data, at)
                at += len(batch.data)
                yield batch
        except CorruptBatchError as error:
            is_last = size < wanted or position + size == end
            if is_last or not is_incomplete(data, at) or _claimed_size(data, at) > BATCH_MAX_BYTES:
                raise damaged(path, position + at, str(error)) from error
            if at == 0:
                chunk = _claimed_size(data, at)
        position += at


def _claimed_size(data: bytes, at: int) -> int:
    """Return how long the batch at `at` says it is; 0 if not even that is there."""
    if len(data) - at < LENGTH_PREFIX_SIZE:
        return 0
    return int.from_bytes(data[at + 8 : at + LENGTH_PREFIX_SIZE], "big") + LENGTH_PREFIX_SIZE


def damaged(path: Path, position: int, reason: str) -> CorruptBatchError:
    """Return the error for bad bytes at `position` of a segment."""
    # The reason counts positions from the beginning of a read; that place is unknown here.
    reason = re.sub(r" at (?:byte )?\d+\b", "", reason)
    return CorruptBatchError(f"{path}, position {position}: {reason}", path=path, position=position)
