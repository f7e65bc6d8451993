"""The replicated log in files, in Kafka's layout.

An append is one write, and nobody waits for it: the batch is in the tail at once, and a Fetch may carry it away before
the disk has it. A flush makes durable what was there when it began, on the disk thread; `kraftlib.storage.segments`
says how the two stay apart. An error of the disk ends the use of the log: a sync that is tried again may report success
for pages that were dropped.
"""

from __future__ import annotations

import json
import logging
import re
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from kraftlib.errors import ConfigError, CorruptBatchError, StorageError, ensure
from kraftlib.records.batch import Batch
from kraftlib.storage import files, names
from kraftlib.storage.batches import ensure_continues, ensure_readable
from kraftlib.storage.damaged_snapshots import controls_of, read_snapshot, remove_damaged, set_aside
from kraftlib.storage.epoch_file import EpochTable, encode_epochs
from kraftlib.storage.lock import DirectoryLock
from kraftlib.storage.missing import make_empty_segment, missing_before
from kraftlib.storage.prefix import controls_up_to, tells_of_voters, write_prefix
from kraftlib.storage.recovery import drop_snapshots_before, recover
from kraftlib.storage.repair import HoleRepair, remove_repairs
from kraftlib.storage.reserve import Reserve, free_bytes
from kraftlib.storage.scan import RecoveredLog
from kraftlib.storage.scrub import ScrubFinding, scrub_snapshots
from kraftlib.storage.segments import SEGMENT_BYTES_MAX, SegmentChain, SegmentSettings
from kraftlib.storage.snapshot_files import FileSnapshotSink, FileSnapshotSource
from kraftlib.storage.spare import Spare
from kraftlib.storage.sync_point import NOTHING, Mark, SyncPointFile
from kraftlib.storage.tail import Tail
from kraftlib.types import Epoch, EpochStart, Offset, OffsetAndEpoch, OffsetRange

logger: Final = logging.getLogger(__name__)

TAIL_BYTES: Final = 16 << 20

PREFIX_BYTES: Final = 32 << 20
"""How much is appended before what a scan would find is noted anew: the most that a start has to read."""

_REWRITE_BYTES: Final = 8 << 20

T = TypeVar("T")


