"""The core's small picture of the log: ends, epoch starts, snapshots, voters. Never a record's bytes.

* `flushed_offset <= end_offset`; records beyond the first may be lost in a crash and vouch for nothing;
* `epoch_starts` ascends in both columns;
* `log_version` grows with every truncation and installed snapshot: a flush that began before vouches for nothing after.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

import attrs

from kraftlib.consensus.voters import History, VoterSet
from kraftlib.errors import InvariantError
from kraftlib.frozen import define, immutable
from kraftlib.records.batch import Batch
from kraftlib.records.control import decode_control
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.types import BOOTSTRAP_SNAPSHOT, Epoch, EpochStart, Offset, OffsetAndEpoch, OffsetRange


@immutable
class Valid:
    """The follower's log is a prefix of ours."""


VALID = Valid()


@immutable
class Diverging:
    """The follower's log leaves ours: it must truncate to the end of `end.epoch`, `end.offset` here."""

    end: OffsetAndEpoch


@immutable
class NeedsSnapshot:
    """The follower's position lies before our log."""

    snapshot_id: OffsetAndEpoch


@define(kw_only=True)
class LogView:
    """The log of this replica, as far as the core knows it."""

    start_offset: Offset = 0
    end_offset: Offset = 0
    flushed_offset: Offset = 0
    log_version: int = 0
    epoch_starts: list[EpochStart] = attrs.field(factory=list)
    snapshots: list[OffsetAndEpoch] = attrs.field(factory=list)
    holes: list[OffsetRange] = attrs.field(factory=list)
    """Ranges that were durable and that the disk has lost, ascending."""
    voters: History[VoterSet]
    kraft_version: History[int]
    header_offset: Offset = 0
    """From the record before it on, voters and kraft.version are known: the end of the snapshot whose header told them,
    or the start of the log. That header is believed even if its snapshot is lost since, and the log cut before it."""

    @classmethod
    def build(
        cls,
        *,
        start_offset: Offset = 0,
        end_offset: Offset = 0,
        epoch_starts: Sequence[EpochStart] = (),
        snapshots: Sequence[OffsetAndEpoch] = (),
        static_voters: VoterSet | None = None,
    ) -> LogView:
        """Describe a log that was just opened: all of it is durable. Its control records are told afterwards, in order:
        `observe_snapshot` for a snapshot that it has, then `observe` for each control batch behind that."""
        return cls(
            start_offset=start_offset,
            end_offset=end_offset,
            flushed_offset=end_offset,
            epoch_starts=list(epoch_starts),
            snapshots=sorted(snapshots),
            voters=History(static_voters or VoterSet()),
            kraft_version=History(0),
        )

    # --- positions ---------------------------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> Epoch:
        """Epoch of the last record; of the snapshot at the start if the log is empty; 0 if there is neither."""
        if self.epoch_starts:
            return self.epoch_starts[-1].epoch
        return next((kept.epoch for kept in reversed(self.snapshots) if kept.offset == self.start_offset), 0)

    @property
    def lacks_last_epoch(self) -> bool:
        """Whether records are missing, and with them all that tells the epoch of the last one."""
        return bool(self.holes) and not self.epoch_starts

    @property
    def end(self) -> OffsetAndEpoch:
        """Position of the whole log, as elections compare it."""
        starts = self.epoch_starts
        return OffsetAndEpoch(epoch=starts[-1].epoch if starts else self.last_epoch, offset=self.end_offset)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        """Id of the newest snapshot that may be sent to others, which the bootstrap checkpoint may not."""
        return self.snapshots[-1] if self.snapshots and self.snapshots[-1] != BOOTSTRAP_SNAPSHOT else None

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        """Id of the oldest snapshot on disk."""
        return self.snapshots[0] if self.snapshots else None

    @property
    def voters_known_from(self) -> Offset:
        """The least end of a snapshot that can say who voted there. Before kraft.version 1, none has to."""
        return self.header_offset if self.kraft_version.latest >= 1 else 0

    def end_for(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest known epoch <= `epoch` and where it ends (KIP-595, Fetch)."""
        starts = self.epoch_starts
        if not starts or epoch >= starts[-1].epoch:
            result = self.end
        elif epoch < starts[0].epoch:
            # Everything in the log is newer: nothing of that epoch is here, so it ends where the log begins.
            result = OffsetAndEpoch(epoch=epoch, offset=starts[0].start_offset)
        else:
            place = bisect.bisect_right(starts, epoch, key=lambda start: start.epoch)
            result = OffsetAndEpoch(epoch=starts[place - 1].epoch, offset=starts[place].start_offset)
        earliest = self.earliest_snapshot
        if earliest is not None and result == OffsetAndEpoch(epoch=epoch, offset=earliest.offset):
            return earliest
        return result

    def validate(self, offset: Offset, epoch: Epoch) -> Valid | Diverging | NeedsSnapshot:
        """Judge the end of a follower's log (KIP-595, Fetch; KIP-630, Fetch): the one place that decides it."""
        if self.start_offset == 0 and offset == 0:
            return VALID
        if self.is_amid_latest_epoch(offset, epoch):
            return VALID
        earliest, latest = self.earliest_snapshot, self.latest_snapshot
        if earliest is not None and latest is not None:
            at_start_of_another = offset == self.start_offset and epoch != earliest.epoch
            if offset < self.start_offset or at_start_of_another or epoch < earliest.epoch:
                return NeedsSnapshot(latest)
        end = self.end_for(epoch)
        return Diverging(end) if end.epoch != epoch or end.offset < offset else VALID

    def is_amid_latest_epoch(self, offset: Offset, epoch: Epoch) -> bool:
        """Whether a log that ends so is a prefix of ours, and ends in our latest epoch: nearly every Fetch says so."""
        starts = self.epoch_starts
        return bool(starts) and epoch == starts[-1].epoch and starts[-1].start_offset < offset <= self.end_offset

    # --- changes -----------------------------------------------------------------------------------------------------

    def append(self, batches: Iterable[Batch]) -> bool:
        """Take note of stamped batches that are appended at the end; return whether there are control batches."""
        has_control, starts = False, self.epoch_starts
        for batch in batches:
            # Spelled out, as everywhere on the way of a record: the message of `ensure` is built in any case.
            if batch.base_offset != self.end_offset:
                raise InvariantError(f"{batch} does not continue {self.end}")
            if not starts or batch.epoch != starts[-1].epoch:
                if batch.epoch < self.last_epoch:
                    raise InvariantError(f"{batch} does not continue {self.end}")
                self.begin_epoch(batch.epoch, batch.base_offset)
            self.end_offset = batch.last_offset + 1
            if batch.is_control:
                has_control = True
                self.observe(batch)
        return has_control

    def begin_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Take note that `epoch` begins; epochs in which nothing was written disappear."""
        starts = self.epoch_starts
        if starts and epoch == starts[-1].epoch and start_offset >= starts[-1].start_offset:
            return
        while starts and (starts[-1].epoch >= epoch or starts[-1].start_offset >= start_offset):
            starts.pop()
        starts.append(EpochStart(epoch=epoch, start_offset=start_offset))

    def observe(self, batch: Batch) -> None:
        """Read voters and kraft.version from a control batch of the log."""
        for record in batch.records():
            self._observe_control(record.offset, decode_control(record))

    def observe_snapshot(self, snapshot_id: OffsetAndEpoch, controls: Iterable[object]) -> None:
        """Read voters and kraft.version from the header of the snapshot that precedes the log, or is ahead of it."""
        self.header_offset = snapshot_id.offset
        for control in controls:
            self._observe_control(min(snapshot_id.offset, self.end_offset) - 1, control)

    def _observe_control(self, offset: Offset, control: object) -> None:
        if isinstance(control, VotersRecord):
            self.voters.add(offset, VoterSet.from_record(control))
        elif isinstance(control, KRaftVersionRecord):
            self.kraft_version.add(offset, control.kraft_version)

    def flushed(self, end_offset: Offset, log_version: int) -> None:
        """Take note of a finished flush; one that began before a truncation vouches for nothing."""
        if log_version == self.log_version and end_offset > self.flushed_offset:
            if end_offset > self.end_offset:
                raise InvariantError(f"flushed to {end_offset} beyond the end {self.end}")
            self.flushed_offset = end_offset

    def truncate(self, end_offset: Offset) -> None:
        """Drop everything at or beyond `end_offset`."""
        self.log_version += 1
        self.end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.holes = [hole for hole in self.holes if hole.start_offset < end_offset]
        while self.epoch_starts and self.epoch_starts[-1].start_offset >= end_offset:
            self.epoch_starts.pop()
        self.voters.truncate(end_offset, known_from=self.header_offset)
        self.kraft_version.truncate(end_offset, known_from=self.header_offset)

    def epoch_before(self, offset: Offset) -> Epoch:
        """Return the epoch of the record before `offset`, which is that of a snapshot if the log begins there."""
        below = [start.epoch for start in self.epoch_starts if start.start_offset < offset]
        replaced = [snapshot.epoch for snapshot in self.snapshots if snapshot.offset <= offset]
        return below[-1] if below else max(replaced, default=0)

    def repaired(
        self,
        holes: Sequence[OffsetRange],
        end_offset: Offset,
        epoch_starts: Sequence[EpochStart],
        control_batches: Sequence[Batch],
    ) -> None:
        """Take over the whole log as it is after a repair; `holes` are left in it."""
        self.holes = list(holes)
        # Behind our end all is new, also where the log ended before the snapshot whose header was read.
        first = max(self.start_offset, min(self.header_offset, self.end_offset))
        self.end_offset = self.flushed_offset = max(self.end_offset, end_offset)
        self.epoch_starts = list(epoch_starts)
        self.voters.truncate(first)
        self.kraft_version.truncate(first)
        for batch in control_batches:
            if batch.base_offset >= first:
                self.observe(batch)

    def add_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Take note of a stored snapshot."""
        if snapshot_id not in self.snapshots:
            bisect.insort(self.snapshots, snapshot_id)

    def lose_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget a stored snapshot. If it was the whole log, nothing else tells the epoch of the last record, which
        elections compare: it is noted."""
        if snapshot_id in self.snapshots:
            self.snapshots.remove(snapshot_id)
        if not self.epoch_starts and 0 < snapshot_id.offset == self.end_offset:
            self.epoch_starts.append(EpochStart(epoch=snapshot_id.epoch, start_offset=snapshot_id.offset - 1))

    def is_whole_before(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether this log, as it was when it was whole, has the records that a snapshot of this id replaces. Not where
        that ends amid what is missing: the epoch there is unknown."""
        amid = any(hole.start_offset < snapshot_id.offset < hole.end_offset for hole in self.holes)
        return not amid and self._reaches(snapshot_id) and self.epoch_before(snapshot_id.offset) == snapshot_id.epoch

    def may_begin_at(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether a snapshot of a leader that has all records of this log may stand in for those before its end. If its
        last record is missing here, its epoch is the word of the leader, which has found the end of our log valid."""
        is_missing = any(hole.start_offset < snapshot_id.offset <= hole.end_offset for hole in self.holes)
        is_same = is_missing or self.epoch_before(snapshot_id.offset) == snapshot_id.epoch
        return is_same and self._reaches(snapshot_id)

    def _reaches(self, snapshot_id: OffsetAndEpoch) -> bool:
        return self.start_offset < snapshot_id.offset <= self.end_offset

    def adopt(
        self,
        snapshot_id: OffsetAndEpoch,
        controls: Iterable[object],
        holes: Sequence[OffsetRange],
        control_batches: Sequence[Batch],
    ) -> None:
        """Begin at the end of a snapshot, which replaces what is before it, and keep the rest; `holes` are left."""
        self.add_snapshot(snapshot_id)
        self.delete_before(snapshot_id)
        self.holes = list(holes)
        self.voters.clear()
        self.kraft_version.clear()
        self.observe_snapshot(snapshot_id, controls)
        for batch in control_batches:
            if batch.base_offset >= snapshot_id.offset:
                self.observe(batch)

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Take note that the log begins at the end of this stored snapshot; older snapshots are gone."""
        self.start_offset = max(self.start_offset, snapshot_id.offset)
        self.holes = [
            OffsetRange(max(hole.start_offset, self.start_offset), hole.end_offset)
            for hole in self.holes
            if hole.end_offset > self.start_offset
        ]
        self.snapshots = [kept for kept in self.snapshots if kept >= snapshot_id]
        self.header_offset = max(self.header_offset, self.start_offset)
        self.voters.forget_before(self.start_offset)
        self.kraft_version.forget_before(self.start_offset)
        starts = self.epoch_starts
        while len(starts) > 1 and starts[1].start_offset <= self.start_offset:
            del starts[0]
        if starts and starts[0].start_offset < self.start_offset:
            starts[0] = EpochStart(epoch=starts[0].epoch, start_offset=self.start_offset)

    def install(self, snapshot_id: OffsetAndEpoch, controls: Iterable[object]) -> None:
        """Begin anew at the end of a snapshot, which replaces the whole log. A newer one of our own stays: it may be
        ahead of a log that has lost its end with the power."""
        self.log_version += 1
        self.start_offset = self.end_offset = self.flushed_offset = snapshot_id.offset
        self.epoch_starts.clear()
        self.holes.clear()
        self.snapshots = [snapshot_id, *(kept for kept in self.snapshots if kept > snapshot_id)]
        self.voters.clear()
        self.kraft_version.clear()
        self.observe_snapshot(snapshot_id, controls)
