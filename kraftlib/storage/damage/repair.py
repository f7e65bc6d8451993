"""Filling a hole of the log with records that were fetched again.

The fetched records are gathered in `kraftlib-repair/`, beside the log and never in it. When the hole is full, the
segment is written anew there: the batches before the hole, the fetched ones, the batches behind it. Only once that is
whole, in order and durable, it takes the place of the damaged one, by a rename. A stop at any moment leaves the old
segment, and the repair begins again.

A hole may be longer than a segment: where whole segments are missing, they belong to the one before. When that is full,
it takes the place of the damaged one as it is, and the rest of the hole belongs to a new segment behind it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage import files, names
from kraftlib.storage.damage.recovered_log import copied
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.index import RELATIVE_OFFSET_MAX
from kraftlib.storage.log.prefix import tells_of_voters
from kraftlib.storage.log.segment import Segment, batches_in
from kraftlib.types import EpochStart, Offset

_COPY_BYTES: Final = 1 << 20


class HoleRepair:
    """One hole that is being filled."""

    def __init__(self, directory: Path, hole: Hole, *, file_mode: int) -> None:
        self.hole: Final = hole
        self.next_offset = hole.start_offset
        self._directory: Final = directory
        self._place: Final = directory / names.REPAIR_DIRECTORY
        self._file_mode: Final = file_mode
        self._path: Final = self._place / f"{hole.start_offset:020d}.range"
        self._size = 0
        self.epochs: list[EpochStart] = []
        """The epochs of the batches that were missing; empty until the repair is prepared."""
        self.controls: list[Batch] = []
        """Those among them that say who votes; likewise."""
        remove_repairs(directory)
        files.refuse_link(self._place)
        files.make_directory(self._place, mode=files.directory_mode(file_mode))
        self._descriptor = files.create(self._path, mode=file_mode)

    def fits(self, batches: Sequence[Batch], segment_bytes: int) -> bool:
        """Whether the segment can take these batches, too. It can where its own batches stand behind the hole."""
        hole, size = self.hole, 0 if batches[0].base_offset == self.hole.start_offset else self._size
        if hole.end_position is not None or hole.position + size == 0:
            return True
        is_near = batches[-1].last_offset - hole.segment <= RELATIVE_OFFSET_MAX
        return is_near and hole.position + size + sum(len(batch.data) for batch in batches) <= segment_bytes

    def write(self, batches: Sequence[Batch]) -> bool:
        """Add batches; return whether the hole is full. One that does not continue begins it anew."""
        if batches[0].base_offset == self.hole.start_offset:
            self._size, self.next_offset = 0, self.hole.start_offset
        if batches[0].base_offset != self.next_offset:
            raise StorageError(f"{batches[0]!r} does not continue {self._path}, which ends at {self.next_offset}")
        with files.storage_errors("write", self._path):
            for batch in batches:
                files.write_at(self._descriptor, batch.data, self._size)
                self._size += len(batch.data)
        self.next_offset = batches[-1].end_offset
        return self.next_offset >= self.hole.end_offset

    def prepare(self, segment: Path) -> None:
        """Write the repaired segment beside the log, durably. Raises: CorruptBatchError, if the fetched records are not
        whole."""
        self._check()
        new = self._place / segment.name
        files.remove(new)
        target = files.create(new, mode=self._file_mode)
        try:
            with files.storage_errors("write", new):
                self._copy_into(target, segment)
                os.fsync(target)
        finally:
            os.close(target)

    def put_into(self, segment: Path) -> None:
        """Let the segment that was prepared take the place of the damaged one; durable once the directory is synced."""
        files.rename(self._place / segment.name, segment)

    def _check(self) -> None:
        """Read again what was fetched: every checksum, in order, without a gap. Note what the log must know of it."""
        offset: Offset = self.hole.start_offset
        for batch in batches_in(self._descriptor, self._path, 0, self._size):
            if batch.base_offset != offset:
                raise CorruptBatchError(f"{self._path}: {batch!r} stands where {offset} is", path=self._path)
            offset = batch.end_offset
            if not self.epochs or self.epochs[-1].epoch != batch.epoch:
                self.epochs.append(EpochStart(epoch=batch.epoch, start_offset=batch.base_offset))
            if batch.is_control and tells_of_voters(batch):
                self.controls.append(copied(batch))

    def _copy_into(self, target: int, segment: Path) -> None:
        hole = self.hole
        position = 0
        if segment.exists():
            with files.opened(segment) as source:
                position = copy_bytes(source, 0, hole.position, target, position)
                position = copy_bytes(self._descriptor, 0, self._size, target, position)
                if hole.end_position is not None:
                    copy_bytes(source, hole.end_position, os.fstat(source).st_size, target, position)
        else:
            copy_bytes(self._descriptor, 0, self._size, target, position)

    def close(self) -> None:
        """Release the file. Calling it twice is allowed."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def copy_bytes(source: int, start: int, end: int, target: int, position: int) -> int:
    """Copy bytes [start, end) to `position` of another file; return where they end there."""
    while start < end:
        data = files.read_at(source, min(_COPY_BYTES, end - start), start)
        if not data:
            break
        files.write_at(target, data, position)
        start += len(data)
        position += len(data)
    return position


def copy_segment(old: Segment, position: int, end: int, new: Segment, *, mode: int) -> None:
    """Make a segment, or a new file of the same one, of the bytes between two positions, durably."""
    temporary = new.path.with_name(new.path.name + ".tmp")
    files.remove(temporary)
    with files.opened(old.path) as source:
        target = files.create(temporary, mode=mode)
        try:
            with files.storage_errors("write", temporary):
                copy_bytes(source, position, end, target, 0)
                os.fsync(target)
        finally:
            os.close(target)
    files.rename(temporary, new.path)
    files.sync_directory(new.directory)


def remove_repairs(directory: Path) -> None:
    """Remove what a repair left behind."""
    place = directory / names.REPAIR_DIRECTORY
    if place.is_dir() and not place.is_symlink():
        for name in files.list_names(place):
            files.remove(place / name)
