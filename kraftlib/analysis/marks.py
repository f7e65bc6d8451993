"""Where batches begin within a segment: by its `.index`, each entry verified, or by a walk over all headers.

An index entry is believed when the batches before it lead to it and a header with its very offset stands there. A walk
believes every length on its way, so it is for files that are to be sound from end to end.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs
import numpy as np

from kraftlib.analysis.headers import BATCH_MAX_BYTES, Headers, headers_at
from kraftlib.analysis.log_files import LogFile
from kraftlib.analysis.options import Bounds, Range
from kraftlib.analysis.ranged_files import RangedFile
from kraftlib.analysis.varints import Array
from kraftlib.errors import StorageError
from kraftlib.records.batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC
from kraftlib.storage import names

_WINDOW: Final = 4096
ENTRY_BYTES: Final = 8
_INDEX_MAX_BYTES: Final = 64 << 20
_HOP_MAX_BYTES: Final = 16 << 20
_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_INT: Final = struct.Struct(">i")
_LAST_DELTA_AT: Final = 23

Seam = tuple[int, int | None, int | None, int | None]
"""Position of a batch, its base offset, its epoch, and the epoch of the batch before it."""


class WalkMarks:
    """All batches of a file, by a walk over their headers."""

    def __init__(self, file: LogFile, *, contiguous: bool) -> None:
        self.headers = headers = walk_file(file, 0, file.size, contiguous=contiguous)
        self.position = headers.start
        self.is_complete = len(headers) > 0 and int(headers.end[-1]) == file.size

    def seam(self, number: int) -> Seam:
        """Return what is known of one."""
        headers = self.headers
        before = int(headers.epoch[number - 1]) if number else None
        return int(headers.start[number]), int(headers.base_offset[number]), int(headers.epoch[number]), before

    def within(self, bounds: Bounds) -> tuple[int, int] | None:
        """Return the first batch that can hold a record within `bounds`, and the first behind the last such.

        A walk that broke off leaves the rest of the file to the reader: it counts as wanted.
        """
        headers, offset, epoch = self.headers, bounds.offset, bounds.epoch
        wanted = np.ones(len(headers), dtype=bool)
        if offset.start is not None:
            wanted &= headers.last_offset >= offset.start
        if offset.end is not None:
            wanted &= headers.base_offset < offset.end
        if epoch.start is not None:
            wanted &= headers.epoch >= epoch.start
        if epoch.end is not None:
            wanted &= headers.epoch < epoch.end
        if bounds.timestamp.start is not None:
            # The other bound cannot be used: a batch knows its largest timestamp, not its smallest.
            wanted &= headers.max_timestamp >= bounds.timestamp.start
        chosen = np.flatnonzero(wanted)
        last = int(chosen[-1]) + 1 if len(chosen) else 0
        if not self.is_complete:
            last = len(headers)
        if not last and self.is_complete:
            return None
        return (int(chosen[0]) or -1 if len(chosen) else last - 1), last


class IndexMarks:
    """The batches that an `.index` file names; each is verified when it is used."""

    def __init__(self, file: LogFile, last_offset: Array, position: Array) -> None:
        self.file = file
        self.last_offset = last_offset
        self.position = position

    @classmethod
    def of(cls, file: LogFile) -> IndexMarks | None:
        """Return those of a segment, None without a usable index."""
        return cls.parse(file, read_index(file))

    @classmethod
    def parse(cls, file: LogFile, data: bytes) -> IndexMarks | None:
        """Return those that the bytes of an index name, None if they are not usable."""
        entries = np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], dtype=">i4")
        entries = entries.astype(np.int64).reshape(-1, 2)
        offsets, positions = entries[:, 0], entries[:, 1]
        # An active or crashed segment has an index of 10 MiB that is zero behind its entries.
        good = (offsets > np.concatenate(([-1], offsets[:-1]))) & (positions > np.concatenate(([0], positions[:-1])))
        good &= positions + HEADER_SIZE <= file.size
        many = len(good) if good.all() else int(np.argmin(good))
        return cls(file, offsets[:many] + file.offset, positions[:many]) if many else None

    def within(self, offset: Range) -> tuple[int, int]:
        """Return the numbers of marks around the range: every batch that holds one of its offsets is between them."""
        first, last = -1, len(self.position)
        if offset.start is not None:
            first = int(np.searchsorted(self.last_offset, offset.start, side="right")) - 1
        if offset.end is not None:
            # The batch behind the first one that reaches the end begins at or above it.
            last = int(np.searchsorted(self.last_offset, offset.end, side="left")) + 1
        return first, min(last, len(self.position))

    def seam(self, number: int) -> Seam | None:
        """Return what is known of one, None if the batches before it do not lead to it, or lead to another offset."""
        before, there = int(self.position[number - 1]) if number else 0, int(self.position[number])
        if there - before > _HOP_MAX_BYTES:
            return None
        headers = walk_file(self.file, before, there + 1, contiguous=False, window=there - before + HEADER_SIZE)
        if len(headers) < 2 or headers.start[-1] != there or headers.last_offset[-1] != self.last_offset[number]:
            return None
        return there, int(headers.base_offset[-1]), int(headers.epoch[-1]), int(headers.epoch[-2])

    def contradicts(self, position: int, last_offset: int) -> bool:
        """Whether the index does not fit the batch at `position`: its own entry, or the next one behind it."""
        own = int(np.searchsorted(self.position, position))
        if own < len(self.position) and self.position[own] == position:
            if self.last_offset[own] != last_offset:
                return True
            own += 1
        return own < len(self.position) and not self._is_there(own)

    def _is_there(self, number: int) -> bool:
        """Whether a header with the offset of this entry stands at its position."""
        there = int(self.position[number])
        headers = walk_file(self.file, there, there + 1, contiguous=False)
        return len(headers) == 1 and bool(headers.last_offset[0] == self.last_offset[number])

    def next_behind(self, position: int) -> Seam | None:
        """Return the first batch behind `position` of which the index knows, if a header of that offset stands there.

        The bytes before it are not looked at: there is damage.
        """
        number = int(np.searchsorted(self.position, position, side="right"))
        while number < len(self.position):
            there = int(self.position[number])
            headers = walk_file(self.file, there, there + 1, contiguous=False)
            if len(headers) == 1 and headers.last_offset[0] == self.last_offset[number]:
                return there, int(headers.base_offset[0]), int(headers.epoch[0]), None
            number += 1
        return None


def index_path(file: LogFile) -> str:
    """Return where the index of a segment is, if it has one."""
    return f"{file.directory}/{names.index_name(file.offset)}"


def read_index(file: LogFile) -> bytes:
    """Return the index of a segment. It is a cache: where it cannot be read, it is empty."""
    try:
        with RangedFile(file, index_path(file)) as index:
            return index.read_at(0, _INDEX_MAX_BYTES)
    except StorageError:
        return b""


def has_index_entries(file: LogFile) -> bool:
    """Whether the index of a segment names any batch. One that was only reserved is zero."""
    try:
        with RangedFile(file, index_path(file)) as index:
            return any(index.read_at(0, ENTRY_BYTES))
    except StorageError:
        return False


def walk_file(file: LogFile, start: int, end: int, *, contiguous: bool, window: int = _WINDOW) -> Headers:
    """Return the headers of the batches that begin in [start, end), each one's length believed.

    Ends early at bytes that cannot be a batch, and where offsets do not follow from each other.
    """
    starts: list[int] = []
    rows: list[bytes] = []
    position, origin, data = start, 0, b""
    next_offset: int | None = None
    with RangedFile(file) as stream:
        while position < end and position + HEADER_SIZE <= file.size:
            at = position - origin
            if not 0 <= at <= len(data) - HEADER_SIZE:
                data, origin, at = stream.read_at(position, window), position, 0
                if len(data) < HEADER_SIZE:
                    break
            base, length = _OFFSET_AND_LENGTH.unpack_from(data, at)
            last_delta = _INT.unpack_from(data, at + _LAST_DELTA_AT)[0]
            if data[at + 16] != MAGIC or not HEADER_SIZE <= length + LENGTH_PREFIX_SIZE <= BATCH_MAX_BYTES:
                break
            if next_offset is not None and (base < next_offset or (contiguous and base != next_offset)):
                break
            starts.append(position)
            rows.append(data[at : at + HEADER_SIZE])
            next_offset = base + last_delta + 1
            position += length + LENGTH_PREFIX_SIZE
    headers = headers_at(b"".join(rows), np.arange(len(rows), dtype=np.int64) * HEADER_SIZE)
    return attrs.evolve(headers, start=np.array(starts, dtype=np.int64))
