"""The entries of `.index` and `.timeindex` files, checked against the segment beside them.

An index is a cache, 8 or 12 bytes an entry:

    .index      int32 offset of a batch's last record, relative to the name    int32 where the batch begins
    .timeindex  int64 largest timestamp so far    int32 relative offset of that batch's last record

While a segment is written to, its indexes are padded with zeros; the first zero entry after an entry is the end.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kraftlib.cli.dump_batches import FoundBatch, walk
from kraftlib.cli.dump_output import Output
from kraftlib.errors import StorageError
from kraftlib.storage import files

MAX_BYTES: Final = 64 << 20
"""An index that is larger is none: Kafka makes them 10 MiB at most."""

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


def dump_offset_index(path: Path, base_offset: int, output: Output) -> Iterator[str]:
    """Show an offset index and yield the entries that do not point at the batch they name."""
    segment, entries = _Segment(path), 0
    for relative, position in _entries(path, _OFFSET_ENTRY, relative=0):
        entries += 1
        offset = base_offset + relative
        output.entry(offset=offset, position=position)
        batch = segment.first(lambda batch, at=position: batch.position >= at)  # type: ignore[misc]
        if segment.exists and (batch is None or (batch.position, batch.last_offset) != (position, offset)):
            found = "no batch" if batch is None or batch.position != position else f"offset {batch.last_offset}"
            yield f"{path}: offset {offset} at byte {position}: the segment has {found} there"
    if entries == 0:
        output.heading(f"{path} is empty.")
    yield from _odd_size(path, _OFFSET_ENTRY)


def dump_time_index(path: Path, base_offset: int, output: Output) -> Iterator[str]:
    """Show a time index and yield the entries that the segment contradicts, or that do not ascend."""
    segment, previous = _Segment(path), -1
    for timestamp, relative in _entries(path, _TIME_ENTRY, relative=1):
        offset = base_offset + relative
        output.entry(timestamp=timestamp, offset=offset)
        batch = segment.first(lambda batch, at=offset: batch.last_offset >= at)  # type: ignore[misc]
        if segment.exists and (batch is None or (batch.last_offset, batch.max_timestamp) != (offset, timestamp)):
            ends_there = batch is not None and batch.last_offset == offset
            found = f"timestamp {batch.max_timestamp}" if batch and ends_there else "no batch that ends"
            yield f"{path}: timestamp {timestamp} at offset {offset}: the segment has {found} there"
        if timestamp <= previous:
            yield f"{path}: timestamp {timestamp} at offset {offset} is not above {previous}, that of the entry before"
        previous = timestamp
    yield from _odd_size(path, _TIME_ENTRY)


class _Segment:
    """The segment beside an index, walked once from its beginning, as the entries ascend."""

    def __init__(self, index: Path) -> None:
        path = index.with_suffix(".log")
        self.exists: Final = path.is_file()
        """If not, there is nothing to check against."""
        self._batches = (found for found in walk(path) if isinstance(found, FoundBatch))
        self._batch: FoundBatch | None = None

    def first(self, fits: Callable[[FoundBatch], bool]) -> FoundBatch | None:
        """Return the first batch that `fits`, from the one returned last on."""
        while self.exists and (self._batch is None or not fits(self._batch)):
            self._batch = next(self._batches, None)
            if self._batch is None:
                return None
        return self._batch


def _entries(path: Path, entry: struct.Struct, *, relative: int) -> Iterator[tuple[int, int]]:
    """Yield the entries up to the padding; `relative` is the place of the relative offset in an entry."""
    data = read_named(path)
    for index, fields in enumerate(entry.iter_unpack(data[: len(data) // entry.size * entry.size])):
        if index > 0 and fields[relative] == 0:
            return
        if index == 0 and not any(fields):
            return  # nothing but padding: no batch has timestamp 0, or an index entry at its own beginning
        yield fields


def read_named(path: Path) -> bytes:
    """Return a whole file. Raises: StorageError, if it cannot be read or is too large."""
    data = files.read_file(path, max_bytes=MAX_BYTES, flags=files.READ_NAMED)
    if data is None:
        raise StorageError(f"cannot read {path}: there is no such file", path=path)
    return data


def _odd_size(path: Path, entry: struct.Struct) -> Iterator[str]:
    size = path.stat().st_size
    if size % entry.size:
        yield f"{path} has {size} bytes, which is no multiple of {entry.size}"
