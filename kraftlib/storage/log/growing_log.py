"""A log that grows: the way of a record to the disk, and back out of it.

An append is one write, and nobody waits for it: the batch is in the tail at once, and a Fetch may carry it away before
the disk has it. A flush makes durable what was there when it began, on the disk thread; `kraftlib.storage.log.chain`
says how the two stay apart. An error of the disk ends the use of the log: a sync that is tried again may report success
for pages that were dropped.

`kraftlib.storage.damage.damaged_log` adds what is done where some of it is missing, `kraftlib.storage.file_log` the
snapshots.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Final, TypeVar

from kraftlib.errors import CorruptBatchError, StorageError, ensure
from kraftlib.records.batch import Batch
from kraftlib.storage import files, names
from kraftlib.storage.damage.damaged_segments import DamagedSegmentChain
from kraftlib.storage.damage.scan import RecoveredLog
from kraftlib.storage.lock import DirectoryLock
from kraftlib.storage.log.batches import ensure_continues, ensure_readable
from kraftlib.storage.log.chain import SegmentSettings
from kraftlib.storage.log.epochs import encode_epochs
from kraftlib.storage.log.prefix import controls_up_to, tells_of_voters, write_prefix
from kraftlib.storage.log.sync_point import NOTHING, Mark, SyncPointFile
from kraftlib.storage.log.tail import Tail
from kraftlib.storage.log.unsynced import Unsynced, note_unsynced
from kraftlib.storage.reserve import free_bytes, is_full
from kraftlib.storage.snapshots.damaged_snapshots import remove_damaged
from kraftlib.types import Epoch, EpochStart, Offset

logger: Final = logging.getLogger(__name__)

TAIL_BYTES: Final = 16 << 20

PREFIX_BYTES: Final = 32 << 20
"""How much is appended before what a scan would find is noted anew: the most that a start has to read."""

T = TypeVar("T")


class GrowingLog:
    """What appends, flushes and reads; opened by `FileReplicatedLog`, which is all of it."""

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
        self._segments: Final = DamagedSegmentChain(log.directory, log.segments, settings, mark=log.mark)
        self._tail_bytes: Final = tail_bytes
        self._tail = Tail(tail_bytes)
        self._epochs = log.epochs
        self._epochs_changed = True
        self._snapshots = tuple(log.snapshots)
        self._snapshots_lock: Final = Lock()
        """Snapshots are frozen on other threads, while the start of the log moves."""
        self._lost_snapshots = tuple(log.lost_snapshots)
        self._start_offset = log.start_offset
        self._end_offset = self._flushed_offset = log.end_offset
        self._failure: StorageError | None = None
        self._controls = tuple(log.control_batches)
        self._holes = tuple(log.holes)
        self._reserve: Final = settings.reserve
        self._spare: Final = settings.spare
        self.is_full = False
        """Whether the disk has too little space left for more than what is on its way."""
        self._bytes_appended = self._bytes_at_look = 0
        self.is_doubtful: Final = log.is_doubtful
        """Whether it cannot be told how long the log was: its end may be below what this replica acknowledged."""
        self._prefix_mark = NOTHING
        try:
            self._sync_point: Final = SyncPointFile(
                log.directory, file_mode=settings.file_mode, exact=sync_note, reserve=settings.reserve
            )
        except BaseException:
            self._segments.close(None)
            raise
        self.bytes_read_at_start: Final = log.bytes_read
        """How much of the log was read to open it."""

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
        return self._controls

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
                self._controls = (*self._controls, batch)
        self._bytes_appended += size
        self._end_offset = end_offset

    def flush(self) -> Offset:
        """Make durable what was appended before the call; return the end offset that is durable now."""
        self._ensure_usable()
        return self._or_note(self._flush)

    def _or_note(self, work: Callable[[], T], *, is_cut: bool = False) -> T:
        """Do some work that ends with a sync; an error ends the use of the log, and the next start hears of it."""
        try:
            return self._or_fail(work)
        except StorageError:
            unsynced = Unsynced(flushed_offset=self._flushed_offset, was_cut=is_cut)
            note_unsynced(self._directory, unsynced, file_mode=self._file_mode, reserve=self._reserve)
            raise

    def _flush(self) -> Offset:
        condemned_count = self._segments.condemned_count
        mark = self._segments.mark  # before the segments look which files there are
        if mark.end_offset != self._flushed_offset:
            at_end_of_segment = self._segments.sync()
            self._sync_point.note(mark, durable=at_end_of_segment)
            self._flushed_offset = mark.end_offset
            if at_end_of_segment or mark.position - self._prefix_mark.position >= PREFIX_BYTES:
                self._write_prefix(mark, durable=False)
        if self._epochs_changed:
            self._write_epochs()
        self._segments.tidy(condemned_count)
        if self._wants_look_at_space():
            self.look_at_space()
        return mark.end_offset

    def _write_prefix(self, mark: Mark, *, durable: bool) -> None:
        """Note what a scan up to `mark` would find. The sync point comes first: nothing is believed beyond it."""
        self._sync_point.sync()
        starts = [start for start in self._epochs.starts() if start.start_offset < mark.end_offset]
        controls = controls_up_to(self._controls, mark.end_offset)
        self._prefix_mark = mark
        try:
            known = self._segments.known_prefix(mark, self._start_offset, starts, controls)
            if known is not None:
                write_prefix(self._directory, known, file_mode=self._file_mode, durable=durable)
        except StorageError as error:
            if not is_full(error):
                raise
            # A cache is not worth the reserve.
            logger.warning("%s: the disk is full, so the next start reads more of the log: %s", self._directory, error)

    def _forget_prefix(self) -> None:
        files.remove(self._directory / names.PREFIX)  # for good once the directory is synced, which what follows does
        self._prefix_mark = NOTHING

    def _write_epochs(self) -> None:
        self._epochs_changed = False  # before the table is read: a change meanwhile is written next time
        data = encode_epochs(self._epochs.starts())
        path = self._directory / names.EPOCH_CHECKPOINT
        self._reserve.spend(lambda: files.replace_file(path, data, mode=self._file_mode))

    def read(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        """Return whole batches from the one that contains `start_offset` on, at most `max_bytes` but at least one."""
        self._ensure_usable()
        while True:
            segments, start, end = self._segments.present, self._start_offset, self._end_offset
            if not start <= start_offset < end:
                ensure_readable(start_offset, start, end)
                return ()
            for hole in self._holes:
                if hole.start_offset <= start_offset < hole.end_offset:
                    raise CorruptBatchError(hole.reason, path=self._directory, position=hole.position)
            try:
                return self._tail.read(start_offset, max_bytes) or self._read_from_files(start_offset, max_bytes)
            except StorageError:
                if segments is self._segments.present and start_offset >= self._start_offset:
                    raise
                # The disk thread has changed which files there are, or where the log begins: look anew.

    def _read_from_files(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        """Read what is not in memory. The CRC of a batch leaves out its epoch, which is known from elsewhere."""
        batches = self._segments.read(start_offset, max_bytes, self._holes)
        if not batches:
            raise CorruptBatchError(f"{self._directory} has no batch of offset {start_offset}", path=self._directory)
        misfit = self._epochs.first_misfit(batches)
        if misfit is batches[0]:
            reason = f"{self._directory}: {misfit!r} is not of the epoch that its offset lies in"
            raise CorruptBatchError(reason, path=self._directory)
        # What stands before a misfit is good. The misfit may be what the disk thread is cutting off at this moment.
        return batches if misfit is None else batches[: batches.index(misfit)]

    def scan(self) -> Iterator[Batch]:
        """Yield every batch from the start on, read from the files and checked."""
        self._ensure_usable()
        return (batch for batch in self._segments.scan() if batch.last_offset >= self._start_offset)

    # The space that is left -------------------------------------------------------------------------

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

    def prepare_spare(self) -> None:
        """Have the next segment ready, if that is wanted; on a full disk give back what nobody needs.

        For a thread in the background.
        """
        if self.is_full:
            self._spare.drop()
            remove_damaged(self._directory)
        elif self._failure is None:
            self._spare.prepare()

    # When the disk fails ----------------------------------------------------------------------------

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
