"""Reading everything that is stored, now and then, while others still have what may have rotted here.

A disk reports a lost sector only when it is read, and old segments are not read for months. The scrub reads every
batch of the log and every snapshot, checks each checksum, that offsets follow each other, and of a full segment the
checksum over all its bytes, if that is known. It works on files of its own opening, so a segment that is deleted
meanwhile is no damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.frozen import immutable
from kraftlib.records.checksum import crc32c
from kraftlib.storage import files, names
from kraftlib.storage.log.chain import SegmentChain
from kraftlib.storage.log.segment import Segment, batches_in
from kraftlib.storage.log.sync_point import UNKNOWN_CRC
from kraftlib.storage.snapshots.damaged_snapshots import scan_snapshot
from kraftlib.types import Offset, OffsetAndEpoch

_CHUNK: Final = 256 * 1024


@immutable(kw_only=True)
class ScrubFinding:
    """Something that is not as it was written."""

    path: Path
    offset: Offset | None
    """A record of the log that cannot be read, or is not what it was; None for a snapshot."""
    reason: str
    snapshot_id: OffsetAndEpoch | None = None
    """The snapshot that is not whole; None for the log, or if it cannot be told."""


def scrub_chain(chain: SegmentChain, *, step: Callable[[], None]) -> Iterator[int | ScrubFinding]:
    """Read every segment; yield the number of bytes read, and each finding."""
    segments = chain.present
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        for found in scrub_segment(segment, is_full=segment is not chain.active, step=step):
            if isinstance(found, ScrubFinding) and not any(segment is kept for kept in chain.present):
                break  # it was cut, or another file took its place, while it was read
            if following is not None and isinstance(found, ScrubFinding) and found.offset is not None:
                # Foreign bytes may bear offsets beyond the segment, but it is this one that is damaged.
                found = attrs.evolve(found, offset=min(found.offset, following.base_offset - 1))
            yield found


def scrub_segment(segment: Segment, *, is_full: bool, step: Callable[[], None]) -> Iterator[int | ScrubFinding]:
    """Read a segment up to its present size; yield the number of bytes read, and a finding for each fault."""
    offset, size, crc, expected = segment.base_offset, segment.size, 0, segment.crc
    try:
        descriptor = files.open_existing(segment.path)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        raise
    try:
        for batch in batches_in(descriptor, segment.path, 0, size, chunk=_CHUNK):
            if batch.base_offset != offset:
                yield _wrong(segment, offset, f"{batch!r} stands where {offset} is")
                return
            offset = batch.end_offset
            crc = crc32c(batch.data, crc)
            yield len(batch.data)
            step()
    except CorruptBatchError as error:
        if not _is_gone(segment.path, descriptor):
            yield _wrong(segment, offset, str(error))
        return
    finally:
        os.close(descriptor)
    if is_full and expected not in (crc, UNKNOWN_CRC) and not _is_gone(segment.path, None):
        reason = f"every batch is whole, but not all bytes are what was written: CRC {crc:#x}, not {expected:#x}"
        yield _wrong(segment, segment.base_offset, reason)


def _wrong(segment: Segment, offset: Offset, reason: str) -> ScrubFinding:
    return ScrubFinding(path=segment.path, offset=offset, reason=reason)


def _is_gone(path: Path, descriptor: int | None) -> bool:
    """Whether the path names another file by now, or none: the bytes that were read do not count any more."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return descriptor is not None and not os.path.samestat(found, os.fstat(descriptor))


def scrub_snapshots(
    directory: Path, snapshots: Iterable[OffsetAndEpoch], *, step: Callable[[], None]
) -> Iterator[int | ScrubFinding]:
    """Read snapshots; yield the number of bytes read, and a finding for each fault."""
    for snapshot_id in snapshots:
        path = directory / names.checkpoint_name(snapshot_id)
        try:
            for size in scan_snapshot(directory, snapshot_id):
                yield size
                step()
        except StorageError as error:
            if path.exists():
                damaged = snapshot_id if isinstance(error, CorruptBatchError) else None
                yield ScrubFinding(path=path, offset=None, reason=str(error), snapshot_id=damaged)
