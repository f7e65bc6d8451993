"""The state of a log directory, as a scan of its files finds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs

from kraftlib.frozen import define
from kraftlib.records.batch import Batch
from kraftlib.records.checksum import crc32c
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.prefix import KnownPrefix, controls_up_to, tells_of_voters
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.sync_point import UNKNOWN_CRC, Mark, SyncPoint
from kraftlib.storage.snapshots.damaged_snapshots import LostSnapshot
from kraftlib.types import Offset, OffsetAndEpoch


@define
class RecoveredLog:
    """The state of a log directory, as a scan of all its files found it."""

    directory: Path
    snapshots: list[OffsetAndEpoch]
    lost_snapshots: list[LostSnapshot] = attrs.Factory(list)
    """The snapshots that are not whole, and were set aside."""
    sync_point: SyncPoint | None = None
    """The noted end of the durable log; None if there is no such note or it is void."""
    segments: list[Segment] = attrs.Factory(list)
    """Ascending; the last one is to grow. At least one, once recovery has ended."""
    epochs: EpochTable = attrs.Factory(EpochTable)
    end_offset: Offset = 0
    control_batches: list[Batch] = attrs.Factory(list)
    """Those in the log that say who votes, or which protocol version is in force."""
    holes: list[Hole] = attrs.Factory(list)
    is_doubtful: bool = False
    """Whether it cannot be told how long the log was, and hence what this replica has acknowledged."""
    zero_tails: list[Segment] = attrs.Factory(list)
    """Those whose files end in zeros that were written ahead."""
    bytes_read: int = 0
    """The number of bytes of the log that had to be read."""
    known_start: Offset = 0
    noted_epochs: EpochTable = attrs.Factory(EpochTable)
    """The noted epochs of the log below `noted_end`: no checksum of a batch covers its epoch."""
    noted_end: Offset = 0
    epoch_place: tuple[int, Offset] = (0, 0)
    """Position and offset in the segment at hand from which on all batches are of one epoch."""
    is_torn: bool = False
    """Whether the last hole is a torn tail, which was never acknowledged; segments behind it were not read."""
    watch: Callable[[Segment, Batch], None] | None = None
    """Told of every batch that is read. A watcher only looks: nothing is synced."""

    @property
    def start_offset(self) -> Offset:
        """Base offset of the first segment, unless it is known that the log begins later, at the end of a snapshot."""
        return max(self.segments[0].base_offset, self.known_start)

    @property
    def is_empty(self) -> bool:
        """Whether there is no batch."""
        return self.start_offset == self.end_offset

    @property
    def is_unacknowledged(self) -> bool:
        """Whether nothing that is missing from the present end on was ever acknowledged: an exact note says so."""
        if self.sync_point is None or not self.sync_point.is_exact or self.holes:
            return False
        known, here = self.sync_point.mark, self.segments[-1]
        has_all = (here.base_offset, here.size) >= (known.segment, known.position)
        return has_all and self.end_offset >= known.end_offset

    @property
    def mark(self) -> Mark:
        """The place where the log ends."""
        last = self.segments[-1]
        return Mark(last.base_offset, last.inode, last.size, self.end_offset, self.epochs.latest_epoch, last.crc)

    def contradicts(self, batch: Batch) -> bool:
        """Whether a batch is of another epoch than was noted."""
        return batch.base_offset < self.noted_end and self.noted_epochs.first_misfit([batch]) is not None

    def hole_of(self, segment: Segment) -> Hole | None:
        """Return the hole of this segment, None if it has none."""
        return next((hole for hole in self.holes if hole.segment == segment.base_offset), None)

    def take(self, segment: Segment, batch: Batch) -> None:
        """Take note of the next batch, which was read in `segment`."""
        if batch.epoch != self.epochs.latest_epoch or segment.size == 0:
            self.epoch_place = (segment.size, batch.base_offset)
        if batch.epoch != self.epochs.latest_epoch:
            self.epochs.assign(batch.epoch, batch.base_offset)
        if batch.is_control and tells_of_voters(batch):
            self.control_batches.append(copied(batch))
        segment.index.add(batch, segment.size)
        segment.size += len(batch.data)
        if segment.crc != UNKNOWN_CRC:
            segment.crc = crc32c(batch.data, segment.crc)
        self.end_offset = batch.last_offset + 1
        if self.watch is not None:
            self.watch(segment, batch)

    def take_over(self, known: KnownPrefix) -> bool:
        """Begin with the noted state, in an empty log; return False, with nothing changed, if an index is lost."""
        last = Segment(self.directory, known.mark.segment)
        if not last.resume_index(known.mark.position, entries=known.index_entries):
            return False
        for sealed in known.sealed:
            segment = Segment(self.directory, sealed.base_offset)
            segment.size, segment.crc = sealed.size, sealed.crc
            if segment.path.exists():  # else it was deleted since, as a snapshot covers it
                self.segments.append(segment)
        last.size, last.crc = known.mark.position, known.mark.crc
        self.segments.append(last)
        self.known_start = known.start_offset
        self.epochs = EpochTable(known.epochs)
        self.epochs.start_at(self.start_offset)
        self.control_batches = controls_up_to(known.controls, known.mark.end_offset)
        self.end_offset = known.mark.end_offset
        return True


def copied(batch: Batch) -> Batch:
    """Return the batch with bytes of its own, so that it does not keep all that was read with it."""
    return Batch(
        batch.base_offset, batch.last_offset, batch.epoch, batch.is_control, batch.max_timestamp, bytes(batch.data)
    )
