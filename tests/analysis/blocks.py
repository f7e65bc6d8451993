"""Blocks of records, read by columns and by the plain reader."""

from __future__ import annotations

import numpy as np

from kraftlib.analysis.decoder import decode, headers_of
from kraftlib.analysis.record_places import Blocks
from kraftlib.errors import CorruptBatchError
from kraftlib.records.record import Header, Record, decode_block

Block = tuple[bytes, int, int]
"""Bytes, number of records, last offset delta."""


def by_columns(given: list[Block], *, lead: bytes = b"\x01\x02") -> list[list[Record] | None]:
    """Decode all blocks at once; None stands for one that is refused."""
    area, starts = lead, []
    for block, _, _ in given:
        starts.append(len(area))
        area += block + lead  # as in a file, where the header of the next batch follows
    start = np.array(starts, dtype=np.int64)
    sizes = np.array([len(block) for block, _, _ in given], dtype=np.int64)
    count, last_delta = (np.array([block[i] for block in given], dtype=np.int64) for i in (1, 2))
    fields, bad = decode(Blocks(area=area, start=start, end=start + sizes, count=count, last_delta=last_delta))
    found: list[list[Record] | None] = [None if i in bad else [] for i in range(len(given))]
    for i, batch in enumerate(fields.batch.tolist()):
        key, value = (
            None if size[i] < 0 else area[at[i] : at[i] + size[i]]
            for at, size in ((fields.key_start, fields.key_size), (fields.value_start, fields.value_size))
        )
        at, count = int(fields.headers_start[i]), int(fields.header_count[i])
        headers = [] if not count else headers_of(area, at, count, at + size_of_headers(area, at, count))
        assert headers is not None
        delta, timestamp = int(fields.offset_delta[i]), int(fields.timestamp_delta[i])
        record = Record(delta, timestamp, key, value, tuple(Header(*header) for header in headers))
        found[batch].append(record)
    return found


def size_of_headers(area: bytes, at: int, count: int) -> int:
    """Return how many bytes follow until the headers are over, by trying."""
    return next(size for size in range(len(area)) if headers_of(area, at, count, at + size) is not None)


def one_by_one(block: Block) -> list[Record] | None:
    data, count, last_delta = block
    try:
        return list(decode_block(data, count, base_offset=0, last_offset=last_delta, base_timestamp=0))
    except CorruptBatchError:
        return None
