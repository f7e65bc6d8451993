"""Where reading goes on behind a batch that is damaged, proven and never guessed.

A damaged batch may still show its end: by its own length, by a length that differs from it in one bit, or by the
lengths of its records. Such an end is proven when

* the CRC of the damaged batch itself fits up to there: magic, base offset, epoch and length are not covered by it; or
* the next batch stands there: its base offset follows from the damaged one, and its CRC fits.

Nothing is searched for: a value may hold a whole batch, and a search would find that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kraftlib.analysis.headers import BATCH_MAX_BYTES, Headers, actual_crc, headers_at
from kraftlib.analysis.ranged_files import RangedFile
from kraftlib.records.batch import CRC_START, HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC
from kraftlib.records.checksum import crc32c

MAGIC_AT: Final = 16
PROOF_MAX_BYTES: Final = 16 << 20
"""A damaged batch that is larger is believed only by the batches behind it: its bytes are not read again for each
attempt."""
_LENGTH_BITS: Final = 31


class WayOn:
    """Looks for the end of damaged batches in one range of a file."""

    def __init__(self, stream: RangedFile, end: int) -> None:
        self._stream = stream
        self._end = end

    def end_of_batch(self, position: int, next_offsets: set[int], *, own_length: bool) -> int | None:
        """Return the proven end of the batch at `position`, None if there is no proof.

        `next_offsets` are the base offsets that it may have; `own_length`: only the end that it claims is tried.
        """
        left = self._end - position
        head = self._stream.read_at(position, HEADER_SIZE) if left >= HEADER_SIZE else b""
        if len(head) < HEADER_SIZE:
            return None
        header = headers_at(head, np.zeros(1, dtype=np.int64))
        following = _following(header, next_offsets)
        for size in self._sizes(position, header, own_length=own_length):
            if HEADER_SIZE <= size <= min(left, BATCH_MAX_BYTES) and self._is_end(position, size, header, following):
                return position + size
        return None

    def _sizes(self, position: int, header: Headers, *, own_length: bool) -> Iterator[int]:
        claimed = int(header.size[0])
        yield claimed
        if own_length:
            return
        length = claimed - LENGTH_PREFIX_SIZE
        for bit in range(_LENGTH_BITS):
            yield (length ^ 1 << bit) + LENGTH_PREFIX_SIZE
        if not header.codec[0]:
            data = self._stream.read_at(position, min(self._end - position, PROOF_MAX_BYTES))
            by_records = end_of_records(data, HEADER_SIZE, len(data), int(header.count[0]))
            if by_records is not None:
                yield by_records

    def _is_end(self, position: int, size: int, header: Headers, following: set[int]) -> bool:
        behind = position + size
        if behind < self._end and self._is_sound_batch(behind, following):
            return True
        if size > PROOF_MAX_BYTES:
            return False
        return crc32c(self._stream.read_at(position, size)[CRC_START:]) == int(header.crc[0])

    def _is_sound_batch(self, position: int, offsets: set[int]) -> bool:
        """Whether a whole batch with one of these base offsets stands there, and its CRC fits."""
        head = self._stream.read_at(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE or head[MAGIC_AT] != MAGIC:
            return False
        header = headers_at(head, np.zeros(1, dtype=np.int64))
        size = int(header.size[0])
        if int(header.base_offset[0]) not in offsets or not HEADER_SIZE <= size <= min(
            self._end - position, BATCH_MAX_BYTES
        ):
            return False
        return bool(actual_crc(self._stream.read_at(position, size), header, 0) == header.crc[0])


def _following(header: Headers, next_offsets: set[int]) -> set[int]:
    """Return the base offsets that may follow: by the offsets of a batch, and by the number of its records."""
    bases = next_offsets or {int(header.base_offset[0])}
    spans = {int(header.last_offset[0] - header.base_offset[0]) + 1, int(header.count[0])}
    return {base + span for base in bases for span in spans if span > 0}


def end_of_records(data: bytes | memoryview, position: int, end: int, count: int) -> int | None:
    """Return where `count` records end by their own lengths, None if not before `end`."""
    if count <= 0:
        return None
    for _ in range(count):
        size = shift = 0
        while position < end and shift < 35:
            byte = data[position]
            position += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte <= 0x7F:
                break
        else:
            return None
        position += size >> 1
        if size & 1 or size == 0 or position > end:
            return None
    return position
