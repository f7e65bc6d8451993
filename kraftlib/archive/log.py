"""The log of an observer that archives: committed records go to files, later ones stay in memory.

A follower is sent records before they are committed, and must drop some of them again when a leader changes. An archive
never takes anything back, so these wait in memory until the high watermark passes them. An observer may do so: its
Fetch vouches for nothing. A voter may not, hence `kraftlib.archive.follower` stops an archive that is made one.

To the replica this log begins where the archive ended when it was opened. The high watermark only ever moves beyond
that, so no earlier offset is ever fetched, and a leader that wants it truncated is refused: it is another quorum.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from kraftlib.archive.directory import ArchiveDirectory
from kraftlib.archive.writer import ArchiveWriter
from kraftlib.errors import ensure
from kraftlib.records.batch import Batch
from kraftlib.storage import files, names
from kraftlib.storage.log.batches import ensure_continues, ensure_readable, up_to
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink, FileSnapshotSource
from kraftlib.types import Epoch, EpochStart, Offset, OffsetAndEpoch


class ArchiveLog:
    """A `ReplicatedLog` for one observer. All but `flush` and `write_committed` is called on its loop."""

    def __init__(self, directory: ArchiveDirectory, writer: ArchiveWriter, *, file_mode: int = files.FILE_MODE) -> None:
        self._directory: Final = directory
        self._writer: Final = writer
        self._file_mode: Final = file_mode
        self._writing: Final = threading.Lock()
        self._start_offset = self._end_offset = writer.end_offset
        self._waiting: list[Batch] = []
        self._epochs = EpochTable()
        if writer.end_offset > 0:
            # It began at the last record or before: a truncation to the end of the archive must not drop it.
            self._epochs.assign(writer.last_epoch, writer.end_offset - 1)
        self._snapshots = directory.checkpoints()

    @property
    def start_offset(self) -> Offset:
        """Where the archive ended when it was opened, or the last checkpoint that was downloaded since."""
        return self._start_offset

    @property
    def end_offset(self) -> Offset:
        """One past the last record that was received."""
        return self._end_offset

    @property
    def flushed_offset(self) -> Offset:
        """The same: no other replica relies on the flushes of an observer."""
        return self._end_offset

    @property
    def size_bytes(self) -> int:
        """Size of the records that wait in memory."""
        return sum(len(batch.data) for batch in self._waiting)

    def epoch_starts(self) -> Sequence[EpochStart]:
        """Return the epochs since `start_offset`, and the one before it."""
        return self._epochs.starts()

    def begin_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that `epoch` starts at `start_offset`."""
        self._epochs.assign(epoch, start_offset)

    def append(self, batches: Sequence[Batch]) -> None:
        """Take batches that may be committed or not."""
        for batch in batches:
            ensure_continues(batch, self._end_offset, self._epochs.latest_epoch)
            self._epochs.assign(batch.epoch, batch.base_offset)
            self._waiting.append(batch)
            self._end_offset = batch.last_offset + 1

    def flush(self) -> Offset:
        """Wait while committed batches are being written, so that no more is fetched than the disk takes."""
        end_offset = self._end_offset
        with self._writing:
            return end_offset

    def write_committed(self, high_watermark: Offset) -> Offset:
        """Write what lies below `high_watermark`, durably; return the end of the archive. For a thread of its own."""
        committed = [batch for batch in list(self._waiting) if batch.last_offset < high_watermark]
        with self._writing:
            self._writer.write(committed)
            return self._writer.end_offset

    def forget_written(self) -> None:
        """Free the memory of the written records."""
        end_offset = self._writer.end_offset
        self._waiting = [batch for batch in self._waiting if batch.last_offset >= end_offset]

    def read(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        """Return whole batches that are still in memory from the one that contains `start_offset` on."""
        ensure_readable(start_offset, self._first_waiting, self._end_offset)
        first = next((at for at, batch in enumerate(self._waiting) if batch.last_offset >= start_offset), None)
        return () if first is None else up_to(self._waiting, first, max_bytes)

    @property
    def _first_waiting(self) -> Offset:
        return self._waiting[0].base_offset if self._waiting else self._end_offset

    def truncate(self, end_offset: Offset) -> Offset:
        """Drop uncommitted batches that reach beyond `end_offset`; return the new end."""
        ensure(
            end_offset >= self._writer.end_offset,
            f"cannot truncate to {end_offset}: all below {self._writer.end_offset} is committed",
        )
        self._waiting = [batch for batch in self._waiting if batch.last_offset < end_offset]
        self._end_offset = self._waiting[-1].last_offset + 1 if self._waiting else self._writer.end_offset
        self._epochs.truncate_to(self._end_offset)
        return self._end_offset

    def snapshots(self) -> Sequence[OffsetAndEpoch]:
        """Return the ids of the checkpoints, ascending."""
        return tuple(self._snapshots)

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> FileSnapshotSink:
        """Open a checkpoint for writing; it exists for others only once frozen."""
        return FileSnapshotSink(
            self._directory.partition, snapshot_id, file_mode=self._file_mode, frozen=self._add_snapshot
        )

    def _add_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._snapshots = sorted({*self._snapshots, snapshot_id})

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> FileSnapshotSource:
        """Open a stored checkpoint for reading."""
        return FileSnapshotSource(self._directory.partition / names.checkpoint_name(snapshot_id))

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Go on behind this checkpoint: the quorum has nothing before it any more. Archived records stay."""
        ensure(snapshot_id in self._snapshots, f"there is no checkpoint {snapshot_id} to go on from")
        with self._writing:
            self._writer.begin_after(snapshot_id)
        self._waiting = []
        self._epochs = EpochTable()
        self._start_offset = self._end_offset = snapshot_id.offset

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Nothing is deleted."""

    def close(self) -> None:
        """Nothing: the writer is its owner's."""
