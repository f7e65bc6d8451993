"""Snapshots that stand in for a log: for all of it, for its beginning, and for missing records."""

from __future__ import annotations

import logging
from typing import Final

from kraftlib.errors import CorruptBatchError, ensure
from kraftlib.storage import names
from kraftlib.storage.damage.damaged_log import DamagedLog
from kraftlib.storage.log.growing_log import GrowingLog
from kraftlib.storage.snapshots.damaged_snapshots import read_snapshot
from kraftlib.storage.snapshots.snapshot_files import drop_snapshots_before
from kraftlib.storage.snapshots.stored import StoredSnapshots
from kraftlib.types import OffsetAndEpoch

logger: Final = logging.getLogger(__name__)


class StandIns:
    """Where a log begins, as its snapshots have it."""

    def __init__(self, log: GrowingLog, damage: DamagedLog, snapshots: StoredSnapshots) -> None:
        self._log: Final = log
        self._damage: Final = damage
        self._snapshots: Final = snapshots

    def install(self, snapshot_id: OffsetAndEpoch) -> None:
        """Drop every batch and begin anew at the end of this stored snapshot. Durable on return."""
        self._log.failure.ensure_none()
        ensure(snapshot_id in self._snapshots.ids, f"there is no snapshot {snapshot_id} to install")
        self._log.failure.guard(lambda: self._install(snapshot_id))

    def _install(self, snapshot_id: OffsetAndEpoch) -> None:
        log = self._log
        with self._snapshots.lock:  # before any file goes: a reader on the loop is sent to the snapshot meanwhile
            older = self._snapshots.forget_before(snapshot_id)
            log.be_empty_at(snapshot_id.offset)
        log.restart()
        self._damage.drop_repair()
        drop_snapshots_before(log.directory, older, snapshot_id)
        log.write_epochs()
        if log.sync_point.exact:
            log.sync_point.replace(log.segments.mark)

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget batches and snapshots that this stored snapshot replaces; the files go with the next flush."""
        log = self._log
        log.failure.ensure_none()
        ensure(snapshot_id in self._snapshots.ids, f"there is no snapshot {snapshot_id} to stand in for the log")
        ensure(snapshot_id.offset <= log.end_offset, f"snapshot {snapshot_id} is beyond the end {log.end_offset}")
        self._damage.leave_behind(snapshot_id.offset)
        with self._snapshots.lock:
            older = self._snapshots.forget_before(snapshot_id)
            moves = snapshot_id.offset > log.start_offset
            log.start_offset = max(log.start_offset, snapshot_id.offset)
        log.segments.delete_below(snapshot_id.offset)
        for stored in older:
            log.segments.open_files.condemn(log.directory / names.checkpoint_name(stored))
        if moves:
            self._damage.drop_below(snapshot_id.offset)
            log.begin_later()

    def begin_behind_damage(self) -> None:
        """Let the log begin behind what is missing, as far as that is in the newest snapshot, which must be whole."""
        log = self._log
        newest = self._snapshots.ids[-1] if self._snapshots.ids else None
        missing = log.holes[0].start_offset if log.holes else log.end_offset
        if newest is None or newest.offset > log.end_offset or missing >= newest.offset:
            return
        is_of_log = newest.epoch <= log.epochs.latest_epoch  # else the log leaves the committed one before its end
        if newest.offset > log.start_offset and is_of_log and self._is_whole(newest):
            logger.warning("%s: %d and more are missing, and in snapshot %s", log.directory, missing, newest)
            self.delete_before(newest)
        elif missing < log.start_offset:  # in a file that has more; readers must not come upon it
            self._damage.leave_behind(log.start_offset)
            log.segments.delete_below(log.start_offset)
            self._damage.drop_below(log.start_offset)
        log.flush()

    def _is_whole(self, snapshot_id: OffsetAndEpoch) -> bool:
        try:
            read_snapshot(self._log.directory, snapshot_id)
        except CorruptBatchError:
            return False  # the next read of it says so
        return True

    def set_aside(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        """Forget a snapshot that is damaged, durably. Records that only this snapshot had are a hole from now on."""
        self._log.failure.ensure_none()
        if snapshot_id in self._snapshots.ids:
            self._log.failure.guard(lambda: self._set_aside(snapshot_id, reason))

    def _set_aside(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        log, stored = self._log, self._snapshots
        stored.forget_lost(log.reserve.spend(lambda: stored.set_aside(snapshot_id, reason, file_mode=log.file_mode)))
        if stored.covers(log.start_offset):
            return
        self._damage.lose_beginning(snapshot_id)
        with stored.lock:
            log.start_offset = 0
        log.write_epochs()
