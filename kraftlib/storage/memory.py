"""A log and an election store in memory that keep the promises of `interface`, losses included.

They are for tests and for the simulator, so they are honest about durability: `crash` returns what a disk would have
kept. Everything flushed survives; of batches that were only appended any whole number from the first on may survive,
since the kernel writes back when it likes. A flush vouches only for appends from before it *began*, so it comes in two
halves between which simulated time can pass; so does the write of an election.
"""

from __future__ import annotations

import random as chance
from bisect import bisect_right
from collections.abc import Sequence
from threading import Lock

import attrs

from kraftlib.errors import StorageError, ensure
from kraftlib.frozen import immutable
from kraftlib.records.batch import Batch
from kraftlib.storage.log.batches import ensure_continues, ensure_readable, up_to
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.snapshots.in_memory import MemorySnapshotSink, MemorySnapshotSource
from kraftlib.types import ElectionState, Epoch, EpochStart, Offset, OffsetAndEpoch


@immutable
class FlushInProgress:
    """The end that a flush in progress will make durable, unless the log is truncated meanwhile."""

    end_offset: Offset
    log_version: int


class MemoryReplicatedLog:
    """Batches of one partition and their snapshots, in lists. Nothing outlives the process."""

    def __init__(self, *, start_offset: Offset = 0) -> None:
        self._start_offset = self._end_offset = self._flushed_offset = start_offset
        self._batches: list[Batch] = []
        """Appends add to it. It is replaced, and never shortened, since a read may have begun."""
        self._epochs = EpochTable()
        self._snapshots: dict[OffsetAndEpoch, bytes] = {}
        self._snapshots_lock = Lock()
        """They are frozen on other threads, while the start of the log moves."""
        self._version = 0
        self._is_closed = False
        self.torn_tail = b""
        """After a crash: bytes of a batch that was being written, which recovery cut."""

    @property
    def start_offset(self) -> Offset:
        """First offset that can be read."""
        return self._start_offset

    @property
    def end_offset(self) -> Offset:
        """One past the last record."""
        return self._end_offset

    @property
    def flushed_offset(self) -> Offset:
        """One past the last record that `crash` certainly keeps."""
        return self._flushed_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(len(batch.data) for batch in self._batches)

    def batches(self) -> Sequence[Batch]:
        """Return every batch, of a closed log too."""
        return list(self._batches)

    def rewrite(self, batches: Sequence[Batch]) -> None:
        """Put these batches, durable, in the place of all others, as a repair does."""
        self._batches, self._epochs, self._end_offset = [], EpochTable(), self._start_offset
        self.append(batches)
        self.flush()

    def epoch_starts(self) -> Sequence[EpochStart]:
        """Return the epochs in the log and where they start."""
        return self._epochs.starts()

    def begin_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that `epoch` starts at `start_offset`. Lost in a crash while it has no record."""
        ensure(start_offset <= self._end_offset, f"epoch {epoch} cannot start at {start_offset}, beyond the log's end")
        self._epochs.assign(epoch, start_offset)

    def append(self, batches: Sequence[Batch]) -> None:
        """Append stamped batches at the end. Readable on return, not durable."""
        self._ensure_open()
        end_offset, epoch = self._end_offset, self._epochs.latest_epoch
        for batch in batches:
            ensure_continues(batch, end_offset, epoch)
            end_offset, epoch = batch.last_offset + 1, batch.epoch
        for batch in batches:
            if batch.epoch != self._epochs.latest_epoch:
                self._epochs.assign(batch.epoch, batch.base_offset)
            self._batches.append(batch)
        self._end_offset = end_offset

    def begin_flush(self) -> FlushInProgress:
        """Begin to make durable what has been appended so far."""
        self._ensure_open()
        return FlushInProgress(self._end_offset, self._version)

    def finish_flush(self, flush: FlushInProgress) -> Offset:
        """Make it durable and return the end offset that is durable now; a truncation in between voids the flush."""
        self._ensure_open()
        if flush.log_version == self._version:
            self._flushed_offset = max(self._flushed_offset, flush.end_offset)
        return self._flushed_offset

    def flush(self) -> Offset:
        """Make durable what was appended before the call; return the end offset that is durable now."""
        return self.finish_flush(self.begin_flush())

    def read(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        """Return whole batches from the one that contains `start_offset` on, at most `max_bytes` but at least one."""
        self._ensure_open()
        batches = self._batches  # before the look at where they begin
        end_offset = self._end_offset
        ensure_readable(start_offset, self._start_offset, end_offset)
        if start_offset == end_offset:
            return ()
        return up_to(batches, bisect_right(batches, start_offset, key=_base_of) - 1, max_bytes)

    def truncate(self, end_offset: Offset) -> Offset:
        """Drop the batches that reach beyond `end_offset`; return the new end. The rest is durable."""
        self._ensure_open()
        ensure(end_offset >= self._start_offset, f"cannot truncate to {end_offset}, below {self._start_offset}")
        if end_offset < self._end_offset:
            keep = bisect_right(self._batches, end_offset, key=_base_of)
            if self._batches[keep - 1].last_offset >= end_offset:
                keep -= 1
            self._batches = self._batches[:keep]
            self._end_offset = self._batches[-1].last_offset + 1 if self._batches else self._start_offset
            self._epochs.truncate_to(self._end_offset)
        self._flushed_offset = self._end_offset
        self._version += 1
        return self._end_offset

    def snapshots(self) -> Sequence[OffsetAndEpoch]:
        """Return the ids of the stored snapshots, ascending."""
        return sorted(self._snapshots)

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> MemorySnapshotSink:
        """Open a new snapshot for writing; it exists for others once frozen."""
        self._ensure_open()
        return MemorySnapshotSink(snapshot_id, frozen=self.store_snapshot)

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> MemorySnapshotSource:
        """Open a stored snapshot for reading."""
        self._ensure_open()
        if snapshot_id not in self._snapshots:
            raise StorageError(f"there is no snapshot {snapshot_id}")
        return MemorySnapshotSource(self._snapshots[snapshot_id])

    def store_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """Take over a frozen snapshot. One that exists already stays as it is; one that comes too late is dropped."""
        self._ensure_open()
        with self._snapshots_lock:
            if not self._has_passed(snapshot_id):
                self._snapshots = {snapshot_id: data, **self._snapshots}

    def _has_passed(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether the log begins behind this snapshot, or at its offset with another one."""
        start_offset = self._start_offset
        begins_with_another = any(kept.offset == start_offset and kept != snapshot_id for kept in self._snapshots)
        return snapshot_id.offset < start_offset or (snapshot_id.offset == start_offset and begins_with_another)

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Drop every batch and begin anew at the end of this stored snapshot."""
        self._ensure_open()
        ensure(snapshot_id in self._snapshots, f"there is no snapshot {snapshot_id} to install")
        with self._snapshots_lock:
            self._drop_snapshots_before(snapshot_id)
            self._start_offset = self._end_offset = self._flushed_offset = snapshot_id.offset
        self._batches = []
        self._epochs = EpochTable()
        self._version += 1

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget batches and snapshots that this stored snapshot replaces."""
        self._ensure_open()
        ensure(snapshot_id in self._snapshots, f"there is no snapshot {snapshot_id} to stand in for the log")
        ensure(snapshot_id.offset <= self._end_offset, f"snapshot {snapshot_id} is beyond the end {self._end_offset}")
        moves = snapshot_id.offset > self._start_offset
        with self._snapshots_lock:
            self._drop_snapshots_before(snapshot_id)
            self._start_offset = max(self._start_offset, snapshot_id.offset)
        if moves:
            self._batches = [batch for batch in self._batches if batch.last_offset >= snapshot_id.offset]
            self._epochs.start_at(snapshot_id.offset)

    def _drop_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> None:
        self._snapshots = {kept: data for kept, data in self._snapshots.items() if kept >= snapshot_id}

    def close(self) -> None:
        """Flush; the log cannot be used any more. Calling it twice is allowed."""
        if not self._is_closed:
            self.flush()
            self._is_closed = True

    def crash(self, random: chance.Random, *, torn_tail: bool = False) -> MemoryReplicatedLog:
        """Return the log as recovery finds it after the power went; this one cannot be used any more.

        Flushed batches are there, and `random` chooses how many of the later ones are. With `torn_tail` it also chooses
        how much of the next one reached the disk, which recovery cuts and shows as `torn_tail`. Snapshots that were not
        frozen are gone, and so is an epoch without a record.
        """
        durable = sum(1 for batch in self._batches if batch.last_offset < self._flushed_offset)
        kept = random.randint(durable, len(self._batches))
        lost = self._batches[kept:]
        survivor = self._recovered(kept)
        if torn_tail and lost:
            survivor.torn_tail = bytes(lost[0].data)[: random.randrange(1, len(lost[0].data))]
        return survivor

    def reopen(self) -> MemoryReplicatedLog:
        """Return the log as it is opened again after `close`."""
        ensure(self._is_closed, "the log is still open")
        return self._recovered(len(self._batches))

    def _recovered(self, kept: int) -> MemoryReplicatedLog:
        self._is_closed = True
        start_offset = self._batches[0].base_offset if self._batches else self._start_offset
        survivor = MemoryReplicatedLog(start_offset=start_offset)
        survivor._snapshots = self._snapshots.copy()
        survivor.append(self._batches[:kept])
        survivor._flushed_offset = survivor._end_offset
        return survivor

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise StorageError("the log is closed")


