"""Checks stored snapshots before their first use, and reports damaged ones.

A snapshot is read to its end before it is loaded or sent for the first time in the life of a process, in the background
and without decoding its records, which costs a small part of loading it. A snapshot that was just written or downloaded
was verified then. Concurrent callers share one reading. If a log cannot do without a damaged snapshot, all of its
snapshots count as whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kraftlib.errors import ClosedError, CorruptBatchError
from kraftlib.runtime.capabilities import capabilities_of
from kraftlib.runtime.disk import Disk
from kraftlib.runtime.pace import unhurried
from kraftlib.storage.interface import ReplicatedLog
from kraftlib.types import OffsetAndEpoch


class SnapshotChecks:
    """Remembers which snapshots of one log are whole. On the loop; `on_damage` is called with each damaged one."""

    def __init__(
        self,
        log: ReplicatedLog,
        *,
        background: Disk,
        on_damage: Callable[[OffsetAndEpoch, str], None],
        step: Callable[[], None] = unhurried,
    ) -> None:
        self._log = capabilities_of(log).checks
        self._background = background
        self._on_damage = on_damage
        self._step = step
        self._sound: set[OffsetAndEpoch] = set()
        self._damaged: set[OffsetAndEpoch] = set()
        self._waiting: dict[OffsetAndEpoch, list[Callable[[], None]]] = {}

    def is_sound(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether the snapshot was read to its end and is whole."""
        return self._log is None or snapshot_id in self._sound

    def is_damaged(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether the snapshot is known not to be whole."""
        return snapshot_id in self._damaged

    def note_sound(self, snapshot_id: OffsetAndEpoch) -> None:
        """Note that the snapshot was read to its end and is whole."""
        self._sound.add(snapshot_id)
        self._damaged.discard(snapshot_id)

    def note_damaged(self, snapshot_id: OffsetAndEpoch, reason: str) -> None:
        """Note that a reader has found the snapshot not to be whole."""
        if self._log is not None and snapshot_id not in self._damaged:
            self._sound.discard(snapshot_id)
            self._damaged.add(snapshot_id)
            self._on_damage(snapshot_id, reason)

    def doubt(self, snapshot_id: OffsetAndEpoch) -> None:
        """Check the snapshot once more before its next use, as a reader could not read it or refused it."""
        self._sound.discard(snapshot_id)

    def forget(self, snapshot_id: OffsetAndEpoch) -> None:
        """Forget the snapshot, which is gone: another one may have its id."""
        self._sound.discard(snapshot_id)
        self._damaged.discard(snapshot_id)

    def keep_only(self, stored: Iterable[OffsetAndEpoch]) -> None:
        """Forget all other snapshots that were whole: they were deleted."""
        self._sound.intersection_update(stored)

    def when_checked(self, snapshot_id: OffsetAndEpoch, then: Callable[[], None]) -> None:
        """Call `then` once it is known whether this snapshot is whole; at once, if it is known already."""
        log = self._log
        if log is None or snapshot_id in self._sound or snapshot_id in self._damaged:
            then()
        elif snapshot_id in self._waiting:
            self._waiting[snapshot_id].append(then)
        else:
            self._waiting[snapshot_id] = [then]
            self._background.run(
                lambda: log.check_snapshot(snapshot_id, step=self._step),
                lambda _, error: self._checked(snapshot_id, error),
            )

    def _checked(self, snapshot_id: OffsetAndEpoch, error: BaseException | None) -> None:
        waiting = self._waiting.pop(snapshot_id)
        if isinstance(error, ClosedError):
            return
        if isinstance(error, CorruptBatchError):
            self.note_damaged(snapshot_id, str(error))
        else:
            # Any other error is raised where the file is opened: it was deleted meanwhile, or may not be read.
            self._sound.add(snapshot_id)
        errors: list[Exception] = []
        for then in waiting:
            try:
                then()
            except Exception as raised:  # noqa: BLE001 - the others wait, too
                errors.append(raised)
        if errors:
            raise errors[0]


class Unchecked:
    """Counts every snapshot as whole: for logs without a replica around them."""

    def is_sound(self, snapshot_id: OffsetAndEpoch) -> bool:
        """No snapshot is known to be whole, since none is read."""
        return False

    def is_damaged(self, snapshot_id: OffsetAndEpoch) -> bool:
        """No snapshot is known to be damaged, since none is read."""
        return False

    def note_sound(self, snapshot_id: OffsetAndEpoch) -> None:
        """Not needed."""

    def doubt(self, snapshot_id: OffsetAndEpoch) -> None:
        """Not heeded."""

    def when_checked(self, snapshot_id: OffsetAndEpoch, then: Callable[[], Any]) -> None:
        """Call `then` at once."""
        then()
