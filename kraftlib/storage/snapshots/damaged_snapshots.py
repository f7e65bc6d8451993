"""Snapshots whose files are not whole: found, and set aside under a name that is not taken for a snapshot.

Kafka takes a checkpoint for whole if it has the right name, and loads what a damaged one still has. Here one counts
only while nothing is known against it. At start header and footer are looked at, which costs no more for a large
snapshot than for a small one; the rest is read before it is loaded or sent for the first time, and by the scrub.

A damaged file goes to `kraftlib-damaged/`, the last one only: it shows an operator what the disk did.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kraftlib.errors import CorruptBatchError, KraftError, StorageError
from kraftlib.frozen import immutable
from kraftlib.records.batch import read_batch
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.records.snapshot import SnapshotReader, check_footer, decoded_controls
from kraftlib.records.snapshot_scan import SnapshotScan
from kraftlib.storage import files, names
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import OffsetAndEpoch

logger: Final = logging.getLogger(__name__)

FOOTER_SIZE: Final = 75
"""Of the footer that Kafka and we write; of any other one all of the file is read."""

_READ_BYTES: Final = 1 << 20

_NOT_OF_THE_FILE: Final = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say nothing about what stands in a file."""


@immutable(kw_only=True)
class LostSnapshot:
    """A snapshot that was there and is not whole; its header may be."""

    snapshot_id: OffsetAndEpoch
    reason: str
    kraft_version: int = 0
    voters: VotersRecord | None = None
    has_header: bool = False


def look_at_snapshot(directory: Path, snapshot_id: OffsetAndEpoch) -> None:
    """Check header, footer and that the footer is the end. Raises: CorruptBatchError."""
    source = FileSnapshotSource(directory / names.checkpoint_name(snapshot_id))
    try:
        SnapshotReader(source, epoch=snapshot_id.epoch)
        position = source.size - FOOTER_SIZE
        try:
            batch = read_batch(source.read_at(max(position, 0), FOOTER_SIZE), origin=position)
            check_footer(decoded_controls(batch, position), position)
        except CorruptBatchError:
            for _ in _read_all(source, snapshot_id):
                pass
    finally:
        source.close()


def read_snapshot(directory: Path, snapshot_id: OffsetAndEpoch, *, step: Callable[[], None] = lambda: None) -> None:
    """Read a snapshot to its end: every checksum and place, header and footer. Raises: CorruptBatchError."""
    for _ in scan_snapshot(directory, snapshot_id):
        step()


def scan_snapshot(directory: Path, snapshot_id: OffsetAndEpoch) -> Iterator[int]:
    """Read a snapshot to its end, as `read_snapshot`; yield how many bytes were read, piece by piece."""
    source = FileSnapshotSource(directory / names.checkpoint_name(snapshot_id))
    try:
        yield from _read_all(source, snapshot_id)
    finally:
        source.close()


def _read_all(source: FileSnapshotSource, snapshot_id: OffsetAndEpoch) -> Iterator[int]:
    scan = SnapshotScan(epoch=snapshot_id.epoch)
    for position in range(0, source.size, _READ_BYTES):
        data = source.read_at(position, _READ_BYTES)
        scan.feed(data, decode=False)
        yield len(data)
    scan.finish()


def set_aside(directory: Path, snapshot_id: OffsetAndEpoch, reason: str, *, file_mode: int) -> LostSnapshot:
    """Move a damaged snapshot out of the way, durably; return what is still known of it.

    It may be repeated after an error: a file that was moved already is in its place, and only the sync is missing.
    """
    path = directory / names.checkpoint_name(snapshot_id)
    place = directory / names.DAMAGED_DIRECTORY
    files.refuse_link(place)
    moved = place / path.name
    if not path.exists() and moved.exists():
        lost = _what_is_left(moved, snapshot_id, reason)
        _sync_both(place, directory)
        return lost
    lost = _what_is_left(path, snapshot_id, reason)
    logger.error("%s is damaged and counts no more, it is kept in %s for a look: %s", path, place.name, reason)
    files.make_directory(place, mode=files.directory_mode(file_mode))
    remove_damaged(directory)
    files.rename(path, moved)
    _sync_both(place, directory)
    return lost


def _sync_both(place: Path, directory: Path) -> None:
    """Make a move from `directory` to `place` durable; where it went comes first."""
    files.sync_directory(place)
    files.sync_directory(directory)


def _what_is_left(path: Path, snapshot_id: OffsetAndEpoch, reason: str) -> LostSnapshot:
    try:
        with SnapshotReader(FileSnapshotSource(path), epoch=snapshot_id.epoch) as reader:
            return LostSnapshot(
                snapshot_id=snapshot_id,
                reason=reason,
                kraft_version=reader.kraft_version,
                voters=reader.voters,
                has_header=True,
            )
    except KraftError:
        return LostSnapshot(snapshot_id=snapshot_id, reason=reason)


def kept_aside(directory: Path) -> list[LostSnapshot]:
    """Return what is still known of the snapshots that were set aside, perhaps in an earlier life."""
    place = directory / names.DAMAGED_DIRECTORY
    if not place.is_dir() or place.is_symlink():
        return []
    found = ((name, names.parse_checkpoint_name(name)) for name in files.list_names(place))
    return [_what_is_left(place / name, known, "it was set aside") for name, known in found if known is not None]


def remove_damaged(directory: Path) -> bool:
    """Remove what was set aside; return whether there was anything."""
    place = directory / names.DAMAGED_DIRECTORY
    if not place.is_dir() or place.is_symlink():
        return False
    found = files.list_names(place)
    for name in found:
        files.remove(place / name)
    return bool(found)


def controls_of(lost: Sequence[LostSnapshot]) -> tuple[OffsetAndEpoch, list[object]] | None:
    """Return the newest of these whose header can be read, and its control records."""
    newest = max((one for one in lost if one.has_header), key=lambda one: one.snapshot_id, default=None)
    if newest is None:
        return None
    controls: list[object] = [KRaftVersionRecord(kraft_version=newest.kraft_version)]
    return newest.snapshot_id, [*controls, *([newest.voters] if newest.voters is not None else [])]


def fault_at_start(directory: Path, snapshot_id: OffsetAndEpoch) -> str | None:
    """Return what a glance at a snapshot finds wrong, at header, footer or end; None if nothing."""
    try:
        look_at_snapshot(directory, snapshot_id)
    except StorageError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NOT_OF_THE_FILE:
            raise
        return str(error)
    return None
