"""The replicated log in files, in Kafka's layout: batches, snapshots, and what a start and a clean end do with both.

The way of a record is in `kraftlib.storage.log.growing_log`, what is done about damage in
`kraftlib.storage.damage.damaged_log`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kraftlib.errors import ConfigError, CorruptBatchError, StorageError, ensure
from kraftlib.records.batch import Batch
from kraftlib.storage import files, names
from kraftlib.storage.damage.damaged_log import DamagedLog
from kraftlib.storage.damage.missing import keep_last_epoch, make_empty_segment, missing_before
from kraftlib.storage.damage.recovery import drop_snapshots_before, recover
from kraftlib.storage.damage.scrub import ScrubFinding, scrub_snapshots
from kraftlib.storage.lock import DirectoryLock
from kraftlib.storage.log.chain import SegmentSettings
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.growing_log import TAIL_BYTES
from kraftlib.storage.log.prefix import tells_of_voters
from kraftlib.storage.log.segment import SEGMENT_BYTES_MAX
from kraftlib.storage.log.spare import Spare
from kraftlib.storage.log.sync_point import NOTHING
from kraftlib.storage.log.tail import Tail
from kraftlib.storage.log.unsynced import forget_unsynced, read_unsynced
from kraftlib.storage.reserve import Reserve
from kraftlib.storage.snapshots.damaged_snapshots import controls_of, read_snapshot, set_aside
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink, FileSnapshotSource
from kraftlib.types import Offset, OffsetAndEpoch, OffsetRange

logger: Final = logging.getLogger(__name__)

_REWRITE_BYTES: Final = 8 << 20


class FileReplicatedLog(DamagedLog):
    """One partition's batches and snapshots, in a directory that this process owns."""

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
        """Write what recovery has found out, and see to what it left open."""
        self._write_epochs()
        self._write_unsynced_again(durable_offset)
        self.look_at_space()
        if not self._holes:
            self._or_fail(lambda: self._sync_point.replace(self._segments.mark))
        self._look_closely()
        self._begin_behind_damage()

    def _write_unsynced_again(self, durable_offset: Offset) -> None:
        """Copy what lies behind the place at which a sync failed, and behind `durable_offset`, to a new file."""
        noted = read_unsynced(self._directory)
        if noted is None:
            return
        first = min(max(self._start_offset, noted.flushed_offset, durable_offset), self._end_offset)
        if self._holes:  # a damaged log does not grow
            if first < self._end_offset:
                raise StorageError(
                    f"{self._directory}: a sync failed in an earlier life, and what was durable then is damaged: give"
                    " this replica a new, empty directory, and it fetches everything from the others",
                    path=self._directory,
                )
            return
        logger.warning(
            "%s: a sync failed in an earlier life, so all from offset %d on is written again", self._directory, first
        )
        batches: list[Batch] = []
        while (offset := batches[-1].end_offset if batches else first) < self._end_offset:
            batches += self._segments.read(offset, _REWRITE_BYTES)
        self.truncate(first)
        if noted.was_cut:
            self._renew_last_file()
        else:
            self._segments.roll()  # not into blocks that could not be written once
        for batch in batches:
            self.append([batch])
        self.flush()
        forget_unsynced(self._directory)

    # Snapshots --------------------------------------------------------------------------------------

    def snapshots(self) -> Sequence[OffsetAndEpoch]:
        """Return the ids of the stored snapshots, ascending."""
        return self._snapshots

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> FileSnapshotSink:
        """Open a new snapshot of this id for writing; it exists for others only once frozen."""
        self._ensure_usable()
        return FileSnapshotSink(
            self._directory,
            snapshot_id,
            file_mode=self._file_mode,
            frozen=self.adopt_snapshot,
            before_write=self._reserve.keep_for_others,
        )

    def adopt_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Take note of a snapshot that was frozen in the directory. One that comes too late goes. For any thread."""
        with self._snapshots_lock:
            start = self._start_offset
            if self._has_passed(snapshot_id):  # a start would remove the file, too
                logger.info("%s: snapshot %s comes too late, the log begins at %d", self._directory, snapshot_id, start)
                files.remove(self._directory / names.checkpoint_name(snapshot_id))
            elif snapshot_id not in self._snapshots:
                self._snapshots = tuple(sorted((*self._snapshots, snapshot_id)))

    def _has_passed(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether the log begins behind this snapshot, or at its offset with another one."""
        start_offset = self._start_offset
        begins_with_another = any(kept.offset == start_offset and kept != snapshot_id for kept in self._snapshots)
        return snapshot_id.offset < start_offset or (snapshot_id.offset == start_offset and begins_with_another)

    def check_snapshot(self, snapshot_id: OffsetAndEpoch, *, step: Callable[[], None]) -> None:
        """Read a snapshot to its end. Raises: CorruptBatchError, if it is not whole. For a thread in the background."""
        read_snapshot(self._directory, snapshot_id, step=step)

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> FileSnapshotSource:
        """Open a stored snapshot for reading. Raises: StorageError, if there is none of this id."""
        self._ensure_usable()
        return FileSnapshotSource(self._directory / names.checkpoint_name(snapshot_id))

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Drop every batch and begin anew at the end of this stored snapshot. Durable on return."""
        self._ensure_usable()
        ensure(snapshot_id in self._snapshots, f"there is no snapshot {snapshot_id} to install")
        self._or_fail(lambda: self._install_snapshot(snapshot_id))

    def _install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        # Before any file goes: whoever reads on the loop meanwhile is sent to the snapshot.
        older = self._begin_anew(snapshot_id)
        self._sync_point.replace(NOTHING)
        self._forget_prefix()
        self._reserve.spend(lambda: self._segments.restart(snapshot_id.offset))
        self._drop_repair()
        drop_snapshots_before(self._directory, older, snapshot_id)
        self._write_epochs()
        if self.sync_note:
            self._sync_point.replace(self._segments.mark)

    def _begin_anew(self, snapshot_id: OffsetAndEpoch) -> Sequence[OffsetAndEpoch]:
        """Be empty in memory, from the end of this snapshot on; return the snapshots that are older."""
        with self._snapshots_lock:
            older = self._forget_snapshots_before(snapshot_id)
            self._start_offset = self._end_offset = self._flushed_offset = snapshot_id.offset
        self._tail = Tail(self._tail_bytes)  # a read that has begun goes on in the old one
        self._epochs, self._controls, self._holes = EpochTable(), (), ()
        return older

    def _forget_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> Sequence[OffsetAndEpoch]:
        """List them no more, and return them. This comes before the start moves, or a listener would load one again."""
        older = [stored for stored in self._snapshots if stored < snapshot_id]
        self._snapshots = self._snapshots[len(older) :]
        return older

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget batches and snapshots that this stored snapshot replaces; the files go with the next flush.

        The log starts at the end of the snapshot then; after a restart perhaps below, since only whole segments go.
        """
        self._ensure_usable()
        ensure(snapshot_id in self._snapshots, f"there is no snapshot {snapshot_id} to stand in for the log")
        ensure(snapshot_id.offset <= self._end_offset, f"snapshot {snapshot_id} is beyond the end {self._end_offset}")
        self._leave_behind(snapshot_id.offset)
        with self._snapshots_lock:
            older = self._forget_snapshots_before(snapshot_id)
            moves = snapshot_id.offset > self._start_offset
            self._start_offset = max(self._start_offset, snapshot_id.offset)
        self._segments.delete_below(snapshot_id.offset)
        for stored in older:
            self._segments.condemn(self._directory / names.checkpoint_name(stored))
        if moves:
            self._drop_holes_below(snapshot_id.offset)
            if self._epochs.start_at(snapshot_id.offset):
                self._epochs_changed = True
            self._controls = tuple(batch for batch in self._controls if batch.last_offset >= snapshot_id.offset)

    def scrub(self, step: Callable[[], None]) -> Iterator[int | ScrubFinding]:
        """Read all that is stored; yield how many bytes were read, and what is wrong. For a thread in the background.

        `step` is called after every little piece.
        """
        yield from self._segments.scrub(step)
        yield from scrub_snapshots(self._directory, self._snapshots, step=step)

    # What is lost, and what stands in for it --------------------------------------------------------

    def lost_controls(self) -> tuple[OffsetAndEpoch, Sequence[object]] | None:
        """Return the id and the control records of the newest snapshot that is lost but for its header."""
        return controls_of(self._lost_snapshots)

    def set_snapshot_aside(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        """Forget a snapshot that is damaged, durably. What nothing else has is a hole from now on."""
        self._ensure_usable()
        if snapshot_id in self._snapshots:
            self._or_fail(lambda: self._set_snapshot_aside(snapshot_id, reason))

    def _set_snapshot_aside(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        lost = self._reserve.spend(lambda: set_aside(self._directory, snapshot_id, reason, file_mode=self._file_mode))
        self._lost_snapshots = (*self._lost_snapshots, lost)
        with self._snapshots_lock:
            self._snapshots = tuple(kept for kept in self._snapshots if kept != snapshot_id)
        if self._start_offset == 0 or any(kept.offset >= self._start_offset for kept in self._snapshots):
            return
        self._segments.remove_condemned()  # what is fetched again may bear their names
        self._reach_back()
        keep_last_epoch(self._epochs, snapshot_id, self._end_offset)
        self._forget_prefix()
        base_offset = self._segments.base_offset
        if base_offset > 0:
            hole = missing_before(self._directory, 0, base_offset)
            if self._end_offset == base_offset:  # the segments are as empty as those of a new log
                mark = self._segments.mark._replace(end_epoch=self._epochs.latest_epoch)
                self._segments.mark = mark
                self._sync_point.replace(mark)
            empty = self._reserve.spend(lambda: make_empty_segment(self._directory, 0, file_mode=self._file_mode))
            self._segments.begin_at(empty)
            self._holes = (hole, *self._holes)
        with self._snapshots_lock:
            self._start_offset = 0
        self._write_epochs()

    def _reach_back(self) -> None:
        """Learn again what the first segment has below the start of the log."""
        epochs, controls = EpochTable(), []
        for batch in self._segments.batches_below(self._start_offset):
            epochs.assign(batch.epoch, batch.base_offset)
            if batch.is_control and tells_of_voters(batch):
                controls.append(batch)
        for start in self._epochs.starts():
            epochs.assign(start.epoch, start.start_offset)
        known = [batch for batch in self._controls if batch.base_offset >= self._start_offset]
        self._epochs, self._controls = epochs, (*controls, *known)

    def find_damage(self, offset: Offset) -> Sequence[OffsetRange]:
        """Read the segment that has this record, all of it, and say what is missing in the log."""
        self._ensure_usable()
        found = self._segments.holes_in_segment_of(offset, self._epochs, self._holes)
        self._holes = tuple(sorted([*self._holes, *found], key=lambda hole: hole.start_offset))
        self._begin_behind_damage()
        return self.holes()

    def _begin_behind_damage(self) -> None:
        """Let the log begin behind what is missing, as far as that is in the newest snapshot, which must be whole."""
        newest = self._snapshots[-1] if self._snapshots else None
        missing = self._holes[0].start_offset if self._holes else self._end_offset
        if newest is None or newest.offset > self._end_offset or missing >= newest.offset:
            return
        if newest.offset > self._start_offset and self._is_whole(newest):
            logger.warning("%s: %d and more are missing, and in snapshot %s", self._directory, missing, newest)
            self.delete_before(newest)
        elif missing < self._start_offset:  # in a file that has more; readers must not come upon it
            self._leave_behind(self._start_offset)
            self._segments.delete_below(self._start_offset)
            self._drop_holes_below(self._start_offset)
        self.flush()

    def _is_whole(self, snapshot_id: OffsetAndEpoch) -> bool:
        try:
            read_snapshot(self._directory, snapshot_id)
        except CorruptBatchError:
            return False  # whoever reads it next says so
        return True

    # The end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, leave what Kafka leaves at a clean end, release files and lock. Calling it twice is allowed."""
        try:
            if self._failure is None:
                self.flush()
                self._or_fail(self._close_cleanly)
                self._failure = StorageError(f"the log in {self._directory} is closed", path=self._directory)
        finally:
            try:
                self._release_files()
            finally:
                if self._lock is not None:
                    self._lock.release()

    def _release_files(self) -> None:
        """Close whatever is open: an error of one keeps none of the others open."""
        with ExitStack() as closing:
            for close in (self._sync_point.close, self._drop_repair, self._spare.drop):
                closing.callback(close)
            self._segments.close(None)

    def _close_cleanly(self) -> None:
        """Leave what Kafka leaves, and notes from which the next start knows that it need not read anything."""
        if self._holes:
            return  # the notes of what was durable are all that tells of them
        mark = self._segments.mark
        self._segments.close(self._end_offset)
        self._sync_point.replace(mark, mtime_ns=self._segments.changed_ns)
        if mark.position > 0:
            self._write_prefix(mark, durable=True)
