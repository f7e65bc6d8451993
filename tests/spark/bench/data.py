"""Logs to measure with: batches of 128 records of 100 random bytes, in segments of 256 MB with their index."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from kraftlib.records.batch import Batch, encode_batch
from kraftlib.storage.log.index import SegmentIndex

RECORDS: Final = 128
VALUE_BYTES: Final = 100
SEGMENT_BYTES: Final = 256 << 20
_BASE_MS: Final = 1_700_000_000_000


def batches(count: int, *, records: int = RECORDS, size: int = VALUE_BYTES) -> list[Batch]:
    """Return that many batches; an epoch lasts a thousand."""
    pool = random.Random(3).randbytes(1 << 20)
    out = []
    for number in range(count):
        places = [(number * 7_919 + index * 104_729) % (len(pool) - size) for index in range(records)]
        values = [pool[place : place + size] for place in places]
        out.append(
            encode_batch(
                values, timestamp_ms=_BASE_MS + number, base_offset=number * records, epoch=1 + number // 1_000
            )
        )
    return out


def log(directory: Path, megabytes: int) -> int:
    """Write a log of about that size below `directory`, once; return how many records it has."""
    sample = batches(1)[0].size
    count = max((megabytes << 20) // sample, 8)
    if directory.exists():
        return count * RECORDS
    directory.mkdir(parents=True)
    made = batches(count)
    per_segment = max(SEGMENT_BYTES // sample, 1)
    for first in range(0, count, per_segment):
        members = made[first : first + per_segment]
        base = members[0].base_offset
        index, position = SegmentIndex(base), 0
        with (directory / f"{base:020d}.log").open("wb") as segment:
            for batch in members:
                index.add(batch, position)
                segment.write(batch.data)
                position += batch.size
        (directory / f"{base:020d}.index").write_bytes(index.offset_entries())
    return count * RECORDS
