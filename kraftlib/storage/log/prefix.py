"""`kraftlib-prefix.json`: the results of a scan of the log up to some place, so that a start reads only the rest.

Written now and then behind a flush, always about what is durable, and believed only as far as a valid sync point says
the same of the same files (`kraftlib.storage.log.sync_point`). One line of JSON:

    {"layout":1,"mark":[segment, inode, position, end offset, end epoch, crc],"start_offset":0,"index_entries":9,
     "sealed":[[base offset, size, crc, inode], ...],"epochs":[[epoch, start offset], ...],
     "controls":["base64 of a batch", ...],"crc":305419896}

`sealed` are the full segments before that of the mark, and their CRC-32C over all bytes, which the scrubber compares.
`controls` are the control batches that have the voters and the version in force. It is a cache: without it the whole
log is read.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import CorruptBatchError, RemoteProtocolError, StorageError
from kraftlib.frozen import immutable
from kraftlib.records.batch import Batch, read_batch
from kraftlib.records.control import ControlType, control_key
from kraftlib.storage import files, names, notes
from kraftlib.storage.log.sync_point import Mark
from kraftlib.types import EpochStart, Offset

LAYOUT: Final = 1

_MAX_BYTES: Final = 64 << 20
_TELLING: Final = frozenset((ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS))


@immutable
class SealedSegment:
    """A full segment: its size, the identity of its file, and its CRC-32C (-1: not known)."""

    base_offset: Offset
    size: int
    crc: int
    inode: int


@immutable(kw_only=True)
class KnownPrefix:
    """Everything that a scan of the log up to `mark` would find."""

    mark: Mark
    start_offset: Offset
    """Where the log begins: perhaps inside its first segment, at the end of a snapshot."""
    index_entries: int
    """The number of entries that the offset index of the last segment has, up to the mark."""
    sealed: tuple[SealedSegment, ...]
    epochs: tuple[EpochStart, ...]
    controls: tuple[Batch, ...]


def tells_of_voters(batch: Batch) -> bool:
    """Whether a control batch says who votes, or which protocol version is in force; one that cannot be read may."""
    try:
        return any(control_key(record).type in _TELLING for record in batch.records())
    except (CorruptBatchError, RemoteProtocolError):
        return True


def write_prefix(directory: Path, known: KnownPrefix, *, file_mode: int, durable: bool) -> None:
    """Replace the file."""
    fields = {
        "layout": LAYOUT,
        "mark": list(known.mark),
        "start_offset": known.start_offset,
        "index_entries": known.index_entries,
        "sealed": [list(attrs.astuple(segment)) for segment in known.sealed],
        "epochs": [[start.epoch, start.start_offset] for start in known.epochs],
        "controls": [base64.b64encode(batch.data).decode("ascii") for batch in known.controls],
    }
    data = notes.seal(notes.encode(fields))
    files.replace_file(directory / names.PREFIX, data, mode=file_mode, durable=durable)


def read_prefix(directory: Path) -> KnownPrefix | None:
    """Return what the file says; None if there is none, or it is damaged, or of another layout."""
    path = directory / names.PREFIX
    try:
        if not path.exists() or files.size_of(path) > _MAX_BYTES:
            return None
        data = files.read_file(path, max_bytes=_MAX_BYTES) or b""
    except StorageError:
        return None  # a cache that cannot be read is none
    try:
        return _known(notes.parse_sealed(data))
    except (ValueError, TypeError, KeyError, binascii.Error, CorruptBatchError):
        return None


def _known(fields: Any) -> KnownPrefix | None:
    if fields["layout"] != LAYOUT:
        return None
    batches = (read_batch(base64.b64decode(text, validate=True)) for text in fields["controls"])
    return KnownPrefix(
        mark=Mark(*_numbers(fields["mark"], 6)),
        start_offset=int(fields["start_offset"]),
        index_entries=int(fields["index_entries"]),
        sealed=tuple(SealedSegment(*_numbers(row, 4)) for row in fields["sealed"]),
        epochs=tuple(EpochStart(epoch=row[0], start_offset=row[1]) for row in fields["epochs"]),
        controls=tuple(batches),
    )


def _numbers(row: Any, count: int) -> Sequence[int]:
    if not isinstance(row, list) or len(row) != count or not all(type(number) is int for number in row):
        raise ValueError(f"{row!r} is no row of {count} numbers")
    return row


def is_believed(known: KnownPrefix, durable: Mark, directory: Path, base_offsets: Sequence[Offset]) -> bool:
    """Whether the files are still those that it speaks of: the same ones, and no shorter. Nothing is read.

    `durable` is the mark of a valid sync point, beyond which nothing is believed.
    """
    if known.mark.end_offset > durable.end_offset or known.mark.segment not in base_offsets:
        return False
    expected = [segment for segment in known.sealed if segment.base_offset >= base_offsets[0]]
    names_of = [segment.base_offset for segment in expected]
    if [base for base in base_offsets if base < known.mark.segment] != names_of:
        return False
    return _is_file(directory, known.mark.segment, known.mark.inode, at_least=known.mark.position) and all(
        _is_file(directory, segment.base_offset, segment.inode, at_least=segment.size, at_most=segment.size)
        for segment in expected
    )


def _is_file(directory: Path, base_offset: Offset, inode: int, *, at_least: int, at_most: int | None = None) -> bool:
    path = directory / names.segment_name(base_offset)
    with files.storage_errors("look at", path):
        found = os.stat(path, follow_symlinks=False)
    return found.st_ino == inode and at_least <= found.st_size and (at_most is None or found.st_size <= at_most)


def controls_up_to(controls: Iterable[Batch], end_offset: Offset) -> list[Batch]:
    """Return those that end by `end_offset`."""
    return [batch for batch in controls if batch.last_offset < end_offset]
