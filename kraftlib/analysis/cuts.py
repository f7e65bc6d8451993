"""Where a segment is cut for several tasks: planned by its bytes, and settled by each task for itself.

To look at every seam while planning would be a round trip each, one after the other, before the first task begins. So a
plan only counts: a cut is an equal part of a file's bytes. It begins at the first index entry at or behind its first
byte, if the batches before lead to that entry. If they do not, there is no such cut, and its bytes belong to the cut
before it. Each reader finds out where its cut begins, and where the next one does.

All tasks of a file must find the same. So they count with the entries that the index had when it was planned, however
it has grown since, and a checksum tells when these are others.
"""

from __future__ import annotations

from bisect import bisect_left

import attrs
import numpy as np

from kraftlib.analysis.log_files import LogFile
from kraftlib.analysis.marks import ENTRY_BYTES, IndexMarks, Seam, index_path, read_index
from kraftlib.errors import StorageError
from kraftlib.records.checksum import crc32c


@attrs.frozen(kw_only=True)
class IndexEntries:
    """The entries of an index when it was planned."""

    count: int
    crc: int

    @classmethod
    def of(cls, file: LogFile) -> IndexEntries | None:
        """Return those of a segment; None, if it has none."""
        data = read_index(file)
        # An index that is still written has been reserved whole, and is zero behind its entries.
        whole = range(len(data) // ENTRY_BYTES)
        count = bisect_left(whole, True, key=lambda number: not any(_entry(data, number)))
        return cls(count=count, crc=crc32c(data[: count * ENTRY_BYTES])) if count else None

    def marks(self, file: LogFile) -> IndexMarks | None:
        """Return what these entries name; None, if they are no usable index. Raises: StorageError, if they are gone."""
        data = read_index(file)[: self.count * ENTRY_BYTES]
        if len(data) < self.count * ENTRY_BYTES or crc32c(data) != self.crc:
            path = index_path(file)
            raise StorageError(f"{path} is another one than when the work was planned: read the log again", path=path)
        return IndexMarks.parse(file, data)


@attrs.frozen(kw_only=True)
class Cut:
    """One of the equal parts of a segment's bytes."""

    number: int
    """Among `pieces`, from 0."""
    pieces: int
    entries: IndexEntries

    def start(self, file: LogFile) -> int:
        """Return its first byte, as planned."""
        return file.size * self.number // self.pieces

    def seams(self, file: LogFile) -> tuple[Seam | None, Seam | None] | None:
        """Return where it begins and where the next cut does: None is the start, and the end, of the file.

        Returns None, if there is no such cut.
        """
        marks = self.entries.marks(file)
        begin, mark = None, self._mark(file, marks)
        if self.number:
            before = self._beside(-1)
            if marks is None or mark is None or (before.number and mark == before._mark(file, marks)):
                return None
            begin = marks.seam(mark)
            if begin is None:
                return None
        return begin, self._next(file, marks, mark if self.number else None)

    def _next(self, file: LogFile, marks: IndexMarks | None, mark: int | None) -> Seam | None:
        for distance in range(1, self.pieces - self.number):
            following = self._beside(distance)._mark(file, marks)
            if marks is None or following is None:
                return None
            if following != mark and (seam := marks.seam(following)) is not None:
                return seam
            mark = following
        return None

    def _mark(self, file: LogFile, marks: IndexMarks | None) -> int | None:
        """Return the number of the first entry at or behind the planned start; None, if there is none."""
        if marks is None:
            return None
        number = int(np.searchsorted(marks.position, self.start(file)))
        return number if number < len(marks.position) else None

    def _beside(self, distance: int) -> Cut:
        return attrs.evolve(self, number=self.number + distance)


def cuts_of(file: LogFile, target: int) -> list[Cut]:
    """Return the cuts of a segment, of about `target` bytes each; none, if it has no index."""
    entries = IndexEntries.of(file)
    pieces = max(1, round(file.size / target))
    return [] if entries is None else [Cut(number=number, pieces=pieces, entries=entries) for number in range(pieces)]


def _entry(data: bytes, number: int) -> bytes:
    return data[number * ENTRY_BYTES : (number + 1) * ENTRY_BYTES]
