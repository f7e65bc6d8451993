"""The promises of a log and of an election store: two protocols that state, per method, the data that is durable on
return.

Anything that keeps these promises can carry a replica: the files of this package, the memory stores of the tests, or a
user's own (`examples/custom_log.py` keeps one in SQLite). `kraftlib.testing` has a contract kit that checks them.

**Threads.** The engine's loop calls everything but `flush`, which runs on the disk thread while the loop goes on
appending and reading. `truncate`, `install_snapshot` and `write` of the election also run on the disk thread, and so
does `delete_before` of a log that has holes. The loop then changes nothing; but listeners go on reading what is
committed, and look at the offsets and snapshots. A thread in the background, or of the application, may freeze a
snapshot at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from kraftlib.records.batch import Batch
from kraftlib.types import ElectionState, Epoch, EpochStart, Offset, OffsetAndEpoch, OffsetRange


@runtime_checkable
class ReplicatedLog(Protocol):
    """The batches of one partition, its epoch boundaries and its snapshots.

    * offsets are contiguous from `start_offset` to `end_offset`, epochs never fall;
    * flushed batches survive a crash; batches that were only appended may be lost, but only from the end;
    * an error of the disk leaves as StorageError, and then the log is not used any more.
    """

    @property
    def start_offset(self) -> Offset:
        """First offset that can be read; everything below is in a snapshot."""
        ...

    @property
    def end_offset(self) -> Offset:
        """One past the last record that was appended, flushed or not."""
        ...

    @property
    def flushed_offset(self) -> Offset:
        """One past the last record that survives a crash. Equal to `end_offset` when the log has just been opened."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of all batches that are kept: the size that retention counts."""
        ...

    def epoch_starts(self) -> Sequence[EpochStart]:
        """Return the epochs in the log and where they start, both ascending."""
        ...

    def begin_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that `epoch` starts at `start_offset`, though it has no record. Not durable: batches carry epochs too.

        Does nothing if `epoch` is the latest; otherwise drops entries with a start at or beyond `start_offset`.
        """
        ...

    def append(self, batches: Sequence[Batch]) -> None:
        """Append stamped batches at `end_offset`. Readable on return, **not** durable: `flush` makes it so.

        A batch of a newer epoch begins that epoch.
        Raises: InvariantError, if offsets or epochs do not continue the log.
        """
        ...

    def flush(self) -> Offset:
        """Make durable what was appended before the call; return the end offset that is durable now.

        Called on the disk thread, one call at a time. Raises: StorageError; it is never retried, since a second fsync
        may report success for pages that were dropped.
        """
        ...

    def read(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        """Return whole batches from the one that has `start_offset` on, at most `max_bytes` in all but at least one.

        Empty if `start_offset` is the end. Uncommitted and unflushed batches are included: the caller knows the high
        watermark.
        Raises: StorageError below `start_offset`; CorruptBatchError for bytes that do not fit their checksum.
        """
        ...

    def truncate(self, end_offset: Offset) -> Offset:
        """Drop the batches that reach beyond `end_offset`; return the new end. Durable on return.

        A batch is the unit, so the new end is below `end_offset` if that lies inside a batch.
        """
        ...

    def snapshots(self) -> Sequence[OffsetAndEpoch]:
        """Return the ids of the stored snapshots, ascending. The bootstrap checkpoint is one of them."""
        ...

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotSink:
        """Open a new snapshot of this id for writing; it exists for others only once frozen."""
        ...

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotSource:
        """Open a stored snapshot for reading. Raises: StorageError, if there is none of this id."""
        ...

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Drop every batch and begin anew at the end of this stored snapshot. Durable on return.

        Start and end offset are then `snapshot_id.offset`; older snapshots are gone.
        """
        ...

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget batches and snapshots that this stored snapshot replaces.

        Whole segments only; durable some time later.
        """
        ...

    def close(self) -> None:
        """Flush, note a clean end and release files and locks. Calling it twice is allowed."""
        ...


@runtime_checkable
class RemembersControls(Protocol):
    """A log that knows its control batches without being read; of any other, the start reads every batch."""

    def control_batches(self) -> Sequence[Batch]:
        """Return those in the log that say who votes, or which protocol version is in force, ascending."""
        ...


@runtime_checkable
class RoomyLog(Protocol):
    """A log that knows when its disk is nearly full, while it can still write what is on its way."""

    @property
    def is_full(self) -> bool:
        """Whether more than that should not be appended."""
        ...

    def look_at_space(self) -> None:
        """Look again; a flush does so, too. Called on a thread in the background."""
        ...


@runtime_checkable
class NotingLog(Protocol):
    """A log that can sync with every flush how far it came, so that nothing a power cut leaves is taken for damage."""

    sync_note: bool
    """Whether it does, from the next flush on. May be set at any time."""


@runtime_checkable
class SparingLog(Protocol):
    """A log that has something to prepare for later, which takes long."""

    def prepare_spare(self) -> None:
        """Prepare it, if it is not there. Called now and then on a thread in the background."""
        ...


@runtime_checkable
class RepairableLog(Protocol):
    """A log that goes on though some of it is damaged, and can have that part filled with records of other replicas.

    A read in a damaged place raises CorruptBatchError and leaves the log usable. The disk thread calls all but `holes`.
    """

    def holes(self) -> Sequence[OffsetRange]:
        """Return what is known to be missing, ascending."""
        ...

    def find_damage(self, offset: Offset) -> Sequence[OffsetRange]:
        """Look closely at where a record could not be read; return all that is known to be missing in the log."""
        ...

    def write_repair(self, batches: Sequence[Batch]) -> bool:
        """Put batches into the first hole; return whether the log has now, durably, what was put there.

        The hole is full then, or a part of it, behind which these batches are wanted once more: `holes` tells. Raises:
        NoSpaceError, if there is no space for it: the log is as it was, and the repair begins anew.
        """
        ...


@runtime_checkable
class SnapshotCheckingLog(Protocol):
    """A log that finds damaged snapshots, and goes on without them.

    Of any other log every snapshot is believed that it has.
    """

    def check_snapshot(self, snapshot_id: OffsetAndEpoch, *, step: Callable[[], None]) -> None:
        """Read a snapshot to its end; `step` is called after every piece. Called on a thread in the background.

        Raises: CorruptBatchError, if it is not whole; StorageError, if there is none.
        """
        ...

    def set_snapshot_aside(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        """Forget a snapshot that is damaged, durably. Called on the disk thread; the loop waits.

        If no other one stands in for the records before the log, they become a hole, and the log begins there.
        """
        ...

    def lost_controls(self) -> tuple[OffsetAndEpoch, Sequence[object]] | None:
        """Return the id and the control records of the newest lost snapshot of which the header is whole."""
        ...


@runtime_checkable
class SnapshotSink(Protocol):
    """Bytes of a snapshot on their way to disk."""

    @property
    def size(self) -> int:
        """The number of bytes that were written."""
        ...

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes at the end. Not durable."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` of the written bytes, from `position`: a download is verified before it counts."""
        ...

    def freeze(self) -> None:
        """Make durable, then visible under its final name: all or nothing, even if the process ends in between."""
        ...

    def abort(self) -> None:
        """Drop what was written. Does nothing after `freeze`."""
        ...


@runtime_checkable
class SnapshotSource(Protocol):
    """A stored snapshot, open for reading."""

    @property
    def size(self) -> int:
        """Length in bytes."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; shorter only at the end."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...


@runtime_checkable
class QuorumStateStore(Protocol):
    """The durable election state of one replica: epoch, leader, vote."""

    def read(self) -> ElectionState | None:
        """Return what was written last; None if nothing ever was.

        Raises: StorageError, if something was written and cannot be trusted: a forgotten vote may be cast twice.
        """
        ...

    def write(self, election: ElectionState, *, kraft_version: int, voters: Sequence[int] = ()) -> None:
        """Replace the election state. Durable on return, all or nothing.

        `kraft_version` picks Kafka's data version. `voters` are the ids of a static quorum: a store that returns them
        as `static_voters` on a read makes a replica refuse a list that was edited meanwhile.
        """
        ...

    def close(self) -> None:
        """Release files. Calling it twice is allowed."""
        ...
