"""The replicated log in files, in Kafka's layout: the face of its parts.

`kraftlib.storage.log.growing_log` has the batches and the way of a record; `kraftlib.storage.damage.damaged_log` does
what is done about damage; `kraftlib.storage.snapshots.stored` says which snapshots there are, and
`kraftlib.storage.snapshots.standing_in` what they do to the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kraftlib.errors import ConfigError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage import files, names
from kraftlib.storage.damage.damaged_log import DamagedLog
from kraftlib.storage.damage.recovered_log import RecoveredLog
from kraftlib.storage.damage.recovery import recover
from kraftlib.storage.damage.scrub import ScrubFinding, scrub_chain, scrub_snapshots
from kraftlib.storage.lock import DirectoryLock
from kraftlib.storage.log.growing_log import TAIL_BYTES, GrowingLog
from kraftlib.storage.log.open_files import SegmentSettings
from kraftlib.storage.log.segment import SEGMENT_BYTES_MAX
from kraftlib.storage.log.spare import Spare
from kraftlib.storage.reserve import Reserve
from kraftlib.storage.snapshots.damaged_snapshots import controls_of, read_snapshot, remove_damaged
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink, FileSnapshotSource
from kraftlib.storage.snapshots.standing_in import StandIns
from kraftlib.storage.snapshots.stored import StoredSnapshots
from kraftlib.types import Epoch, EpochStart, Offset, OffsetAndEpoch, OffsetRange


class FileReplicatedLog:
    """One partition's batches and snapshots, in a directory that this process owns."""

    def __init__(
        self,
        found: RecoveredLog,
        settings: SegmentSettings,
        *,
        tail_bytes: int,
        sync_note: bool,
        lock: DirectoryLock | None,
    ) -> None:
        """Take over what recovery found; `open` does both."""
        self._directory: Final = found.directory
        self._lock: Final = lock
        self._spare: Final = settings.spare
        self._log: Final = GrowingLog(
            found.directory,
            found.segments,
            settings,
            mark=found.mark,
            start_offset=found.start_offset,
            epochs=found.epochs,
            controls=found.control_batches,
            holes=found.holes,
            tail_bytes=tail_bytes,
            sync_note=sync_note,
        )
        # These three need nothing added, so they are not called through here.
        self.append: Callable[[Sequence[Batch]], None] = self._log.append
        """Append stamped batches at the end. Readable on return, not durable."""
        self.flush: Callable[[], Offset] = self._log.flush
        """Make durable what was appended before the call; return the end offset that is durable now."""
        self.read: Callable[[Offset, int], Sequence[Batch]] = self._log.read
        """Return whole batches from the one that contains an offset on, of at most so many bytes but at least one."""
        self._damage: Final = DamagedLog(self._log)
        self._snapshots: Final = StoredSnapshots(
            found.directory, found.snapshots, lost=found.lost_snapshots, log_start=lambda: self._log.start_offset
        )
        self._stand_ins: Final = StandIns(self._log, self._damage, self._snapshots)
        self.space: Final = self._log.space
        """The space on the disk, as the log has found it."""
        self.is_doubtful: Final = found.is_doubtful
        """Whether it cannot be told how long the log was: its end may be below what this replica acknowledged."""
        self.bytes_read_at_start: Final = found.bytes_read
        """The number of bytes of the log that were read to open it."""

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        segment_bytes: int = 1 << 30,
        segment_ms: int = 7 * 24 * 3_600 * 1_000,
        file_mode: int = files.FILE_MODE,
        reserve_bytes: int = 0,
        zero_fill: bool = False,
        reserve: Reserve | None = None,
        tail_bytes: int = TAIL_BYTES,
        sync_note: bool = False,
        keep_damage: bool = False,
        lock: DirectoryLock | None = None,
    ) -> FileReplicatedLog:
        """Open the log in `directory`, the `__cluster_metadata-0` of a formatted directory, and recover it.

        A segment is closed before it would grow beyond `segment_bytes`, or when a batch is `segment_ms` younger than
        its first one. `reserve_bytes` of disk space are kept reserved ahead of the end, without changing the size of
        the file; 0 reserves none. With `zero_fill` so much of the next segment is filled with zeros beforehand, too,
        by `prepare_spare`. `reserve` is given up when the disk is full. `tail_bytes` of the newest batches are kept in
        memory. `sync_note` may be changed later, and is explained there. With `keep_damage` a damaged log is opened,
        too, and `holes` says what must be repaired. `lock` is released with the log.

        Raises: else CorruptBatchError that names file and position, if there is damage and not just a torn tail;
        nothing is changed then. StorageError for all else. No file stays open then; the lock is still the caller's.
        """
        if not 0 < segment_bytes <= SEGMENT_BYTES_MAX:
            raise ConfigError(f"segment_bytes={segment_bytes} must be 1 to {SEGMENT_BYTES_MAX}")
        settings = SegmentSettings(
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
            file_mode=file_mode,
            reserve_bytes=reserve_bytes,
            reserve=reserve if reserve is not None else Reserve(directory, size=0),
            spare=Spare(directory, size=min(reserve_bytes, segment_bytes) if zero_fill else 0, file_mode=file_mode),
        )
        files.refuse_link(directory)
        found = recover(directory, file_mode=file_mode, keep_damage=keep_damage)
        log = cls(found, settings, tail_bytes=tail_bytes, sync_note=sync_note, lock=lock)
        try:
            log._begin(found.sync_point.mark.end_offset if found.sync_point is not None else 0)
        except BaseException:
            log._release_files()
            raise
        return log

    def _begin(self, durable_offset: Offset) -> None:
        """Write the results of recovery, and finish the work that it left open."""
        log = self._log
        log.write_epochs()
        self._damage.write_unsynced_again(durable_offset)
        log.space.look()
        if not log.holes:
            log.failure.guard(lambda: log.sync_point.replace(log.segments.mark))
        self._damage.look_closely()
        self._stand_ins.begin_behind_damage()

    # Batches ----------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> Offset:
        """First offset that can be read; everything below is in a snapshot."""
        return self._log.start_offset

    @property
    def end_offset(self) -> Offset:
        """One past the last record that was appended, flushed or not."""
        return self._log.end_offset

    @property
    def flushed_offset(self) -> Offset:
        """One past the last record that survives a crash."""
        return self._log.flushed_offset

    @property
    def sync_note(self) -> bool:
        """Whether each flush, from the next one on, makes its end offset durable, before it is reported.

        Then a power cut never leaves what could be taken for damage. For a replica that no other can repair.
        """
        return self._log.sync_point.exact

    @sync_note.setter
    def sync_note(self, wanted: bool) -> None:
        self._log.sync_point.exact = wanted

    @property
    def size_bytes(self) -> int:
        """Size of the segments."""
        return self._log.segments.size_bytes

    def epoch_starts(self) -> Sequence[EpochStart]:
        """Return the epochs in the log and where they start."""
        return self._log.epochs.starts()

    def control_batches(self) -> Sequence[Batch]:
        """Return the control batches in the log that say who votes, or which protocol version is in force."""
        return self._log.controls

    def begin_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that `epoch` starts at `start_offset`, though it has no record yet. Not durable."""
        self._log.begin_epoch(epoch, start_offset)

    def scan(self) -> Iterator[Batch]:
        """Yield every batch from the start on, read from the files and checked."""
        return self._log.scan()

    def truncate(self, end_offset: Offset) -> Offset:
        """Drop the batches that reach beyond `end_offset`; return the new end. Durable on return."""
        before = self._log.end_offset
        end = self._log.truncate(end_offset)
        if end < before:
            self._damage.drop_repair()
        return end

    # The space that is left -------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the disk has too little space left for more than the writes under way."""
        return self.space.is_full

    def keep_space_for_records(self) -> None:
        """Raise StorageError of a full disk if its remaining space is only for votes and records. For any thread."""
        self._log.reserve.keep_for_others()

    def look_at_space(self) -> None:
        """Settle `is_full`. Any thread may call it."""
        self.space.look()

    def prepare_spare(self) -> None:
        """Have the next segment ready, if that is wanted; on a full disk give back the files that are not needed.

        For a thread in the background.
        """
        if self.is_full:
            self._spare.drop()
            if not self._log.holes:  # else what was set aside may be all that says who votes
                remove_damaged(self._directory)
        elif self._log.failure.error is None:
            self._spare.prepare()

    # Snapshots --------------------------------------------------------------------------------------

    def snapshots(self) -> Sequence[OffsetAndEpoch]:
        """Return the ids of the stored snapshots, ascending."""
        return self._snapshots.ids

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> FileSnapshotSink:
        """Open a new snapshot of this id for writing; it exists for others only once frozen."""
        self._log.failure.ensure_none()
        return FileSnapshotSink(
            self._directory,
            snapshot_id,
            file_mode=self._log.file_mode,
            frozen=self.adopt_snapshot,
            before_write=self.keep_space_for_records,
        )

    def adopt_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Take note of a snapshot that was frozen in the directory. One that comes too late goes. For any thread."""
        self._snapshots.adopt(snapshot_id)

    def check_snapshot(self, snapshot_id: OffsetAndEpoch, *, step: Callable[[], None]) -> None:
        """Read a snapshot to its end. Raises: CorruptBatchError, if it is not whole. For a thread in the background."""
        read_snapshot(self._directory, snapshot_id, step=step)

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> FileSnapshotSource:
        """Open a stored snapshot for reading. Raises: StorageError, if there is none of this id."""
        self._log.failure.ensure_none()
        return FileSnapshotSource(self._directory / names.checkpoint_name(snapshot_id))

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Drop every batch and begin anew at the end of this stored snapshot. Durable on return."""
        self._stand_ins.install(snapshot_id)

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget batches and snapshots that this stored snapshot replaces; the files go with the next flush.

        The log starts at the end of the snapshot then; after a restart perhaps below, since only whole segments go.
        """
        self._stand_ins.delete_before(snapshot_id)

    def scrub(self, step: Callable[[], None]) -> Iterator[int | ScrubFinding]:
        """Read all that is stored; yield the number of bytes read, and each finding. For a thread in the background.

        `step` is called after every little piece.
        """
        yield from scrub_chain(self._log.segments, step=step)
        yield from scrub_snapshots(self._directory, self._snapshots.ids, step=step)

    # Lost records, and the snapshots that stand in for them ---------------------------------------------

    def holes(self) -> Sequence[OffsetRange]:
        """Return what is known to be missing, ascending."""
        return tuple(OffsetRange(hole.start_offset, hole.end_offset) for hole in self._log.holes)

    def find_damage(self, offset: Offset) -> Sequence[OffsetRange]:
        """Read the segment that has this record, all of it, and say what is missing in the log."""
        self._log.failure.ensure_none()
        self._damage.find(offset)
        self._stand_ins.begin_behind_damage()
        return self.holes()

    def write_repair(self, batches: Sequence[Batch]) -> bool:
        """Put batches into the first hole; return whether the log has now, durably, what was put there.

        The hole is full then, or these batches do not fit into its segment: then they are wanted once more. Raises:
        NoSpaceError, if there is no space for it: the log is as it was, and the repair begins anew.
        """
        self._log.failure.ensure_none()
        return self._damage.write_repair(batches)

    def lost_controls(self) -> tuple[OffsetAndEpoch, Sequence[object]] | None:
        """Return the id and the control records of the newest snapshot that is lost but for its header."""
        return controls_of(self._snapshots.lost)

    def set_snapshot_aside(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        """Forget a snapshot that is damaged, durably. Records that only this snapshot had are a hole from now on."""
        self._stand_ins.set_aside(snapshot_id, reason)

    # The end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, leave what Kafka leaves at a clean end, release files and lock. Calling it twice is allowed."""
        failure = self._log.failure
        try:
            if failure.error is None:
                self.flush()
                failure.guard(self._log.close_cleanly)
                failure.error = StorageError(f"the log in {self._directory} is closed", path=self._directory)
        finally:
            try:
                self._release_files()
            finally:
                if self._lock is not None:
                    self._lock.release()

    def _release_files(self) -> None:
        """Close whatever is open: an error of one keeps none of the others open."""
        with ExitStack() as closing:
            for close in (self._log.sync_point.close, self._damage.drop_repair, self._spare.drop):
                closing.callback(close)
            self._log.segments.close(None)