def _base_of(batch: Batch) -> Offset:
    return batch.base_offset


class MemoryQuorumStateStore:
    """The election state in a variable. A crash during a write leaves the old state or the new one, never a mixture."""

    def __init__(self, election: ElectionState | None = None) -> None:
        self._durable = election
        self._writing: ElectionState | None = None
        self._is_closed = False

    def read(self) -> ElectionState | None:
        """Return what was written last; None if nothing ever was."""
        return self._durable

    def begin_write(self, election: ElectionState) -> None:
        """Begin to replace the state: until `finish_write` a crash may leave either."""
        if self._is_closed:
            raise StorageError("the election store is closed")
        self._writing = election

    def finish_write(self) -> None:
        """Make durable what `begin_write` was given."""
        ensure(self._writing is not None, "no write has begun")
        self._durable, self._writing = self._writing, None

    def write(self, election: ElectionState, *, kraft_version: int, voters: Sequence[int] = ()) -> None:
        """Replace the election state. Durable on return."""
        self.begin_write(attrs.evolve(election, static_voters=() if kraft_version else tuple(sorted(voters))))
        self.finish_write()

    def close(self) -> None:
        """No more writes. Calling it twice is allowed."""
        self._is_closed = True

    def crash(self, random: chance.Random) -> MemoryQuorumStateStore:
        """Return the store as it is found after the power went; this one cannot be written any more."""
        self._is_closed = True
        survived = self._writing is not None and random.random() < 0.5
        return MemoryQuorumStateStore(self._writing if survived else self._durable)
