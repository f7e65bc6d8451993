"""Retention: the log is kept by size, age and snapshots, and for readers that hold it.

Kafka's rule: while there are two snapshots, the oldest one goes, and with it the log below the next one, if all
together is too large or if the oldest is too old. Beyond Kafka, the log below a snapshot is deleted only after that
snapshot was read to its end and found whole, and only as far as no reader holds it.

A hold that is never released would fill the disk. So each has a size: when the log has grown beyond it only because of
the hold, the hold expires. The replica logs that, and the reader's next call raises an error.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kraftlib.config import RaftConfig
from kraftlib.errors import ClosedError, ConfigError, CorruptBatchError, KraftError
from kraftlib.frozen import immutable
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.runtime.disk import Disk
from kraftlib.runtime.pace import unhurried
from kraftlib.runtime.snapshots.holds import RetentionHold
from kraftlib.runtime.snapshots.writing import verify_snapshot
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.storage.log.holds_file import NAME_MAX, StoredHold
from kraftlib.types import Offset, OffsetAndEpoch

logger: Final = logging.getLogger("kraftlib.runtime.snapshots.retention")


KEPT_ON_FULL_DISK: Final = 2
"""The number of snapshots that are kept even when the disk is full: if one is found damaged, another is left."""


@immutable
class _Facts:
    """Size and timestamp of a stored snapshot. They never change."""

    size: int
    timestamp_ms: int


class Retention:
    """Finds snapshots that may be deleted, one at a time, and asks the core for that with `delete`.

    On the loop, all but the reading of snapshots, which happens in the `background`. `save` keeps the holds.
    """

    def __init__(
        self,
        config: RaftConfig,
        log: ReplicatedLog,
        *,
        background: Disk,
        delete: Callable[[OffsetAndEpoch], None],
        wall_clock: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        holds: Iterable[StoredHold] = (),
        save: Callable[[Sequence[StoredHold]], None] = lambda holds: None,
        remove_late: Callable[[str], None] = lambda name: None,
        step: Callable[[], None] = unhurried,
        on_damage: Callable[[OffsetAndEpoch, str], None] = lambda snapshot_id, reason: None,
    ) -> None:
        """`on_damage` hears of snapshots that are not whole; `remove_late` removes a stored hold, after `stop`, on any
        thread.
        """
        self._config = config
        self._log = log
        self._background = background
        self._delete = delete
        self._wall_clock = wall_clock
        self._call_soon = call_soon
        self._save = save
        self._remove_late = remove_late
        self._stopping: Final = threading.Lock()
        self._stopped = False
        self._step = step
        self._on_damage = on_damage
        self._facts: dict[OffsetAndEpoch, _Facts] = {}
        self._verified: set[OffsetAndEpoch] = set()
        self._damaged: set[OffsetAndEpoch] = set()
        self._busy = False
        self._going: Offset = 0
        """The core was asked to delete everything below: it may still be there, but it cannot be held any more."""
        self._holds = {hold.name: self._hold(hold.name, hold.offset, hold.max_bytes) for hold in holds}
        self._saved: Sequence[StoredHold] | None = self._to_store()
        """The holds that are stored, or about to be; None, if a write has failed."""

    # --- holds -------------------------------------------------------------------------------------------------------

    def hold(self, name: str, offset: Offset | None, max_bytes: int | None) -> RetentionHold:
        """Return the hold of this name, moved on to `offset`; a new one at `offset`, or at the start of the log.

        Raises: ConfigError for an offset that is gone already, or about to go, or an impossible name.
        """
        if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX or not name.isprintable():
            raise ConfigError(f"name={name!r} is no name of a reader: take 1 to {NAME_MAX} printable characters")
        start = max(self._log.start_offset, self._going)
        found = self._holds.get(name)
        if found is not None and not found.is_over:
            if offset is not None:
                found.advance(offset)
            return found
        if offset is not None and offset < start:
            raise ConfigError(f"offset={offset} cannot be held, the log begins at {start}: load the newest snapshot")
        limit = self._config.hold_max_bytes if max_bytes is None else max_bytes
        made = self._holds[name] = self._hold(name, start if offset is None else offset, limit)
        self._save_holds()
        return made

    @property
    def holds(self) -> Sequence[RetentionHold]:
        """Those that are neither released nor expired."""
        return [hold for hold in self._holds.values() if not hold.is_over]

    def _hold(self, name: str, offset: Offset, max_bytes: int) -> RetentionHold:
        return RetentionHold(name, offset, max_bytes, self._release)

    def _release(self, name: str) -> None:
        with self._stopping:
            stopped = self._stopped
            if not stopped:
                self._call_soon(self.look)
        if stopped:
            self._remove_late(name)

    def stop(self) -> None:
        """Store the holds, and stop. Calling it twice is allowed."""
        with self._stopping:
            self._stopped = True
        self._save_holds()

    def _to_store(self) -> Sequence[StoredHold]:
        return [StoredHold(name=hold.name, offset=hold.offset, max_bytes=hold.max_bytes) for hold in self.holds]

    def _save_holds(self) -> None:
        holds = self._to_store()
        if holds != self._saved:
            self._saved = holds
            self._background.run(lambda: self._save(holds), self._holds_saved)

    def _holds_saved(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self._saved = None  # the next look tries again: a full disk may have space by then
            _log_failure(None, error)

    # --- what goes ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Delete a snapshot that is not needed, if there is one; then look again."""
        if self._stopped:
            return
        self._save_holds()
        if not self._busy:
            self._forget_gone()
        ids = [snapshot for snapshot in self._log.snapshots() if snapshot not in self._damaged]
        if self._busy or len(ids) < 2:
            return
        unknown = [snapshot for snapshot in ids if snapshot not in self._facts]
        if unknown:
            self._in_background(lambda: {snapshot: self._read_facts(snapshot) for snapshot in unknown}, self._learned)
            return
        if not self._is_due(ids):
            return
        successor = ids[1]
        if self._is_held(successor.offset):
            return
        if successor in self._verified:
            self.let_go(successor)
            if successor == next(iter(self._log.snapshots())):
                self._call_soon(self.look)
        else:
            self._in_background(lambda: self._verify(successor), self._learned)

    def _forget_gone(self) -> None:
        """Forget snapshots that were deleted, and holds that are over."""
        stored = set(self._log.snapshots())
        self._facts = {snapshot: facts for snapshot, facts in self._facts.items() if snapshot in stored}
        self._verified &= stored
        self._damaged &= stored
        self._holds = {hold.name: hold for hold in self.holds}

    def let_go(self, snapshot_id: OffsetAndEpoch) -> None:
        """Let the log begin at this snapshot, which is whole, and below which no reader holds anything."""
        self._going = max(self._going, snapshot_id.offset)
        self._delete(snapshot_id)

    def verified(self, snapshot_id: OffsetAndEpoch) -> None:
        """This snapshot was read to its end and is whole."""
        self._verified.add(snapshot_id)
        self._damaged.discard(snapshot_id)

    def forget(self, snapshot_id: OffsetAndEpoch) -> None:
        """This snapshot is gone; another one may have its id."""
        self._verified.discard(snapshot_id)
        self._damaged.discard(snapshot_id)
        self._facts.pop(snapshot_id, None)

    def make_room(self) -> None:
        """The disk is full: delete all but the two newest snapshots, and the log below them, but nothing that is held.

        Records that no snapshot covers are never deleted to make room.
        """
        ids = [snapshot for snapshot in self._log.snapshots() if snapshot not in self._damaged]
        if self._busy or len(ids) <= KEPT_ON_FULL_DISK:
            return
        oldest = ids[-KEPT_ON_FULL_DISK]
        if any(hold.offset < oldest.offset for hold in self.holds):
            return
        if oldest in self._verified:
            logger.warning(
                "replica %d: the disk is full: the snapshots before %s go, and the log below it",
                *(self._config.node_id, oldest),
            )
            self.let_go(oldest)
        else:
            self._in_background(lambda: self._verify(oldest), self._learned)

    def _is_due(self, ids: Sequence[OffsetAndEpoch]) -> bool:
        total = self._log.size_bytes + sum(self._facts[snapshot].size for snapshot in ids)
        age_ms = self._wall_clock() - self._facts[ids[0]].timestamp_ms
        too_large = 0 <= self._config.retention_bytes < total
        return too_large or 0 <= self._config.retention_ms < age_ms

    def _is_held(self, offset: Offset) -> bool:
        """Whether a reader holds records below `offset`. Holds whose log has become too large expire."""
        held = False
        for hold in self.holds:
            if hold.offset < offset:
                if self._log.size_bytes > hold.max_bytes:
                    self._expire(hold)
                else:
                    held = True
        return held

    def _expire(self, hold: RetentionHold) -> None:
        hold.expire()
        logger.error(
            "replica %d: the hold of %r at offset %d has expired: it kept a log of %d bytes, its limit is %d",
            *(self._config.node_id, hold.name, hold.offset, self._log.size_bytes, hold.max_bytes),
        )
        self._save_holds()

    def _read_facts(self, snapshot_id: OffsetAndEpoch) -> _Facts | KraftError:
        try:
            with SnapshotReader(self._log.open_snapshot(snapshot_id), epoch=snapshot_id.epoch) as reader:
                return _Facts(reader.size, reader.header.last_contained_log_timestamp)
        except ClosedError:
            raise
        except KraftError as error:
            self._report_damage(snapshot_id, error)
            return error

    def _verify(self, snapshot_id: OffsetAndEpoch) -> dict[OffsetAndEpoch, _Facts | KraftError]:
        try:
            verify_snapshot(self._log, snapshot_id, step=self._step)
        except ClosedError:
            raise
        except KraftError as error:
            self._report_damage(snapshot_id, error)
            return {snapshot_id: error}
        self._verified.add(snapshot_id)
        return {}

    def _report_damage(self, snapshot_id: OffsetAndEpoch, error: KraftError) -> None:
        if snapshot_id in self._log.snapshots():  # else it went while it was read
            logger.error("replica %d: snapshot %s is damaged, nothing is deleted on its word: %s",
                         self._config.node_id, snapshot_id, error)  # fmt: skip

    def _learned(self, facts: dict[OffsetAndEpoch, _Facts | KraftError]) -> None:
        for snapshot_id, known in facts.items():
            if isinstance(known, KraftError):
                self._damaged.add(snapshot_id)
                if isinstance(known, CorruptBatchError):
                    self._on_damage(snapshot_id, str(known))
            else:
                self._facts[snapshot_id] = known
        self.look()

    def _in_background(self, work: Callable[[], Any], after: Callable[[Any], None]) -> None:
        def done(result: Any, error: BaseException | None) -> None:
            self._busy = False
            if error is None:
                after(result)
            else:
                _log_failure(None, error)

        self._busy = True
        self._background.run(work, done)


def _log_failure(_: object, error: BaseException | None) -> None:
    if error is not None and not isinstance(error, ClosedError):
        logger.error("retention: %s", error, exc_info=error)
