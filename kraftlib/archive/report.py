"""Reports the contents of an archive (ranges, gaps and checkpoints), and verifies every byte.

`describe` looks at names, sizes and the ends of segments, and may be asked while a follower writes. `verify` reads all:
each batch against its CRC, offsets without a hole, epochs that never fall, checkpoints from header to footer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from kraftlib.archive.directory import ArchiveDirectory
from kraftlib.errors import CorruptBatchError, KraftError, StorageError
from kraftlib.records.batch import Batch, check_kraft
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.storage import files, names
from kraftlib.storage.log.index import SegmentIndex
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import Offset, OffsetAndEpoch

_STEP: Final = 1 << 20
_INDEX_MAX_BYTES: Final = 64 << 20


@attrs.frozen(kw_only=True)
class Range:
    """Records without a hole, `[start_offset, end_offset)`."""

    start_offset: Offset
    end_offset: Offset


@attrs.frozen(kw_only=True)
class Description:
    """An archive at one moment."""

    cluster_id: str
    node_id: int
    path: str
    ranges: tuple[Range, ...]
    gaps: tuple[Range, ...]
    """A range that the quorum compacted before it was archived; a checkpoint ends where a gap does."""
    checkpoints: tuple[OffsetAndEpoch, ...]
    segments: int
    log_bytes: int
    checkpoint_bytes: int
    torn_bytes: int
    """Of a batch that is being written, or was when its writer was killed."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        plain: dict[str, Any] = attrs.asdict(self)
        return plain


def describe(directory: ArchiveDirectory) -> Description:
    """Say what is there. Raises: CorruptBatchError, if the end of a segment cannot be read."""
    ranges: list[Range] = []
    log_bytes = torn = 0
    bases = directory.segment_offsets()
    for number, base_offset in enumerate(bases):
        size = files.size_of(directory.partition / names.segment_name(base_offset))
        valid, end_offset = _end_of(directory, base_offset, size, is_last=number == len(bases) - 1)
        log_bytes, torn = log_bytes + valid, size - valid
        if ranges and ranges[-1].end_offset == base_offset:
            ranges[-1] = Range(start_offset=ranges[-1].start_offset, end_offset=end_offset)
        else:
            ranges.append(Range(start_offset=base_offset, end_offset=end_offset))
    checkpoints = directory.checkpoints()
    return Description(
        cluster_id=directory.cluster_id,
        node_id=directory.node_id,
        path=str(directory.path),
        ranges=tuple(ranges),
        gaps=tuple(_gaps(ranges)),
        checkpoints=tuple(checkpoints),
        segments=len(bases),
        log_bytes=log_bytes,
        checkpoint_bytes=sum(files.size_of(directory.partition / names.checkpoint_name(one)) for one in checkpoints),
        torn_bytes=torn,
    )


def _gaps(ranges: list[Range]) -> Iterator[Range]:
    end_offset = 0
    for held in ranges:
        if held.start_offset > end_offset:
            yield Range(start_offset=end_offset, end_offset=held.start_offset)
        end_offset = held.end_offset


def _end_of(directory: ArchiveDirectory, base_offset: Offset, size: int, *, is_last: bool) -> tuple[int, Offset]:
    """Return how many bytes of a segment are whole batches, and one past its last record."""
    segment = Segment(directory.partition, base_offset)
    segment.size = size
    index = SegmentIndex(base_offset)
    entries = files.read_file(directory.partition / names.index_name(base_offset), max_bytes=_INDEX_MAX_BYTES)
    # Without an index a segment is read, not indexed: it may be the one that is being written.
    position = index.position_before(2**62) if entries and index.load(entries, segment_size=size) else 0
    end_offset = base_offset
    try:
        for batch in segment.batches(position):
            position, end_offset = position + len(batch.data), batch.last_offset + 1
    except CorruptBatchError:
        if not is_last:
            raise
    return position, end_offset


@attrs.define(kw_only=True)
class Findings:
    """The result of `verify`."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    checkpoints: int = 0
    gaps: int = 0
    problems: list[str] = attrs.Factory(list)


def verify(
    directory: ArchiveDirectory, *, on_bytes: Callable[[int], object] = lambda count: None, is_written: bool = False
) -> Findings:
    """Read everything and report what is wrong; `on_bytes` gets the number of bytes since its last call.

    A torn batch at the very end is a problem, unless `is_written`: a follower may be writing it just now.
    """
    found = Findings()
    before: Batch | None = None
    bases = directory.segment_offsets()
    covered = {checkpoint.offset for checkpoint in directory.checkpoints()}
    for base_offset in bases:
        end_offset = 0 if before is None else before.last_offset + 1
        if base_offset != end_offset:
            found.gaps += 1
            if base_offset < end_offset:
                found.problems.append(f"segment {base_offset} begins before {end_offset}, where the one before it ends")
            elif base_offset not in covered:
                found.problems.append(
                    f"offsets {end_offset} to {base_offset} are missing, and no checkpoint ends there"
                )
        before = _verify_segment(
            directory, base_offset, before, found, on_bytes, is_last=is_written and base_offset == bases[-1]
        )
    for checkpoint in directory.checkpoints():
        _verify_checkpoint(directory, checkpoint, found, on_bytes)
    return found


def _verify_segment(
    directory: ArchiveDirectory,
    base_offset: Offset,
    before: Batch | None,
    found: Findings,
    on_bytes: Callable[[int], object],
    *,
    is_last: bool,
) -> Batch | None:
    """Read one segment; return its last good batch, or `before`."""
    segment = Segment(directory.partition, base_offset)
    segment.size = files.size_of(segment.path)
    position, offset, told = 0, base_offset, 0
    try:
        for batch in segment.batches():
            if batch.base_offset != offset:
                found.problems.append(f"{segment.path}, position {position}: {batch!r}, expected is offset {offset}")
            if before is not None and batch.epoch < before.epoch:
                found.problems.append(f"{segment.path}, position {position}: {batch!r} follows epoch {before.epoch}")
            try:
                check_kraft(batch)
            except StorageError as error:
                found.problems.append(f"{segment.path}, position {position}: {error}")
            before, offset, position = batch, batch.last_offset + 1, position + len(batch.data)
            found.batches, found.records = found.batches + 1, found.records + batch.record_count
            if position - told >= _STEP:
                on_bytes(position - told)
                told = position
    except CorruptBatchError as error:
        if not is_last:
            found.problems.append(str(error))
    on_bytes(position - told)
    found.bytes += position
    return before


def _verify_checkpoint(
    directory: ArchiveDirectory, checkpoint: OffsetAndEpoch, found: Findings, on_bytes: Callable[[int], object]
) -> None:
    path = directory.partition / names.checkpoint_name(checkpoint)
    try:
        with SnapshotReader(FileSnapshotSource(path), epoch=checkpoint.epoch) as reader:
            reader.verify()
            found.bytes += reader.size
            on_bytes(reader.size)
    except KraftError as error:
        found.problems.append(f"{path}: {error}")
    found.checkpoints += 1
