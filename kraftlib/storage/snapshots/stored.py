"""The snapshots that stand beside a log, whole or lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from kraftlib.storage import files, names
from kraftlib.storage.snapshots.damaged_snapshots import LostSnapshot, set_aside
from kraftlib.types import Offset, OffsetAndEpoch

logger: Final = logging.getLogger(__name__)


class StoredSnapshots:
    """Which snapshots there are. For any thread: they are frozen on several, while the start of the log moves."""

    ids: tuple[OffsetAndEpoch, ...]
    """Of those that count, ascending. Replaced, never changed."""

    lost: tuple[LostSnapshot, ...]
    """Those that are not whole."""

    def __init__(
        self,
        directory: Path,
        ids: Iterable[OffsetAndEpoch],
        *,
        lost: Iterable[LostSnapshot],
        log_start: Callable[[], Offset],
    ) -> None:
        """`log_start` says where the log begins."""
        self.ids = tuple(ids)
        self.lost = tuple(lost)
        self.lock: Final = Lock()
        """Held while the list changes, or the start of the log moves."""
        self._directory: Final = directory
        self._log_start: Final = log_start

    def adopt(self, snapshot_id: OffsetAndEpoch) -> None:
        """Take note of a snapshot that was frozen in the directory. One that comes too late goes."""
        with self.lock:
            start = self._log_start()
            if self._comes_too_late(snapshot_id, start):  # a start would remove the file, too
                logger.info("%s: snapshot %s comes too late, the log begins at %d", self._directory, snapshot_id, start)
                files.remove(self._directory / names.checkpoint_name(snapshot_id))
            elif snapshot_id not in self.ids:
                self.ids = tuple(sorted((*self.ids, snapshot_id)))

    def _comes_too_late(self, snapshot_id: OffsetAndEpoch, start: Offset) -> bool:
        """Whether the log begins behind this snapshot, or at its offset with another one."""
        begins_with_another = any(kept.offset == start and kept != snapshot_id for kept in self.ids)
        return snapshot_id.offset < start or (snapshot_id.offset == start and begins_with_another)

    def forget_before(self, snapshot_id: OffsetAndEpoch) -> Sequence[OffsetAndEpoch]:
        """List the older ones no more, and return them; the caller holds the lock.

        This comes before the start of the log moves, or a listener would load one again.
        """
        older = [stored for stored in self.ids if stored < snapshot_id]
        self.ids = self.ids[len(older) :]
        return older

    def set_aside(self, snapshot_id: OffsetAndEpoch, reason: str, *, file_mode: int) -> LostSnapshot:
        """Move a damaged snapshot out of the way, durably. It is listed until `forget_lost`; this may be repeated."""
        return set_aside(self._directory, snapshot_id, reason, file_mode=file_mode)

    def forget_lost(self, lost: LostSnapshot) -> None:
        """List a snapshot no more that was set aside."""
        self.lost = (*self.lost, lost)
        with self.lock:
            self.ids = tuple(kept for kept in self.ids if kept != lost.snapshot_id)

    def covers(self, offset: Offset) -> bool:
        """Whether one of them has everything below `offset`."""
        return offset == 0 or any(kept.offset >= offset for kept in self.ids)
