"""Segment files with holes: finding the holes, swapping in repaired files, and splitting a file behind a hole.

All methods run on the disk thread, and nothing is appended meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import attrs

from kraftlib.records.batch import Batch
from kraftlib.storage import files
from kraftlib.storage.damage.missing import make_empty_segment
from kraftlib.storage.damage.recovered_log import RecoveredLog
from kraftlib.storage.damage.repair import HoleRepair, copy_segment
from kraftlib.storage.damage.scan import distrust, scan_segment
from kraftlib.storage.log.chain import SegmentChain
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.index import SegmentIndex
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.sync_point import UNKNOWN_CRC
from kraftlib.storage.reserve import Reserve
from kraftlib.types import Offset


class DamagedSegments:
    """Finds and replaces the damaged parts of a chain of segments."""

    def __init__(self, directory: Path, chain: SegmentChain, *, file_mode: int, reserve: Reserve) -> None:
        self._directory: Final = directory
        self._chain: Final = chain
        self._file_mode: Final = file_mode
        self._reserve: Final = reserve

    def holes_in_segment_of(self, offset: Offset, epochs: EpochTable, known: Sequence[Hole]) -> Sequence[Hole]:
        """Read the segment that has this record, and return what is missing there beyond what is `known`."""
        if offset < self._chain.present[0].base_offset:
            return ()  # a snapshot stands in for it by now
        segment = self._chain.segment_of(offset)
        base_offset = segment.base_offset
        if any(hole.segment == base_offset for hole in known):
            return ()
        behind = [following.base_offset for following in self._chain.present if following.base_offset > base_offset]
        end_offset = behind[0] if behind else self._chain.mark.end_offset
        found = RecoveredLog(self._directory, [])
        found.epochs = EpochTable(start for start in epochs.starts() if start.start_offset < base_offset)
        scan_segment(found, base_offset)
        if found.end_offset > end_offset:
            distrust(found, found.segments[0], end_offset)  # no hole is to reach into the next segment
        if found.holes and found.end_offset >= end_offset:
            return found.holes
        starts = [start for start in epochs.starts() if start.start_offset < end_offset]
        crc = found.segments[0].crc
        if (
            found.end_offset == end_offset
            and found.epochs.starts() == tuple(starts)
            and segment.crc in (crc, UNKNOWN_CRC)
        ):
            return ()
        first = found.holes[0] if found.holes else None
        same = found.epochs.starts() == tuple(starts)[: len(found.epochs.starts())]
        position, start_offset = (0, base_offset) if not same else (found.segments[0].size, found.end_offset)
        if first is not None:
            position, start_offset = first.position, first.start_offset
        elif found.end_offset == end_offset:
            position, start_offset = 0, base_offset  # whole, and not the bytes that were written: the place is unknown
        reason = f"{segment.path} is not what was written to it: it should reach to offset {end_offset}"
        return [
            Hole(
                segment=base_offset,
                position=position,
                start_offset=start_offset,
                end_offset=end_offset,
                reason=first.reason if first is not None else reason,
            )
        ]

    def batches_below(self, offset: Offset) -> Iterator[Batch]:
        """Yield the batches of the first segment that lie before `offset`."""
        with closing(self._chain.present[0].batches()) as batches:  # or its file is closed where no error is noticed
            for batch in batches:
                if batch.base_offset >= offset:
                    return
                yield batch

    def prepare(self, repair: HoleRepair) -> None:
        """Write the repaired segment beside the log. Nothing of the log is changed."""
        segment = self._chain.segment_at(repair.hole.segment)
        if segment is self._chain.active:
            self._chain.open_files.cut_surplus(segment)
        repair.prepare(segment.path)

    def begin_behind(self, base_offset: Offset, offset: Offset) -> None:
        """Let an empty segment begin at `offset`, behind the one of this base offset, which has no room for the rest.

        A start finds that what is missing from there on belongs to it.
        """
        new = self._reserve.spend(lambda: make_empty_segment(self._directory, offset, file_mode=self._file_mode))
        segments = self._chain.present
        place = segments.index(self._chain.segment_at(base_offset)) + 1
        if place == len(segments):
            self._chain.open_files.go_on_in(new)
            self._chain.mark = self._chain.mark._replace(segment=offset)
        self._chain.rearrange((*segments[:place], new, *segments[place:]))

    def swap(self, repair: HoleRepair) -> None:
        """Let the repaired segment take the place of the damaged one."""
        segment = self._chain.segment_at(repair.hole.segment)
        self._reserve.spend(lambda: repair.put_into(segment.path))
        files.sync_directory(self._directory)
        segment.remove_index_files()
        repaired = segment.reread()
        if segment is self._chain.active:
            self._chain.open_files.go_on_in(repaired)
        else:
            repaired.write_index_files(mode=self._file_mode)
            repaired.forget_index()
        self._put_in_place(segment, repaired)
        self._mark_end()

    def renew(self) -> None:
        """Let a copy take the place of the last file, durably. Everything was synced."""
        active, mode = self._chain.active, self._file_mode
        end = files.size_of(active.path)
        self._reserve.spend(lambda: copy_segment(active, 0, end, active, mode=mode))
        self._chain.open_files.go_on_in(active)
        self._put_in_place(active, active.in_new_file())
        self._mark_end()

    def _put_in_place(self, old: Segment, new: Segment) -> None:
        self._chain.rearrange([new if segment is old else segment for segment in self._chain.present])

    def _mark_end(self) -> None:
        last = self._chain.active
        self._chain.mark = self._chain.mark._replace(inode=last.inode, position=last.size, crc=last.crc)

    def holes_before(self, offset: Offset, holes: Sequence[Hole]) -> list[Hole]:
        """Return the holes that begin before `offset` in the segment that has it."""
        base_offset = self._chain.segment_of(offset).base_offset
        return [hole for hole in holes if hole.segment == base_offset and hole.start_offset < offset]

    def place_behind(self, last: Hole, offset: Offset) -> int | None:
        """Return where in its segment stands what is not below `offset`, behind this hole or amid it.

        None, if no batch begins at `offset`.
        """
        segment = self._chain.segment_of(offset)
        if last.end_position is None:
            return segment.size
        if last.end_offset >= offset:
            return last.end_position
        located = segment.locate(offset, not_before=last.end_position)
        return located[0] if located is not None and located[1] == offset else None

    def split(self, offset: Offset, position: int, holes: Sequence[Hole]) -> list[Hole]:
        """Let a segment begin at `offset`, with the content of its present one from there on; return the holes then.

        The one that had it stays as it is: it is for the caller to forget. Everything was synced. A stop in between
        leaves two that overlap, of which a start distrusts the first.
        """
        segment = self._chain.segment_of(offset)
        moved = [_moved(hole, segment.base_offset, offset, position) for hole in holes]
        self._begin_segment(offset, segment, position, is_whole=all(hole.segment != offset for hole in moved))
        return moved

    def _begin_segment(self, offset: Offset, old: Segment, position: int, *, is_whole: bool) -> None:
        """Copy what stands from `position` on to a new segment, durably."""
        new, mode = Segment(self._directory, offset), self._file_mode
        self._reserve.spend(lambda: copy_segment(old, position, old.size, new, mode=mode))
        new.size = old.size - position
        new.crc = new.sum_of(0, new.size, 0)
        new.index = new.rebuilt_index() if is_whole else SegmentIndex(offset)
        segments = self._chain.present
        place = segments.index(old) + 1
        if old is self._chain.active:
            self._chain.open_files.go_on_in(new)
            self._chain.mark = self._chain.mark._replace(
                segment=offset, inode=new.inode, position=new.size, crc=new.crc
            )
        elif is_whole:
            new.write_index_files(mode=mode)
            new.forget_index()
        self._chain.rearrange((*segments[:place], new, *segments[place:]))


def _moved(hole: Hole, segment: Offset, offset: Offset, position: int) -> Hole:
    """Return where a hole is once what stands from `position` of its segment on is in one that begins at `offset`."""
    if hole.segment != segment or hole.end_offset <= offset:
        return hole
    start_offset = max(hole.start_offset, offset)
    end_position = None if hole.end_position is None else hole.end_position - position
    begin = max(0, hole.position - position)
    return attrs.evolve(hole, segment=offset, position=begin, start_offset=start_offset, end_position=end_position)
