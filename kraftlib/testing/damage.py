"""A simulated log whose disk has lost records that were durable, and that can be filled again (`RepairableLog`).

Lost batches stay in the list, where they cannot be read, so that the places of the others stay as they are. A hole may
be latent: it is unknown until a read meets it.
"""

from __future__ import annotations

import random as chance
from collections.abc import Sequence

from kraftlib.errors import CorruptBatchError, ensure
from kraftlib.records.batch import Batch
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import Offset, OffsetAndEpoch, OffsetRange


class DamagedLog(MemoryReplicatedLog):
    """A log in memory with holes. Each begins and ends between two batches."""

    def __init__(self, log: MemoryReplicatedLog, *holes: OffsetRange, latent: bool) -> None:
        """Take over a log that is open and flushed; it cannot be used any more."""
        super().__init__(start_offset=log.start_offset)
        for snapshot_id in log.snapshots():
            source = log.open_snapshot(snapshot_id)
            self.store_snapshot(snapshot_id, source.read_at(0, source.size))
        self.append(log.batches())
        self.flush()
        log.close()
        self._holes = sorted(holes, key=lambda hole: hole.start_offset)
        self._is_latent = latent
        self._fetched: list[Batch] = []

    @property
    def is_damaged(self) -> bool:
        """Whether something is still missing, known or not."""
        return bool(self._holes)

    def holes(self) -> Sequence[OffsetRange]:
        """As `RepairableLog.holes`."""
        return () if self._is_latent else tuple(self._holes)

    def find_damage(self, offset: Offset) -> Sequence[OffsetRange]:
        """As `RepairableLog.find_damage`: the search finds latent holes, too."""
        self._is_latent = False
        return self.holes()

    def write_repair(self, batches: Sequence[Batch]) -> bool:
        """As `RepairableLog.write_repair`."""
        ensure(self._holes, "there is nothing to repair")
        hole = self._holes[0]
        if batches[0].base_offset == hole.start_offset:
            self._fetched = []  # from the beginning again, with another leader
        expected = self._fetched[-1].end_offset if self._fetched else hole.start_offset
        ensure(batches[0].base_offset == expected, f"a repair goes on at {expected}, not at {batches[0].base_offset}")
        self._fetched += batches
        if self._fetched[-1].end_offset < hole.end_offset:
            return False
        everything = [batch for batch in self.batches() if batch.last_offset < hole.start_offset]
        everything += self._fetched
        everything += [batch for batch in self.batches() if batch.base_offset >= self._fetched[-1].end_offset]
        others, self._holes, self._fetched = self._holes[1:], [], []
        self.rewrite(everything)
        self._holes = others
        return True

    def read(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        """As `ReplicatedLog.read`, up to the hole. Raises: CorruptBatchError inside of it."""
        batches = super().read(start_offset, max_bytes)
        for hole in self._holes:
            if hole.start_offset <= start_offset < hole.end_offset:
                raise CorruptBatchError(f"the records from {hole.start_offset} on cannot be read (injected)")
            if start_offset < hole.start_offset:
                batches = [batch for batch in batches if batch.base_offset < hole.start_offset]
        return batches

    def append(self, batches: Sequence[Batch]) -> None:
        """As `ReplicatedLog.append`; a log that is known to be damaged does not grow."""
        ensure(not getattr(self, "_holes", ()) or self._is_latent, "a log that is damaged does not grow")
        super().append(batches)

    def truncate(self, end_offset: Offset) -> Offset:
        """As `ReplicatedLog.truncate`: records that are cut off are not missing any more."""
        self._fetched = []
        end_offset = super().truncate(end_offset)
        self._holes = [hole for hole in self._holes if hole.start_offset < end_offset]
        return end_offset

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """As `ReplicatedLog.install_snapshot`: it stands for all that is missing."""
        super().install_snapshot(snapshot_id)
        self._holes, self._fetched = [], []

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """As `ReplicatedLog.delete_before`: nothing is missing any more where a snapshot stands in."""
        super().delete_before(snapshot_id)
        holes = [
            OffsetRange(max(hole.start_offset, snapshot_id.offset), hole.end_offset)
            for hole in self._holes
            if hole.end_offset > snapshot_id.offset
        ]
        if holes != self._holes:  # else the repair of the first one goes on
            self._holes, self._fetched = holes, []

    def crash(self, random: chance.Random, *, torn_tail: bool = False) -> MemoryReplicatedLog:
        """As `MemoryReplicatedLog.crash`; missing records stay missing."""
        return self._still_damaged(super().crash(random, torn_tail=torn_tail))

    def reopen(self) -> MemoryReplicatedLog:
        """As `MemoryReplicatedLog.reopen`."""
        return self._still_damaged(super().reopen())

    def _still_damaged(self, survivor: MemoryReplicatedLog) -> MemoryReplicatedLog:
        holes = [hole for hole in self._holes if survivor.start_offset <= hole.start_offset]
        return DamagedLog(survivor, *holes, latent=self._is_latent) if holes else survivor


def damaged(
    log: MemoryReplicatedLog, random: chance.Random, *, end_offset: Offset, latent: bool, places: int = 1
) -> DamagedLog | None:
    """Return the log of a node that is down with some flushed batches below `end_offset` lost; None, if it has none.

    They are lost in so many `places` at most, of which none touches another.
    """
    end_offset = min(end_offset, log.flushed_offset)
    batches = [batch for batch in log.batches() if batch.last_offset < end_offset]
    if not batches or isinstance(log, DamagedLog):
        return None
    holes: list[OffsetRange] = []
    for _ in range(places):
        first = random.randrange(len(batches))
        # Most often a few batches, now and then more than one answer brings.
        last = min(len(batches) - 1, first + random.randrange(4) * random.choice((1, 1, 10)))
        hole = OffsetRange(batches[first].base_offset, batches[last].end_offset)
        if all(hole.end_offset < other.start_offset or other.end_offset < hole.start_offset for other in holes):
            holes.append(hole)
    return DamagedLog(log, *holes, latent=latent)
