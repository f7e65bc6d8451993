"""Records of which nothing is asked but what the header of their batch says: none of them is decoded.

A count by epoch needs no record. Of a batch whose CRC and place in the chain are good, and which has a record for each
of its offsets, the header tells how many there are and all that they have in common. The inside of a batch is judged
only when it is asked for, as a column of Parquet is.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from kraftlib.analysis.chunks import Chunk
from kraftlib.analysis.columns import Rows
from kraftlib.analysis.decoder import RECORD_MIN_BYTES, undecoded
from kraftlib.analysis.headers import Headers
from kraftlib.analysis.options import Bounds, Range, ReadOptions
from kraftlib.analysis.schemas import RUN_LENGTH, TOLD_BY_HEADERS, Schema
from kraftlib.analysis.splits import Split
from kraftlib.analysis.varints import Array
from kraftlib.records.batch import HEADER_SIZE

_OF_BATCH: Final = frozenset({"batch_base", "position"})
"""Columns that differ from batch to batch."""
_RUN_BITS: Final = 12
"""A run ends with the batch that crosses a multiple of 4,096 offsets: the JVM makes an array of that many elements."""


def is_told_by_headers(options: ReadOptions, schema: Schema, bounds: Bounds) -> bool:
    """Whether the rows that are asked for follow from headers.

    Where damage is tolerated every record is looked at, since a row must say what is wrong with its batch.
    """
    return (
        (TOLD_BY_HEADERS | {RUN_LENGTH}).issuperset(schema.names)
        and (options.mode, options.verify_crc, options.contiguous) == ("FAILFAST", True, True)
        and (options.about, options.decode) == (None, None)
        and not bounds.timestamp
    )


def are_believed(headers: Headers, wanted: Array) -> bool:
    """Whether the wanted batches can hold as many records as they claim; of a compressed one that is not known."""
    room = (headers.size - HEADER_SIZE) // RECORD_MIN_BYTES
    return not (wanted & ((headers.codec != 0) | (headers.count > room))).any()


def rows_of_headers(split: Split, chunk: Chunk, members: Array) -> Rows:
    """Return the records of the batches numbered `members`, of which only columns of TOLD_BY_HEADERS can be made."""
    headers = chunk.headers.select(members)
    firsts = np.cumsum(headers.count) - headers.count
    batch = np.repeat(np.arange(len(headers)), headers.count)
    return _rows(split, chunk, members, headers, batch, np.arange(len(batch)) + (headers.base_offset - firsts)[batch])


def runs_of_headers(split: Split, chunk: Chunk, members: Array, within: Range, schema: Schema) -> Rows:
    """Return a row for each run of records of these batches that differ in no column of `schema` but the offset.

    Only offsets `within` a range count.
    """
    headers = chunk.headers.select(members)
    begins, ends = headers.base_offset, headers.last_offset + 1
    if within.start is not None:
        begins = np.maximum(begins, within.start)
    if within.end is not None:
        ends = np.minimum(ends, within.end)
    keep = ends > begins
    rows, ends = _rows(split, chunk, members, headers, np.arange(len(headers)), begins).select(keep), ends[keep]
    differ = np.ones(len(rows), dtype=bool)
    if _OF_BATCH.isdisjoint(schema.names):
        differ[1:] = rows.offset[1:] != ends[:-1]
        for values in (rows.per_record(headers.epoch), rows.is_control, rows.offset >> _RUN_BITS):
            differ[1:] |= values[1:] != values[:-1]
    firsts = np.flatnonzero(differ)
    lengths = np.append(ends[firsts[1:] - 1], ends[-1:]) - rows.offset[firsts]
    return attrs.evolve(rows.select(firsts), run_length=lengths)


def _rows(split: Split, chunk: Chunk, members: Array, headers: Headers, batch: Array, offset: Array) -> Rows:
    return Rows(
        split=split,
        headers=headers,
        positions=chunk.origin + headers.start,
        area=b"",
        fields=undecoded(batch),
        offset=offset,
        millis=batch,
        crc_ok=chunk.crc_ok[members],
    )
