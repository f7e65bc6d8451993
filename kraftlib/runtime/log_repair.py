"""Damage and repair of the log as events for the core.

The log says what is missing and takes what a leader sends of it (`RepairableLog`); here that becomes events. All but
`is_known` and `is_needed` waits for the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, cast

from kraftlib.consensus import events as ev
from kraftlib.records.batch import Batch
from kraftlib.runtime.capabilities import capabilities_of
from kraftlib.storage.interface import RepairableLog, ReplicatedLog
from kraftlib.storage.reserve import NoSpaceError
from kraftlib.types import Offset


class _DamagedLog(ReplicatedLog, RepairableLog, Protocol):
    """A log that can be repaired."""


class LogRepair:
    """Looks at damage and writes what mends it."""

    def __init__(self, log: _DamagedLog) -> None:
        self._log: Final = log
        self._capabilities: Final = capabilities_of(log)

    def is_known(self, offset: Offset) -> bool:
        """Whether the record at `offset` is known to be missing."""
        return any(hole.start_offset <= offset < hole.end_offset for hole in self._log.holes())

    @property
    def is_needed(self) -> bool:
        """Whether something is known to be missing."""
        return bool(self._log.holes())

    def look(self, offset: Offset) -> ev.StorageFailed:
        """Have the log look where `offset` should be; it may find that a snapshot has it, and begin there."""
        log = self._log
        start_offset = log.start_offset
        holes = tuple(log.find_damage(offset))
        begins_at = None
        if log.start_offset != start_offset:
            begins_at = next(kept for kept in log.snapshots() if kept.offset == log.start_offset)
        return ev.StorageFailed(holes, begins_at)

    def write(self, batches: Sequence[Batch]) -> ev.RepairWritten | ev.RepairRefused | ev.Repaired:
        """Put batches into the first hole; say whether it is full now."""
        log = self._log
        try:
            is_filled = log.write_repair(batches)
        except NoSpaceError as error:
            return ev.RepairRefused(str(error))
        if not is_filled:
            return ev.RepairWritten(end_offset=batches[-1].end_offset, epoch=batches[-1].epoch)
        return ev.Repaired(
            holes=tuple(log.holes()),
            end_offset=log.end_offset,
            epoch_starts=tuple(log.epoch_starts()),
            control_batches=self._capabilities.control_batches(),
        )


def repair_of(log: ReplicatedLog) -> LogRepair | None:
    """Return how this log is repaired; None if it cannot be."""
    return None if capabilities_of(log).repair is None else LogRepair(cast(_DamagedLog, log))
