"""The order of rows by rank and key, by numbers where that will do.

Arrow compares keys byte by byte, through two levels of pointers. But most keys are told apart by few bytes behind what
all of them begin with: those, and the rank before them, make one 64-bit number a row, and numbers are sorted ten times
faster. Rows whose numbers are equal stand side by side then; only they are sorted again, by Arrow.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftlib.analysis.varints import Array
from kraftlib.errors import ensure

RANK_MAX: Final = 255
_KEY_BYTES: Final = 7
_KEY_BITS: Final = 8 * _KEY_BYTES


def order_of(rank: pa.ChunkedArray, key: pa.ChunkedArray) -> Array:
    """Return the indexes (int64) of rows in the order of rank (int32, 0 to 255) and key (binary, compared bytewise)."""
    ranks = rank.to_numpy()
    if not len(ranks):
        return np.empty(0, dtype=np.int64)
    ensure(ranks.min() >= 0 and ranks.max() <= RANK_MAX, "a rank fits one byte")
    shared = _shared(key)
    numbers = np.concatenate([_beginnings(chunk, shared) for chunk in key.chunks])
    numbers |= ranks.astype(np.uint64) << np.uint64(_KEY_BITS)
    order = np.argsort(numbers, kind="stable")
    return _settled(order, numbers[order], rank, key)


def _shared(key: pa.ChunkedArray) -> int:
    """Return how many bytes all keys begin with: as many as the smallest and the largest have in common."""
    edges = pc.min_max(key)
    first, last = edges["min"].as_py(), edges["max"].as_py()
    return next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def _beginnings(chunk: pa.BinaryArray, skip: int) -> Array:
    """Return the bytes of each key behind the first `skip`, as far as they go, as a number; zeros behind its end."""
    _, offsets, data = chunk.buffers()
    edges = np.frombuffer(offsets, dtype=np.int32)[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
    area = np.zeros(edges[-1] - edges[0] + 8, dtype=np.uint8)  # so that eight bytes can be read anywhere
    if data is not None:
        area[:-8] = np.frombuffer(data, dtype=np.uint8)[edges[0] : edges[-1]]
    at_any_byte: Array = np.ndarray((len(area) - 7,), dtype=">u8", buffer=area, strides=(1,))
    size = np.clip(edges[1:] - edges[:-1] - skip, 0, _KEY_BYTES)
    start = np.minimum(edges[:-1] - edges[0] + skip, len(area) - 8)
    numbers = at_any_byte[start].astype(np.uint64) >> np.uint64(8)
    beyond = (8 * (_KEY_BYTES - size)).astype(np.uint64)
    return numbers >> beyond << beyond


def _settled(order: Array, ascending: Array, rank: pa.ChunkedArray, key: pa.ChunkedArray) -> Array:
    """Return `order` with the rows of equal numbers sorted by their whole keys."""
    equal = ascending[1:] == ascending[:-1]
    if not equal.any():
        return order
    tied = np.zeros(len(order), dtype=bool)
    tied[1:] |= equal
    tied[:-1] |= equal
    # In full order the tied rows come group by group, as their places do.
    rows = pa.array(order[tied])
    table = pa.table([rank.take(rows), key.take(rows)], names=["rank", "key"])
    settled = pc.sort_indices(table, [("rank", "ascending"), ("key", "ascending")])
    order[tied] = rows.to_numpy()[settled.to_numpy()]
    return order
