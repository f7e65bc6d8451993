"""Snapshots for listeners that stand where the log does not reach back to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.serde import RecordSerde
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.committed import LoadedSnapshot
from kraftlib.runtime.feed import Feed
from kraftlib.runtime.listener import Listener
from kraftlib.runtime.waiters import Waiters
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.types import BOOTSTRAP_SNAPSHOT, Offset, OffsetAndEpoch


class Overlay(Protocol):
    """Increments of the state machine: `kraftlib.runtime.snapshots.increments`."""

    def was_loaded(self, snapshot: LoadedSnapshot) -> None:
        """The state machine has taken this."""
        ...

    def give_up(self, snapshot: LoadedSnapshot) -> bool:
        """It cannot be read to its end. Remove its increments, if it has any, and return whether it had."""
        ...

    def loaded(
        self, base: OffsetAndEpoch, high_watermark: Offset, reader: SnapshotReader, on_close: Callable[[], None]
    ) -> LoadedSnapshot | None:
        """Return a checkpoint with its increments as one snapshot, if there are any."""
        ...


class Checks(Protocol):
    """The checks of stored snapshots: `kraftlib.runtime.snapshots.checks`."""

    def is_sound(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether it was read to its end and is whole."""
        ...

    def is_damaged(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether it is known not to be whole."""
        ...

    def when_checked(self, snapshot_id: OffsetAndEpoch, then: Callable[[], None]) -> None:
        """Call `then` once it is known whether this snapshot is whole."""
        ...

    def doubt(self, snapshot_id: OffsetAndEpoch) -> None:
        """A listener could not read it: check it once more."""
        ...


class Loading:
    """Gives listeners the newest snapshot that is committed and whole, and another one if it turns out damaged.

    `wake` has the applier look again. `guarded` calls into the application and returns whether that succeeded; `stop`
    stops a listener because of an error. `reader_closed` may be called by any thread.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        serde: RecordSerde[Any],
        waiters: Waiters,
        *,
        increments: Overlay | None,
        checks: Checks | None,
        wake: Callable[[], None],
        reader_closed: Callable[[], None],
        guarded: Callable[[Feed, Callable[[], object]], bool],
        stop: Callable[[Feed, BaseException], None],
    ) -> None:
        self._log = log
        self._serde = serde
        self._waiters = waiters
        self._increments = increments
        self._checks = checks
        self._wake = wake
        self._reader_closed = reader_closed
        self._guarded = guarded
        self._stop = stop

    def load(self, feed: Feed, high_watermark: Offset) -> bool:
        """Give the newest snapshot that is committed; return whether something was done, and more may be due.

        A state that was wrong is healed by the snapshot that the core names: a newer one may have been written of it.
        """
        wanted = feed.heals_with
        ids = [one for one in self._log.snapshots() if one.offset <= high_watermark and wanted in (None, one)]
        if not ids:
            return self._begin_without(feed)
        newest, checks = ids[-1], self._checks
        if checks is not None and not checks.is_sound(newest):
            if not checks.is_damaged(newest):  # else it is about to go, and `advance` comes then
                checks.when_checked(newest, self._wake)
            return False
        try:
            reader = SnapshotReader(self._log.open_snapshot(newest), epoch=newest.epoch)
        except StorageError as error:
            return self._cannot_open(feed, newest, error)
        snapshot = feed.reader = self._merged(feed, newest, high_watermark, reader) or LoadedSnapshot(
            newest, reader, self._serde, on_close=self._reader_closed
        )
        if not self._guarded(feed, lambda: _give(feed.listener, snapshot)) or not snapshot.held:
            snapshot.close()
        return True

    def _begin_without(self, feed: Feed) -> bool:
        """Let a listener begin at 0, where there is no snapshot that it could load."""
        if self._log.start_offset > 0:
            return False  # the high watermark lies before the log: more is coming
        if feed.is_half_loaded and feed.is_machine:
            self._stop(feed, StorageError(f"snapshot {feed.failed_to_load} is damaged, and no other one replaces it"))
            return False
        feed.next_offset, feed.failed_to_load, feed.is_half_loaded = 0, None, False
        return True

    def _cannot_open(self, feed: Feed, snapshot_id: OffsetAndEpoch, error: StorageError) -> bool:
        checks = self._checks
        if snapshot_id not in self._log.snapshots():
            return True  # it has gone meanwhile: another one stands in
        if checks is None or not isinstance(error, CorruptBatchError):
            raise error
        if feed.failed_to_load == snapshot_id:
            self._stop(feed, error)
            return False
        feed.failed_to_load = snapshot_id
        checks.doubt(snapshot_id)
        return True

    def _merged(
        self, feed: Feed, base: OffsetAndEpoch, high_watermark: Offset, reader: SnapshotReader
    ) -> LoadedSnapshot | None:
        """Return the checkpoint with the increments on it, where the state machine has any."""
        overlay = self._increments if feed.is_machine and feed.heals_with is None else None
        return None if overlay is None else overlay.loaded(base, high_watermark, reader, self._reader_closed)

    def loaded(self, feed: Feed, snapshot: LoadedSnapshot) -> None:
        """Count `snapshot` as given, now that its listener is done with it."""
        is_damaged = isinstance(snapshot.error, CorruptBatchError) or snapshot.unreadable is not None
        if is_damaged and feed.failed_to_load != snapshot.snapshot_id:
            self._load_another(feed, snapshot)
        elif snapshot.error is not None:
            self._stop(feed, snapshot.error)
        else:
            feed.failed_to_load, feed.is_half_loaded = None, False
            feed.next_offset = snapshot.snapshot_id.offset
            if not feed.is_machine:
                return
            self._waiters.skipped(feed.next_offset)
            overlay = self._increments
            if overlay is not None:
                overlay.was_loaded(snapshot)

    def _load_another(self, feed: Feed, snapshot: LoadedSnapshot) -> None:
        """The snapshot, or an increment on it, was damaged since it was checked: try again with the remaining ones."""
        feed.failed_to_load, feed.is_half_loaded = snapshot.snapshot_id, True
        overlay, checks = self._increments, self._checks
        if (overlay is None or not overlay.give_up(snapshot)) and checks is not None:
            checks.doubt(snapshot.snapshot_id)


def _give(listener: Listener, snapshot: LoadedSnapshot) -> None:
    """Have the listener load it. One that turns out damaged is not the listener's fault."""
    is_bootstrap = snapshot.snapshot_id == BOOTSTRAP_SNAPSHOT
    try:
        (listener.handle_load_bootstrap if is_bootstrap else listener.handle_load_snapshot)(snapshot)
    except CorruptBatchError as error:
        snapshot.close(error)
