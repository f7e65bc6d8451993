"""Values of a column as the batches that `kraftlib.records.snapshot.SnapshotWriter` would make of them one by one.

All but the value of a record follows from its place in the batch and the value's size, so the bytes between values are
made for all records at once, as a column beside that of the values, and Arrow joins the two: the result is the blocks
of records, back to back.

    head    header count of the record before (0), length, attributes (0), timestamp delta (0), offset delta,
            key length (-1), value length
    value
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftlib.analysis.varints import Array
from kraftlib.errors import ConfigError, RecordTooLargeError
from kraftlib.records.batch import HEADER_SIZE, Batch, assemble
from kraftlib.records.compression import Codec
from kraftlib.records.values import RECORD_OVERHEAD_MAX, record_size

_NO_KEY: Final = 1
"""-1, as Kafka's numbers of variable length have it."""
_FIXED: Final = 4
"""Bytes of a record that are always there: attributes, timestamp delta, key length, header count."""


def encoded(
    columns: Iterable[pa.BinaryArray], *, first_offset: int, epoch: int, timestamp_ms: int, batch_max_bytes: int
) -> Iterator[Batch]:
    """Yield the values as batches of up to `batch_max_bytes`, wherever one column ends and the next begins.

    Raises: RecordTooLargeError for a value that no batch can hold; ConfigError for one that is empty.
    """
    offset = first_offset
    left = pa.array([], pa.binary())
    for values in _and_the_end(columns):
        rows = pa.concat_arrays([left, left[:0] if values is None else values])
        edges = _edges(rows, batch_max_bytes, is_all=values is None)
        for count, block in _blocks(rows, edges):
            yield assemble((block, b"\x00"), count, Codec.NONE, timestamp_ms, timestamp_ms, offset, epoch)
            offset += count
        left = rows[edges[-1] :]


def _and_the_end(columns: Iterable[pa.BinaryArray]) -> Iterator[pa.BinaryArray | None]:
    yield from columns
    yield None


def _edges(values: pa.BinaryArray, batch_max_bytes: int, *, is_all: bool) -> list[int]:
    """Return where batches begin, and where the last one that is full ends; with `is_all` every batch is."""
    sizes = pc.binary_length(values).to_numpy().astype(np.int64)
    if not len(sizes):
        return [0]
    if not sizes.min():
        raise ConfigError("a value must not be empty: Kafka's readers reject it")
    largest = int(sizes.max())
    if HEADER_SIZE + record_size(offset_delta=0, value_size=largest) > batch_max_bytes:
        raise RecordTooLargeError(
            f"a value of {largest} bytes makes a batch of"
            f" {HEADER_SIZE + record_size(offset_delta=0, value_size=largest)}, the limit is {batch_max_bytes}"
        )
    ends = np.cumsum(sizes + RECORD_OVERHEAD_MAX)
    edges, before = [0], 0
    while edges[-1] < len(sizes):
        end = int(np.searchsorted(ends, before + batch_max_bytes - HEADER_SIZE, side="right"))
        end = max(end, edges[-1] + 1)  # one that is as large as the limit has a batch of its own
        if end == len(sizes) and not is_all:
            break
        edges.append(end)
        before = int(ends[end - 1])
    return edges


def _blocks(values: pa.BinaryArray, edges: list[int]) -> Iterator[tuple[int, memoryview]]:
    """Yield the number and the encoded records of each batch; the last one lacks its header count."""
    rows = values[: edges[-1]]
    if not len(rows):
        return
    first = np.repeat(edges[:-1], np.diff(edges))
    sizes = pc.binary_length(rows).to_numpy().astype(np.int64)
    joined = pc.binary_join_element_wise(_heads(np.arange(len(rows)) - first, sizes), rows, b"")
    _, offsets, data = joined.buffers()
    at = np.frombuffer(offsets, dtype=np.int32)[joined.offset :]
    area = memoryview(data)
    for start, end in pairwise(edges):
        yield end - start, area[at[start] + 1 : at[end]]


def _heads(delta: Array, size: Array) -> pa.BinaryArray:
    """Return what stands before each value."""
    shown_delta, shown_size = 2 * delta, 2 * size
    delta_width, size_width = _width(shown_delta), _width(shown_size)
    shown_length = 2 * (_FIXED + delta_width + size_width + size)
    length_width = _width(shown_length)
    ends = np.cumsum(_FIXED + length_width + delta_width + size_width)
    offsets = np.concatenate(([0], ends))
    area = np.zeros(offsets[-1], dtype=np.uint8)
    at = offsets[:-1] + 1
    _put(area, at, shown_length, length_width)
    at = at + length_width + 2
    _put(area, at, shown_delta, delta_width)
    at = at + delta_width
    area[at] = _NO_KEY
    _put(area, at + 1, shown_size, size_width)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(delta), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(area)]
    )


def _width(number: Array) -> Array:
    """Return how many bytes each number takes, seven bits a byte."""
    width = np.ones(len(number), dtype=np.int64)
    limit = 0x80
    while (more := number >= limit).any():
        width += more
        limit <<= 7
    return width


def _put(area: Array, at: Array, number: Array, width: Array) -> None:
    """Write each number at its place, the low seven bits first."""
    for place in range(int(width.max())):
        if place:
            chosen = width > place
            at, number, width = at[chosen], number[chosen], width[chosen]
        area[at + place] = (number >> 7 * place) & 0x7F | np.where(width > place + 1, 0x80, 0)
