"""Capabilities of a log that is plugged in, beyond `ReplicatedLog`: asked here and nowhere else.

Every capability is a protocol of its own and optional. A part of the runtime asks once, when it is made, and has either
the log as that protocol or None; so what a lesser log cannot do is written beside what another one can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import attrs

from kraftlib.records.batch import Batch
from kraftlib.storage.damage.scrub import ScrubFinding
from kraftlib.storage.interface import (
    NotingLog,
    RemembersControls,
    RepairableLog,
    ReplicatedLog,
    RoomyLog,
    SnapshotCheckingLog,
    SparingLog,
)
from kraftlib.types import OffsetRange


@runtime_checkable
class ScrubbedLog(Protocol):
    """A log that can be read for no other reason than to see whether it still can."""

    def scrub(self, step: Callable[[], None]) -> Iterator[int | ScrubFinding]:
        """Read everything; yield how many bytes were read, and each thing that is wrong."""
        ...


@runtime_checkable
class DoubtfulLog(Protocol):
    """A log that knows when it cannot tell what it has acknowledged."""

    @property
    def is_doubtful(self) -> bool:
        """Whether records may be missing that were durable once, at an end that nobody knows."""
        ...


@attrs.frozen
class Capabilities:
    """The log as each of the optional protocols; None where it does not keep that one."""

    controls: RemembersControls | None
    """Knows its control batches without being read."""
    space: RoomyLog | None
    """Knows when its disk is nearly full."""
    note: NotingLog | None
    """Can sync with every flush how far it came."""
    spare: SparingLog | None
    """Has something to prepare for later."""
    repair: RepairableLog | None
    """Goes on though some of it is damaged, and takes what the others have of it."""
    checks: SnapshotCheckingLog | None
    """Finds damaged snapshots, and goes on without them."""
    scrub: ScrubbedLog | None
    """Can be read through, to see whether it still can."""
    is_doubtful: bool
    """Whether it cannot tell what it has acknowledged."""

    def holes(self) -> tuple[OffsetRange, ...]:
        """Return what is known to be missing, ascending. A log that cannot be repaired has no holes."""
        return () if self.repair is None else tuple(self.repair.holes())

    def control_batches(self) -> tuple[Batch, ...]:
        """Return the control batches; none of a log that would have to be read for them."""
        return () if self.controls is None else tuple(self.controls.control_batches())


def capabilities_of(log: ReplicatedLog) -> Capabilities:
    """Ask a log what it can do."""
    return Capabilities(
        controls=log if isinstance(log, RemembersControls) else None,
        space=log if isinstance(log, RoomyLog) else None,
        note=log if isinstance(log, NotingLog) else None,
        spare=log if isinstance(log, SparingLog) else None,
        repair=log if isinstance(log, RepairableLog) else None,
        checks=log if isinstance(log, SnapshotCheckingLog) else None,
        scrub=log if isinstance(log, ScrubbedLog) else None,
        is_doubtful=isinstance(log, DoubtfulLog) and log.is_doubtful,
    )