class FileReplicatedLog:
    """One partition's batches and snapshots, in a directory that this process owns."""

    def __init__(
        self,
        log: RecoveredLog,
        settings: SegmentSettings,
        *,
        tail_bytes: int,
        sync_note: bool,
        lock: DirectoryLock | None,
    ) -> None:
        """Take over what recovery found; `open` does both."""
        self._directory: Final = log.directory
        self._file_mode: Final = settings.file_mode
        self._lock: Final = lock
        self._segments: Final = SegmentChain(log.directory, log.segments, settings, mark=log.mark)
        self._tail: Final = Tail(tail_bytes)
        self._epochs = log.epochs
        self._epochs_changed = True
        self._snapshots = log.snapshots
        self._lost_snapshots: Final = log.lost_snapshots
        self._start_offset = log.start_offset
        self._end_offset = self._flushed_offset = log.end_offset
        self._failure: StorageError | None = None
        self._controls = log.control_batches
        self._holes = list(log.holes)
        self._repair: HoleRepair | None = None
        self._reserve: Final = settings.reserve
        self._spare: Final = settings.spare
        self.is_full = False
        """Whether the disk has too little space left for more than what is on its way."""
        self._bytes_appended = self._bytes_at_look = 0
        self.is_doubtful: Final = log.is_doubtful
        """Whether it cannot be told how long the log was: its end may be below what this replica acknowledged."""
        self._prefix_mark = NOTHING
        self._sync_point: Final = SyncPointFile(log.directory, file_mode=settings.file_mode, exact=sync_note)
        self.bytes_read_at_start: Final = log.bytes_read
        """How much of the log was read to open it."""

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
        nothing is changed then. StorageError for all else.
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
        log._write_epochs()
        log._write_unsynced_again(found.sync_point.mark.end_offset if found.sync_point is not None else 0)
        log.look_at_space()
        if not log._holes:
            log._or_fail(lambda: log._sync_point.replace(log._segments.mark))
        log._look_closely()
        log._begin_behind_damage()
        return log

    @property
    def start_offset(self) -> Offset:
        """First offset that can be read; everything below is in a snapshot."""
        return self._start_offset

    @property
    def end_offset(self) -> Offset:
        """One past the last record that was appended, flushed or not."""
        return self._end_offset

    @property
    def flushed_offset(self) -> Offset:
        """One past the last record that survives a crash."""
        return self._flushed_offset

    @property
    def sync_note(self) -> bool:
        """Whether each flush, from the next one on, makes durable how far it came, before anybody hears of it.

        Then a power cut never leaves what could be taken for damage. For who has nobody to repair that.
        """
        return self._sync_point.exact

    @sync_note.setter
    def sync_note(self, wanted: bool) -> None:
        self._sync_point.exact = wanted

    @property
    def size_bytes(self) -> int:
        """Size of the segments."""
        return self._segments.size_bytes

    def epoch_starts(self) -> Sequence[EpochStart]:
        """Return the epochs in the log and where they start."""
        return self._epochs.starts()

    def control_batches(self) -> Sequence[Batch]:
        """Return the control batches in the log that say who votes, or which protocol version is in force."""
        return tuple(self._controls)

    def begin_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that `epoch` starts at `start_offset`, though it has no record yet. Not durable."""
        ensure(start_offset <= self._end_offset, f"epoch {epoch} cannot start at {start_offset}, beyond the log's end")
        if self._epochs.assign(epoch, start_offset):
            self._epochs_changed = True

    # The way of a record --------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch]) -> None:
        """Append stamped batches at the end. Readable on return, not durable."""
        self._ensure_usable()
        ensure(not self._holes, "a log that is damaged does not grow")
        end_offset, epoch, size = self._end_offset, self._epochs.latest_epoch, 0
        for batch in batches:
            if batch.base_offset != end_offset or batch.epoch < epoch:
                ensure_continues(batch, end_offset, epoch)
            end_offset, epoch = batch.last_offset + 1, batch.epoch
            size += len(batch.data)
        if size == 0:
            return
        try:
            self._segments.append(batches, size)
        except StorageError as error:
            self._failure = error
            raise
        for batch in batches:
            self._tail.append(batch)
            if batch.epoch != self._epochs.latest_epoch and self._epochs.assign(batch.epoch, batch.base_offset):
                self._epochs_changed = True
            if batch.is_control and tells_of_voters(batch):
                self._controls.append(batch)
        self._bytes_appended += size
        self._end_offset = end_offset

    def flush(self) -> Offset:
        """Make durable what was appended before the call; return the end offset that is durable now."""
        self._ensure_usable()
        try:
            return self._or_fail(self._flush)
        except StorageError:
            self._note_unsynced()
            raise

    def _flush(self) -> Offset:
        mark = self._segments.mark  # before the segments look which files there are
        if mark.end_offset != self._flushed_offset:
            at_end_of_segment = self._segments.sync()
            self._sync_point.note(mark, durable=at_end_of_segment)
            self._flushed_offset = mark.end_offset
            if at_end_of_segment or mark.position - self._prefix_mark.position >= PREFIX_BYTES:
                self._write_prefix(mark, durable=False)
        if self._epochs_changed:
            self._reserve.spend(self._write_epochs)
        self._segments.tidy()
        if self._wants_look_at_space():
            self.look_at_space()
        return mark.end_offset

    def _wants_look_at_space(self) -> bool:
        """Whether we may have used up what was left. What others use up, the owner of the log looks for, now and then.

        Looking takes four calls of the system, which each commit would wait for.
        """
        appended = self._bytes_appended - self._bytes_at_look
        return self.is_full or not self._reserve.is_taken or appended >= self._reserve.size // 4

    def look_at_space(self) -> None:
        """Settle `is_full`: full, while there is less than twice the reserve, or no reserve. Any thread may call it."""
        self._bytes_at_look = self._bytes_appended
        if self._reserve.size:
            self.is_full = free_bytes(self._directory) < 2 * self._reserve.size or not self._reserve.restore()

    def _write_prefix(self, mark: Mark, *, durable: bool) -> None:
        """Note what a scan up to `mark` would find. The sync point comes first: nothing is believed beyond it."""
        self._sync_point.sync()
        starts = [start for start in self._epochs.starts() if start.start_offset < mark.end_offset]
        controls = controls_up_to(list(self._controls), mark.end_offset)
        known = self._segments.known_prefix(mark, self._start_offset, starts, controls)
        write_prefix(self._directory, known, file_mode=self._file_mode, durable=durable)
        self._prefix_mark = mark

    def prepare_spare(self) -> None:
        """Have the next segment ready, if that is wanted; on a full disk give back what nobody needs.

        For a thread in the background.
        """
        if self.is_full:
            self._spare.drop()
            remove_damaged(self._directory)
        elif self._failure is None:
            self._spare.prepare()

    def read(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        """Return whole batches from the one that contains `start_offset` on, at most `max_bytes` but at least one."""
        self._ensure_usable()
        if not self._start_offset <= start_offset < self._end_offset:
            ensure_readable(start_offset, self._start_offset, self._end_offset)
            return ()
        for hole in self._holes:
            if hole.start_offset <= start_offset < hole.end_offset:
                raise CorruptBatchError(hole.reason, path=self._directory, position=hole.position)
        return self._tail.read(start_offset, max_bytes) or self._read_from_files(start_offset, max_bytes)

    def _read_from_files(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        """Read what is not in memory. The CRC of a batch leaves out its epoch, which is known from elsewhere."""
        batches = self._segments.read(start_offset, max_bytes, self._holes)
        misfit = self._epochs.first_misfit(batches)
        if misfit is not None:
            reason = f"{self._directory}: {misfit!r} is not of the epoch that its offset lies in"
            raise CorruptBatchError(reason, path=self._directory)
        return batches

    def scan(self) -> Iterator[Batch]:
        """Yield every batch from the start on, read from the files and checked."""
        self._ensure_usable()
        return (batch for batch in self._segments.scan() if batch.last_offset >= self._start_offset)

    def scrub(self, step: Callable[[], None]) -> Iterator[int | ScrubFinding]:
        """Read all that is stored; yield how many bytes were read, and what is wrong. For a thread in the background.

        `step` is called after every little piece.
        """
        yield from self._segments.scrub(step)
        yield from scrub_snapshots(self._directory, tuple(self._snapshots), step=step)

    # What happens seldom ----------------------------------------------------------------------------

    def truncate(self, end_offset: Offset) -> Offset:
        """Drop the batches that reach beyond `end_offset`; return the new end. Durable on return."""
        ensure(end_offset >= self._start_offset, f"cannot truncate to {end_offset}, below {self._start_offset}")
        self.flush()
        if end_offset < self._end_offset:
            self._or_fail(lambda: self._truncate(end_offset))
        return self._end_offset

    def _truncate(self, end_offset: Offset) -> None:
        # Whoever finds a note of more than there is takes that for damage: it is lowered before anything is cut.
        mark = self._mark_at(end_offset)
        self._sync_point.replace(mark)
        self._forget_prefix()
        self._segments.truncate(mark)
        self._drop_repair()
        self._holes = [hole for hole in self._holes if hole.start_offset < mark.end_offset]
        self._epochs.truncate_to(mark.end_offset)
        self._controls = controls_up_to(self._controls, mark.end_offset)
        self._tail.truncate(mark.end_offset)
        self._end_offset = self._flushed_offset = mark.end_offset
        self._write_epochs()

    def _mark_at(self, end_offset: Offset) -> Mark:
        for hole in self._holes:
            if hole.start_offset == end_offset:
                return self._segments.mark_of_hole(hole, self._epochs)
        return self._segments.mark_at(end_offset, self._epochs)

    # Damage, and its repair -------------------------------------------------------------------------

    def holes(self) -> Sequence[OffsetRange]:
        """Return what is known to be missing, ascending."""
        return tuple(OffsetRange(hole.start_offset, hole.end_offset) for hole in self._holes)

    def find_damage(self, offset: Offset) -> Sequence[OffsetRange]:
        """Read the segment that has this record, all of it, and say what is missing in the log."""
        self._ensure_usable()
        found = self._segments.holes_in_segment_of(offset, self._epochs, self._holes)
        self._holes = sorted([*self._holes, *found], key=lambda hole: hole.start_offset)
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

    def _leave_behind(self, offset: Offset) -> None:
        """Let a segment begin at `offset` if there are bad bytes before that in the one that has it."""
        below = self._segments.holes_before(offset, self._holes)
        position = self._segments.place_behind(below[-1], offset) if below else None
        if position is None:
            return
        self.flush()
        self._drop_repair()
        self._forget_prefix()
        files.sync_directory(self._directory)  # before there is a segment that the notes do not know
        self._holes = self._or_fail(lambda: self._segments.split(offset, position, self._holes))

    def _look_closely(self) -> None:
        """Read damaged segments from their beginning: the scan may have begun in the midst, where it was told to."""
        for base_offset in sorted({hole.segment for hole in self._holes}):
            known = [hole for hole in self._holes if hole.segment == base_offset]
            wider = self._segments.holes_in_segment_of(base_offset, self._epochs, ())
            if wider and wider[0].start_offset < known[0].start_offset and wider[-1].end_offset >= known[-1].end_offset:
                kept = [hole for hole in self._holes if hole.segment != base_offset]
                self._holes = sorted([*kept, *wider], key=lambda hole: hole.start_offset)

    def write_repair(self, batches: Sequence[Batch]) -> bool:
        """Put batches into the first hole; return whether it is full now, and the log whole there, durably."""
        self._ensure_usable()
        ensure(self._holes, "there is nothing to repair")
        if self._repair is not None and self._repair.hole != self._holes[0]:
            self._drop_repair()  # another hole was found before it meanwhile
        if self._repair is None:
            self._repair = HoleRepair(self._directory, self._holes[0], file_mode=self._file_mode)
        if not self._repair.write(batches):
            return False
        self._or_fail(self._finish_repair)
        return True

    def _finish_repair(self) -> None:
        repair, self._repair = self._repair, None
        ensure(repair is not None, "a repair has begun")
        if repair is None:
            return
        hole = repair.hole
        fetched = self._segments.swap(repair)
        end_offset = max(self._end_offset, repair.next_offset)
        epochs = EpochTable(start for start in self._epochs.starts() if start.start_offset < hole.start_offset)
        for batch in fetched:
            epochs.assign(batch.epoch, batch.base_offset)
        for start in self._epochs.starts():
            if start.start_offset >= repair.next_offset:
                epochs.assign(start.epoch, start.start_offset)
        self._epochs = epochs
        new = [batch for batch in fetched if batch.is_control and tells_of_voters(batch)]
        known = [b for b in self._controls if not hole.start_offset <= b.base_offset < repair.next_offset]
        self._controls = sorted([*known, *new], key=lambda batch: batch.base_offset)
        self._holes.pop(0)
        self._end_offset = self._flushed_offset = end_offset
        self._segments.mark = self._segments.mark._replace(end_offset=end_offset, end_epoch=epochs.latest_epoch)
        self._write_epochs()
        if not self._holes:
            self._forget_prefix()
            self._sync_point.replace(self._segments.mark)
        remove_repairs(self._directory)
        logger.warning("%s: offsets %d to %d are repaired", self._directory, hole.start_offset, repair.next_offset)

    def _drop_repair(self) -> None:
        if self._repair is not None:
            self._repair.close()
            self._repair = None

    def _forget_prefix(self) -> None:
        files.remove(self._directory / names.PREFIX)  # for good once the directory is synced, which what follows does
        self._prefix_mark = NOTHING

    def snapshots(self) -> Sequence[OffsetAndEpoch]:
        """Return the ids of the stored snapshots, ascending."""
        return tuple(self._snapshots)

    def create_snapshot(self, snapshot_id: OffsetAndEpoch) -> FileSnapshotSink:
        """Open a new snapshot of this id for writing; it exists for others only once frozen."""
        self._ensure_usable()
        return FileSnapshotSink(self._directory, snapshot_id, file_mode=self._file_mode, frozen=self.adopt_snapshot)

    def adopt_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Take note of a snapshot that was frozen in the directory."""
        if snapshot_id not in self._snapshots:
            insort(self._snapshots, snapshot_id)

    def check_snapshot(self, snapshot_id: OffsetAndEpoch, *, step: Callable[[], None]) -> None:
        """Read a snapshot to its end. Raises: CorruptBatchError, if it is not whole. For a thread in the background."""
        read_snapshot(self._directory, snapshot_id, step=step)

    def lost_controls(self) -> tuple[OffsetAndEpoch, Sequence[object]] | None:
        """Return the id and the control records of the newest snapshot that is lost but for its header."""
        return controls_of(self._lost_snapshots)

    def set_snapshot_aside(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        """Forget a snapshot that is damaged, durably. What nothing else has is a hole from now on."""
        self._ensure_usable()
        if snapshot_id in self._snapshots:
            self._or_fail(lambda: self._set_snapshot_aside(snapshot_id, reason))

    def _set_snapshot_aside(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        lost = set_aside(self._directory, snapshot_id, reason, file_mode=self._file_mode)
        self._snapshots.remove(snapshot_id)
        self._lost_snapshots.append(lost)
        if self._start_offset == 0 or any(kept.offset >= self._start_offset for kept in self._snapshots):
            return
        self._reach_back()
        self._forget_prefix()
        base_offset = self._segments.base_offset
        if base_offset > 0:
            hole = missing_before(self._directory, 0, base_offset)
            self._segments.begin_at(make_empty_segment(self._directory, 0, file_mode=self._file_mode))
            self._holes.insert(0, hole)
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
        self._epochs, self._controls = epochs, [*controls, *known]

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
        self._sync_point.replace(NOTHING)
        self._forget_prefix()
        self._segments.restart(snapshot_id.offset)
        self._controls = []
        self._drop_repair()
        self._holes = []
        self._snapshots = drop_snapshots_before(self._directory, self._snapshots, snapshot_id)
        self._epochs = EpochTable()
        self._tail.clear()
        self._start_offset = self._end_offset = self._flushed_offset = snapshot_id.offset
        self._write_epochs()
        if self.sync_note:
            self._sync_point.replace(self._segments.mark)

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget batches and snapshots that this stored snapshot replaces; the files go with the next flush.

        The log starts at the end of the snapshot then; after a restart perhaps below, since only whole segments go.
        """
        self._ensure_usable()
        ensure(snapshot_id in self._snapshots, f"there is no snapshot {snapshot_id} to stand in for the log")
        ensure(snapshot_id.offset <= self._end_offset, f"snapshot {snapshot_id} is beyond the end {self._end_offset}")
        self._leave_behind(snapshot_id.offset)
        self._segments.delete_below(snapshot_id.offset)
        for older in [stored for stored in self._snapshots if stored < snapshot_id]:
            self._snapshots.remove(older)
            self._segments.condemn(self._directory / names.checkpoint_name(older))
        if snapshot_id.offset > self._start_offset:
            self._start_offset = snapshot_id.offset
            self._drop_holes_below(snapshot_id.offset)
            if self._epochs.start_at(snapshot_id.offset):
                self._epochs_changed = True
            self._controls = [batch for batch in self._controls if batch.last_offset >= snapshot_id.offset]

    def _drop_holes_below(self, offset: Offset) -> None:
        """Nothing is missing there any more: a snapshot has it."""
        left = [hole for hole in self._holes if hole.end_offset > offset]
        if len(left) < len(self._holes):
            self._drop_repair()
            self._holes = left
            if not left:
                self._or_fail(lambda: self._sync_point.replace(self._segments.mark))

    def close(self) -> None:
        """Flush, leave what Kafka leaves at a clean end, release files and lock. Calling it twice is allowed."""
        try:
            if self._failure is None:
                self.flush()
                self._or_fail(self._close_cleanly)
                self._failure = StorageError(f"the log in {self._directory} is closed", path=self._directory)
        finally:
            self._segments.close(None)
            self._spare.drop()
            self._drop_repair()
            self._sync_point.close()
            if self._lock is not None:
                self._lock.release()

    def _close_cleanly(self) -> None:
        """Leave what Kafka leaves, and notes from which the next start knows that it need not read anything."""
        if self._holes:
            return  # the notes of what was durable are all that tells of them
        mark = self._segments.mark
        self._segments.close(self._end_offset)
        self._sync_point.replace(mark, mtime_ns=self._segments.changed_ns)
        if mark.position > 0:
            self._write_prefix(mark, durable=True)

    def _write_epochs(self) -> None:
        self._epochs_changed = False  # before the table is read: a change meanwhile is written next time
        data = encode_epochs(self._epochs.starts())
        files.replace_file(self._directory / names.EPOCH_CHECKPOINT, data, mode=self._file_mode)

    # After a failed sync ----------------------------------------------------------------------------
    #
    # The kernel drops the pages that it could not write, but goes on to show them to readers until the machine stops. A
    # process that starts meanwhile would take them for durable, and the next sync would say so. Hence a note of where
    # the durable part ends: a note that is as perishable as those pages is just good enough.

    def _note_unsynced(self) -> None:
        note = json.dumps({"flushed_offset": self._flushed_offset}).encode("ascii")
        try:
            files.replace_file(self._directory / names.UNSYNCED, note, mode=self._file_mode, durable=False)
        except StorageError as error:
            logger.error("%s: that a sync failed cannot even be noted: %s", self._directory, error)

    def _write_unsynced_again(self, durable_offset: Offset) -> None:
        """Copy what lies behind the place at which a sync failed, and behind `durable_offset`, to a new segment."""
        path = self._directory / names.UNSYNCED
        note = files.read_file(path, max_bytes=4_096)
        if note is None:
            return
        match = re.search(rb'"flushed_offset": ([0-9]{1,19})\}', note)
        first = max(self._start_offset, int(match[1]) if match else 0, min(durable_offset, self._end_offset))
        logger.warning("%s: a sync failed in an earlier life, so all from offset %d on is written again", path, first)
        batches: list[Batch] = []
        while (offset := batches[-1].end_offset if batches else first) < self._end_offset:
            batches += self._segments.read(offset, _REWRITE_BYTES)
        self.truncate(first)
        self._segments.roll()  # not into blocks that could not be written once
        for batch in batches:
            self.append([batch])
        self.flush()
        files.remove(path)
        files.sync_directory(self._directory)

    def _or_fail(self, work: Callable[[], T]) -> T:
        """Do some work on the files; an error ends the use of the log."""
        try:
            return work()
        except OSError as error:
            self._failure = files.as_storage_error("write", self._directory, error)
            raise self._failure from error
        except StorageError as error:
            self._failure = error
            raise

    def _ensure_usable(self) -> None:
        if self._failure is not None:
            raise StorageError(
                f"the log cannot be used any more: {self._failure}", path=self._directory
            ) from self._failure
