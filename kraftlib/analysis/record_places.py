"""The places of records in their blocks: a record can only be found when the one before has been measured.

There are two ways to find all beginnings:

* *lockstep*: record i of every batch at once, one gather a step. Costs as many steps as the longest batch has records,
  so it is for many small batches;
* a plain loop over all records: for few large ones.

Lengths are only followed here. The reader of the records judges whether they are sound: a way that leaves its block
goes no further than to the end of it, and then some record does not end where its length says.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from kraftlib.analysis.varints import Array, spans

LOCKSTEP_RATIO: Final = 150
"""Lockstep pays when there are at least this many records for one of the longest batch."""


@attrs.frozen(kw_only=True, eq=False)
class Blocks:
    """Uncompressed blocks of records within one area of bytes, in ascending order."""

    area: bytes | memoryview
    start: Array
    end: Array
    count: Array
    last_delta: Array
    """Last offset of each batch, less its base offset."""

    def select(self, chosen: Array) -> Blocks:
        """Return the blocks that `chosen`, a mask or indexes, names, of the same area."""
        return attrs.evolve(
            self,
            start=self.start[chosen],
            end=self.end[chosen],
            count=self.count[chosen],
            last_delta=self.last_delta[chosen],
        )


def locate(area: Array, blocks: Blocks, counts: Array) -> tuple[Array, Array]:
    """Return where each record begins, with its length, and where the next one begins, or the way ended.

    `counts` says how many records of each block are looked for: all, or none.
    """
    if int(counts.sum()) > LOCKSTEP_RATIO * int(counts.max()):
        starts, reached = _in_lockstep(area, blocks, counts)
    else:
        starts, reached = _one_by_one(blocks, counts)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    has_any = counts > 0
    ends[np.cumsum(counts)[has_any] - 1] = reached[has_any]
    return starts, ends


def _in_lockstep(area: Array, blocks: Blocks, counts: Array) -> tuple[Array, Array]:
    """Return where records begin, and where the way through each block ended."""
    order = np.argsort(-counts, kind="stable")
    falling = counts[order]
    limit = blocks.end[order]
    place = (np.cumsum(counts) - counts)[order]
    position = blocks.start[order]
    starts = np.empty(int(counts.sum()), dtype=np.int64)
    # The number of blocks that have a record number i: falling counts make them a prefix.
    active = np.searchsorted(-falling, -np.arange(int(falling[0])), side="left")
    for step, many in enumerate(active.tolist()):
        at = position[:many]
        starts[place[:many] + step] = at
        np.minimum(at + spans(area, at), limit[:many], out=at)
    reached = np.empty_like(position)
    reached[order] = position
    return starts, reached


def _one_by_one(blocks: Blocks, counts: Array) -> tuple[Array, Array]:
    """As `_in_lockstep`, by a loop over all records."""
    data = bytes(blocks.area) if isinstance(blocks.area, memoryview) else blocks.area
    starts: list[int] = []
    reached: list[int] = []
    add = starts.append
    for position, limit, count in zip(blocks.start.tolist(), blocks.end.tolist(), counts.tolist(), strict=True):
        for _ in range(count):
            add(position)
            if position >= limit:
                continue
            number = data[position]
            position += 1
            if number > 0x7F:
                number &= 0x7F
                shift = 7
                while position < limit and shift < 35:
                    byte = data[position]
                    position += 1
                    number |= (byte & 0x7F) << shift
                    if byte <= 0x7F:
                        break
                    shift += 7
            position = min(position + (number >> 1), limit)
        reached.append(position)
    return np.array(starts, dtype=np.int64), np.array(reached, dtype=np.int64)
