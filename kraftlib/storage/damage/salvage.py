"""Looking for whole batches behind bad bytes: the difference between a torn tail and damage.

Where a batch begins is not known any more, so every place is tried that looks like the header of a batch of KRaft, in
which producer id, epoch and sequence are absent: 14 bytes of 0xff. The CRC settles it.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final

from kraftlib.errors import CorruptBatchError
from kraftlib.records.batch import HEADER_SIZE, BatchHeader, parse_header, read_batch
from kraftlib.storage import files
from kraftlib.storage.log.segment import BATCH_MAX_BYTES
from kraftlib.types import Offset

_CHUNK: Final = 4 << 20
_MAGIC_AT: Final = 16
_LIKELY_BATCH: Final = re.compile(rb"(?=\x02.{26}\xff{14})", re.DOTALL)
_RECORDS_PER_BYTE: Final = 64
"""No batch holds more, however well it is compressed: one that would have so many missing before it is misplaced."""


def find_whole_batch(path: Path, position: int, *, expected_offset: Offset) -> tuple[int, BatchHeader] | None:
    """Return the first whole batch of a later offset from `position` on, where the bad batch of `expected_offset` is.

    One inside the bad batch, if that says how long it is, is a value that looks like a batch, unless its offset is just
    the next one. None, if there is nothing.
    """
    with files.opened(path) as descriptor:
        try:
            return _search(descriptor, position, expected_offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise files.as_storage_error("read", path, error) from error
            return None  # a file that cannot be read counts as missing


def _search(descriptor: int, position: int, expected_offset: Offset) -> tuple[int, BatchHeader] | None:
    bad = _header_at(descriptor, position)
    if bad is not None and (
        bad.base_offset != expected_offset or bad.record_count != bad.last_offset - bad.base_offset + 1
    ):
        bad = None
    inside_end = position + bad.size if bad is not None else position
    at, size = position, os.fstat(descriptor).st_size
    while at < size:
        # The overlap with which a header that begins in this chunk is seen whole.
        data = files.read_at(descriptor, _CHUNK + HEADER_SIZE, at)
        for match in _LIKELY_BATCH.finditer(data, _MAGIC_AT):
            found = at + match.start() - _MAGIC_AT
            header = _header_at(descriptor, found)
            most = 1 + (found - position) * _RECORDS_PER_BYTE
            if header is None or not 0 < header.base_offset - expected_offset <= most:
                continue
            if found < inside_end and bad is not None and header.base_offset != bad.last_offset + 1:
                continue
            if _is_whole(descriptor, found, header):
                return found, header
        at += _CHUNK
    return None


def _header_at(descriptor: int, position: int) -> BatchHeader | None:
    try:
        return parse_header(files.read_at(descriptor, HEADER_SIZE, position))
    except CorruptBatchError:
        return None


def _is_whole(descriptor: int, position: int, header: BatchHeader) -> bool:
    if header.size > BATCH_MAX_BYTES:
        return False
    try:
        read_batch(files.read_at(descriptor, header.size, position))
    except CorruptBatchError:
        return False
    return True
