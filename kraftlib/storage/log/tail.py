"""The newest batches of a log, kept in memory: a Fetch of a follower that keeps up never touches a file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from kraftlib.records.batch import Batch
from kraftlib.storage.log.batches import up_to
from kraftlib.types import Offset


class Tail:
    """Batches back to back up to the end of the log, as many as fit into a number of bytes.

    For the loop alone. The disk thread that cuts the log makes another one with `up_to`, and a read that has begun goes
    on in this one.
    """

    __slots__ = ("_base_offsets", "_batches", "_bytes", "_max_bytes", "_step")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes: Final = max_bytes
        self._step: Final = max_bytes // 32
        self._bytes = 0
        self._batches: list[Batch] = []
        self._base_offsets: list[Offset] = []

    def append(self, batch: Batch) -> None:
        """Add the next batch, and let the oldest go if there is no room."""
        self._base_offsets.append(batch.base_offset)
        self._batches.append(batch)
        self._bytes += len(batch.data)
        if self._bytes > self._max_bytes:
            self._evict()

    def _evict(self) -> None:
        # A little more than needed, since the cost of each round is that of moving the list.
        goal, count = self._max_bytes - self._step, 0
        while self._bytes > goal and count < len(self._batches):
            self._bytes -= len(self._batches[count].data)
            count += 1
        del self._batches[:count], self._base_offsets[:count]

    def read(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch] | None:
        """Return batches from the one that contains `start_offset` on; None if it is not here. It is below the end."""
        first = bisect_right(self._base_offsets, start_offset) - 1
        return up_to(self._batches, first, max_bytes) if first >= 0 else None

    def up_to(self, end_offset: Offset) -> Tail:
        """Return a tail of the batches before `end_offset`."""
        keep = bisect_right(self._base_offsets, end_offset - 1)
        kept = Tail(self._max_bytes)
        kept._batches, kept._base_offsets = self._batches[:keep], self._base_offsets[:keep]
        kept._bytes = self._bytes - sum(len(batch.data) for batch in self._batches[keep:])
        return kept
