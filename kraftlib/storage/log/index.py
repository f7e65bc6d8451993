"""Where an offset and a time stand in a segment: `.index` and `.timeindex`, both mere caches.

    .index      int32  last offset of a batch - base offset of the segment
                int32  position of that batch in the segment
    .timeindex  int64  largest timestamp so far, ms since 1970
                int32  last offset of the batch that has it - base offset of the segment

An entry is added when more than 4096 bytes were appended since the last one, and a last entry of the time index when
the segment is closed, so the files are small, sparse and a function of the batches. They are kept in memory while a
segment grows and written when it is closed; a reader that finds none, or one that makes no sense, scans the segment.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from struct import Struct
from typing import Final

from kraftlib.records.batch import Batch
from kraftlib.types import Offset

INTERVAL_BYTES: Final = 4_096
OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""A segment ends before an offset that is further than this from its base."""


class SegmentIndex:
    """Both indexes of one segment, growing with it. Offsets are relative to the base offset, as in the files.

    Only the thread that appends changes it; others may look at it meanwhile, and find some entries less.
    """

    __slots__ = ("_bytes_since_entry", "_newest", "_offsets", "_positions", "_time_offsets", "_times", "base_offset")

    def __init__(self, base_offset: Offset) -> None:
        self.base_offset: Final = base_offset
        self._offsets = array("i")
        self._positions = array("i")
        self._times = array("q")
        self._time_offsets = array("i")
        self._bytes_since_entry = 0
        self._newest = (-1, 0)
        """Largest timestamp so far, and the last offset of its batch."""

    def add(self, batch: Batch, position: int) -> None:
        """Take note of a batch that was appended at `position`."""
        if batch.max_timestamp > self._newest[0]:
            self._newest = (batch.max_timestamp, batch.last_offset - self.base_offset)
        if self._bytes_since_entry > INTERVAL_BYTES:
            self._positions.append(position)  # an offset is looked up first, and has its position by then
            self._offsets.append(batch.last_offset - self.base_offset)
            timestamp, offset = self._newest
            if timestamp > (self._times[-1] if self._times else -1):
                self._times.append(timestamp)
                self._time_offsets.append(offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += len(batch.data)

    def position_before(self, offset: Offset) -> int:
        """Return the position of a batch from which a scan forward finds `offset`."""
        return self.entry_before(offset)[0]

    def entry_before(self, offset: Offset) -> tuple[int, Offset]:
        """Return that position, and an offset below which the batch there ends, or at which; at 0 nothing is known."""
        entry = bisect_right(self._offsets, offset - self.base_offset) - 1
        return (self._positions[entry], self.base_offset + self._offsets[entry]) if entry >= 0 else (0, -1)

    def up_to(self, size: int) -> SegmentIndex:
        """Return an index of its own of the entries before position `size`, to grow on from there."""
        kept = SegmentIndex(self.base_offset)
        kept._offsets, kept._positions = self._offsets[:], self._positions[:]
        kept._times, kept._time_offsets = self._times[:], self._time_offsets[:]
        kept._truncate(size)
        return kept

    def _truncate(self, size: int) -> None:
        """Forget what stands at or beyond position `size`."""
        while self._positions and self._positions[-1] >= size:
            self._positions.pop()
            last_offset = self._offsets.pop()
            while self._times and self._time_offsets[-1] >= last_offset:
                self._times.pop()
                self._time_offsets.pop()
        self._newest = (self._times[-1], self._time_offsets[-1]) if self._times else (-1, 0)
        self._bytes_since_entry = 0

    def offset_entries(self) -> bytes:
        """Return the content of the `.index` file."""
        return b"".join(map(OFFSET_ENTRY.pack, self._offsets, self._positions))

    def time_entries(self) -> bytes:
        """Return the content of the `.timeindex` file if the segment ends here: the last entry is the newest time."""
        newest = self._newest  # before the entries: one that comes meanwhile is newer
        entries = list(zip(self._times, self._time_offsets, strict=False))
        if newest[0] > (entries[-1][0] if entries else -1):
            entries.append(newest)
        return b"".join(TIME_ENTRY.pack(*entry) for entry in entries)

    def __len__(self) -> int:
        """Return how many entries the offset index has."""
        return len(self._offsets)

    def entries_below(self, position: int) -> int:
        """Return how many entries of the offset index are of batches before this position."""
        return bisect_left(self._positions, position)

    def resume(self, offset_entries: bytes, time_entries: bytes, *, size: int) -> bool:
        """Take the entries of both files up to position `size`, to grow on from there; False if they make no sense."""
        whole = len(offset_entries) // OFFSET_ENTRY.size * OFFSET_ENTRY.size
        if not self.load(offset_entries[:whole], segment_size=1 << 31):
            return False
        whole = len(time_entries) // TIME_ENTRY.size * TIME_ENTRY.size
        rows = list(TIME_ENTRY.iter_unpack(time_entries[:whole]))
        if rows != sorted(set(rows)):
            return False
        self._times.extend(row[0] for row in rows)
        self._time_offsets.extend(row[1] for row in rows)
        self._truncate(size)
        # The last time of a file is that of its end, however much was appended since the last entry.
        last = self._offsets[-1] if self._offsets else -1
        while self._times and self._time_offsets[-1] > last:
            self._times.pop()
            self._time_offsets.pop()
        return True

    def load(self, offset_entries: bytes, *, segment_size: int) -> bool:
        """Take the entries of an `.index` file, for look-ups only; return False if they do not fit the segment."""
        if len(offset_entries) % OFFSET_ENTRY.size:
            return False
        numbers = array("i")
        numbers.frombytes(offset_entries)
        if sys.byteorder == "little":
            numbers.byteswap()
        self._offsets, self._positions = numbers[0::2], numbers[1::2]
        return _ascends(self._offsets) and _ascends(self._positions) and max(self._positions, default=-1) < segment_size


def _ascends(numbers: array[int]) -> bool:
    """Whether the numbers are above 0 and each above the one before; a segment's first batch is never in its index."""
    return list(numbers) == sorted(set(numbers)) and min(numbers, default=1) > 0


def index_of(base_offset: Offset, batches: Iterable[Batch]) -> SegmentIndex:
    """Return the index of a segment that holds these batches from position 0 on."""
    index, position = SegmentIndex(base_offset), 0
    for batch in batches:
        index.add(batch, position)
        position += len(batch.data)
    return index
