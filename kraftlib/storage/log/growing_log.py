"""The batches of a log: the way of a record to the disk and back out of it, and the cut at its end.

An append is one write, and does not wait: the batch is in the tail at once, and a Fetch may carry it away before the
disk has it. A flush makes durable what was there when it began, on the disk thread; `kraftlib.storage.log.open_files`
says how the two stay apart. An error of the disk ends the use of the log.

Where something is missing there is a hole: it is not read, and the log does not grow.
`kraftlib.storage.damage.damaged_log` deals with holes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from kraftlib.errors import CorruptBatchError, InvariantError, StorageError, ensure
from kraftlib.records.batch import Batch
from kraftlib.storage import files, names
from kraftlib.storage.log.batches import ensure_continues, ensure_readable
from kraftlib.storage.log.chain import SegmentChain
from kraftlib.storage.log.epochs import EpochTable, encode_epochs
from kraftlib.storage.log.failure import Failure
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.open_files import SegmentSettings
from kraftlib.storage.log.prefix import controls_up_to, tells_of_voters, write_prefix
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.space import Space
from kraftlib.storage.log.sync_point import NOTHING, Mark, SyncPointFile
from kraftlib.storage.log.tail import Tail
from kraftlib.storage.log.unsynced import Unsynced, note_unsynced
from kraftlib.storage.reserve import left_out_if_full
from kraftlib.types import Epoch, Offset

TAIL_BYTES: Final = 16 << 20

PREFIX_BYTES: Final = 32 << 20
"""The number of bytes appended between two notes of the scanned state: the most that a start has to read."""

T = TypeVar("T")


class GrowingLog:
    """The log without its damage: appends, flushes, reads and truncates. Only `FileReplicatedLog` and its parts use it.

    Public attributes are replaced, never changed in place, by the loop or, while that waits, by the disk thread.
    """

    start_offset: Offset
    """First offset that can be read; everything below is in a snapshot."""
    end_offset: Offset
    """One past the last record that was appended, flushed or not."""
    flushed_offset: Offset
    """One past the last record that survives a crash."""
    epochs: EpochTable
    controls: Sequence[Batch]
    """The control batches in the log that say who votes, or which protocol version is in force."""
    holes: tuple[Hole, ...]
    """The missing ranges that are known, ascending."""

    def __init__(
        self,
        directory: Path,
        segments: list[Segment],
        settings: SegmentSettings,
        *,
        mark: Mark,
        start_offset: Offset,
        epochs: EpochTable,
        controls: Sequence[Batch],
        holes: Sequence[Hole],
        tail_bytes: int,
        sync_note: bool,
    ) -> None:
        """Take over what recovery found: segments that end at `mark`, and their content."""
        self.directory: Final = directory
        self.file_mode: Final = settings.file_mode
        self.reserve: Final = settings.reserve
        self.failure: Final = Failure(directory)
        self.space: Final = Space(directory, settings.reserve)
        self.segments: Final = SegmentChain(directory, segments, settings, mark=mark)
        self.start_offset = start_offset
        self.end_offset = self.flushed_offset = mark.end_offset
        self.epochs = epochs
        self.controls = tuple(controls)
        self.holes = tuple(holes)
        self._epochs_changed = True
        self._tail_bytes: Final = tail_bytes
        self._tail = Tail(tail_bytes)
        self._prefix_mark = NOTHING
        try:
            self.sync_point: Final = SyncPointFile(
                directory, file_mode=settings.file_mode, exact=sync_note, reserve=settings.reserve
            )
        except BaseException:
            self.segments.close(None)
            raise

    def begin_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that `epoch` starts at `start_offset`, though it has no record yet. Not durable."""
        ensure(start_offset <= self.end_offset, f"epoch {epoch} cannot start at {start_offset}, beyond the log's end")
        if self.epochs.assign(epoch, start_offset):
            self._epochs_changed = True

    # The way of a record --------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch]) -> None:
        """Append stamped batches at the end. Readable on return, not durable."""
        if self.failure.error is not None:
            self.failure.ensure_none()
        if self.holes:
            raise InvariantError("a log that is damaged does not grow")
        end_offset, epoch, size = self.end_offset, self.epochs.latest_epoch, 0
        for batch in batches:
            if batch.base_offset != end_offset or batch.epoch < epoch:
                ensure_continues(batch, end_offset, epoch)
            end_offset, epoch = batch.last_offset + 1, batch.epoch
            size += len(batch.data)
        if size == 0:
            return
        try:
            self.segments.append(batches, size)
        except StorageError as error:
            self.failure.error = error
            raise
        for batch in batches:
            self._tail.append(batch)
            if batch.epoch != self.epochs.latest_epoch and self.epochs.assign(batch.epoch, batch.base_offset):
                self._epochs_changed = True
            if batch.is_control and tells_of_voters(batch):
                self.controls = (*self.controls, batch)
        self.space.bytes_appended += size
        self.end_offset = end_offset

    def flush(self) -> Offset:
        """Make durable what was appended before the call; return the end offset that is durable now."""
        self.failure.ensure_none()
        return self._or_note(self._flush)

    def _or_note(self, work: Callable[[], T], *, is_cut: bool = False) -> T:
        """Do some work that ends with a sync; an error ends the use of the log, and the next start hears of it."""
        try:
            return self.failure.guard(work)
        except StorageError:
            unsynced = Unsynced(flushed_offset=self.flushed_offset, was_cut=is_cut)
            note_unsynced(self.directory, unsynced, file_mode=self.file_mode, reserve=self.reserve)
            raise

    def _flush(self) -> Offset:
        open_files = self.segments.open_files
        condemned_count = open_files.condemned_count
        mark = self.segments.mark  # before the segments look which files there are
        if mark.end_offset != self.flushed_offset:
            at_end_of_segment = open_files.sync()
            self.sync_point.note(mark, durable=at_end_of_segment)
            self.flushed_offset = mark.end_offset
            if at_end_of_segment or mark.position - self._prefix_mark.position >= PREFIX_BYTES:
                self._write_prefix(mark, durable=False)
        if self._epochs_changed:
            self.write_epochs()
        open_files.tidy(condemned_count, self.segments.active)
        if self.space.may_be_used_up:
            self.space.look()
        return mark.end_offset

    def read(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        """Return whole batches from the one that contains `start_offset` on, at most `max_bytes` but at least one."""
        if self.failure.error is not None:
            self.failure.ensure_none()
        while True:
            segments, start, end = self.segments.present, self.start_offset, self.end_offset
            if not start <= start_offset < end:
                ensure_readable(start_offset, start, end)
                return ()
            for hole in self.holes:
                if hole.start_offset <= start_offset < hole.end_offset:
                    raise CorruptBatchError(hole.reason, path=self.directory, position=hole.position)
            try:
                return self._tail.read(start_offset, max_bytes) or self._read_from_files(start_offset, max_bytes)
            except StorageError:
                if segments is self.segments.present and start_offset >= self.start_offset:
                    raise
                # The disk thread has changed which files there are, or where the log begins: look anew.

    def _read_from_files(self, start_offset: Offset, max_bytes: int) -> Sequence[Batch]:
        """Read what is not in memory. The CRC of a batch leaves out its epoch, which is known from elsewhere."""
        batches = self.segments.read(start_offset, max_bytes, self.holes)
        if not batches:
            raise CorruptBatchError(f"{self.directory} has no batch of offset {start_offset}", path=self.directory)
        misfit = self.epochs.first_misfit(batches)
        if misfit is batches[0]:
            reason = f"{self.directory}: {misfit!r} is not of the epoch that its offset lies in"
            raise CorruptBatchError(reason, path=self.directory)
        # The batches before a misfit are good. The misfit may be what the disk thread is cutting off at this moment.
        return batches if misfit is None else batches[: batches.index(misfit)]

    def scan(self) -> Iterator[Batch]:
        """Yield every batch from the start on, read from the files and checked."""
        self.failure.ensure_none()
        return (batch for batch in self.segments.scan() if batch.last_offset >= self.start_offset)

    # The cut, on the disk thread --------------------------------------------------------------------

    def truncate(self, end_offset: Offset) -> Offset:
        """Drop the batches that reach beyond `end_offset`; return the new end. Durable on return."""
        ensure(end_offset >= self.start_offset, f"cannot truncate to {end_offset}, below {self.start_offset}")
        self.flush()
        if end_offset < self.end_offset:
            mark = self.failure.guard(lambda: self._place_of_cut(end_offset))
            self._or_note(lambda: self._truncate(mark), is_cut=True)
        return self.end_offset

    def _place_of_cut(self, end_offset: Offset) -> Mark:
        try:
            return self.segments.mark_at(end_offset, self.epochs, self.holes)
        except StorageError:
            self.forget_prefix()  # the next start reads the whole log, and finds what is damaged there
            raise

    def _truncate(self, mark: Mark) -> None:
        # A start that finds a note of more than there is takes that for damage: the note is lowered before anything is
        # cut.
        self.sync_point.replace(mark)
        self.forget_prefix()
        self.segments.truncate(mark)
        self.holes = tuple(hole for hole in self.holes if hole.start_offset < mark.end_offset)
        self.epochs.truncate_to(mark.end_offset)
        self.controls = tuple(controls_up_to(self.controls, mark.end_offset))
        self._tail = self._tail.up_to(mark.end_offset)
        self.end_offset = self.flushed_offset = mark.end_offset
        self.write_epochs()

    def be_empty_at(self, offset: Offset) -> None:
        """Have nothing in memory, and begin at `offset`; the files go with `restart`."""
        self.start_offset = self.end_offset = self.flushed_offset = offset
        self._tail = Tail(self._tail_bytes)  # a read that has begun goes on in the old one
        self.epochs, self.controls, self.holes = EpochTable(), (), ()

    def restart(self) -> None:
        """Remove every batch, durably, and go on in an empty segment at the end."""
        self.sync_point.replace(NOTHING)
        self.forget_prefix()
        self.reserve.spend(lambda: self.segments.restart(self.end_offset))

    def begin_later(self) -> None:
        """Forget what was known of batches below the start, which has moved on."""
        if self.epochs.start_at(self.start_offset):
            self._epochs_changed = True
        self.controls = tuple(batch for batch in self.controls if batch.last_offset >= self.start_offset)

    # Notes ----------------------------------------------------------------------------------------------

    def _write_prefix(self, mark: Mark, *, durable: bool) -> None:
        """Note what a scan up to `mark` would find. The sync point comes first: nothing is believed beyond it."""
        self.sync_point.sync()
        starts = [start for start in self.epochs.starts() if start.start_offset < mark.end_offset]
        controls = controls_up_to(self.controls, mark.end_offset)
        self._prefix_mark = mark
        with left_out_if_full(f"the next start of {self.directory} reads more of the log"):
            known = self.segments.known_prefix(mark, self.start_offset, starts, controls)
            if known is not None:
                write_prefix(self.directory, known, file_mode=self.file_mode, durable=durable)

    def forget_prefix(self) -> None:
        """Remove that note; for good once the directory is synced, which what follows does."""
        files.remove(self.directory / names.PREFIX)
        self._prefix_mark = NOTHING

    def write_epochs(self) -> None:
        """Write `leader-epoch-checkpoint`, durably."""
        self._epochs_changed = False  # before the table is read: a change meanwhile is written next time
        data = encode_epochs(self.epochs.starts())
        path = self.directory / names.EPOCH_CHECKPOINT
        self.reserve.spend(lambda: files.replace_file(path, data, mode=self.file_mode))

    def close_cleanly(self) -> None:
        """Leave what Kafka leaves, and notes from which the next start knows that it need not read anything."""
        if self.holes:
            return  # only the notes of the durable end tell of them
        mark = self.segments.mark
        self.segments.close(self.end_offset)
        self.sync_point.replace(mark, mtime_ns=self.segments.changed_ns)
        if mark.position > 0:
            self._write_prefix(mark, durable=True)
