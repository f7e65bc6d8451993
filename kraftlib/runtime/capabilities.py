"""Capabilities of a log that is plugged in, beyond `ReplicatedLog`: asked here and nowhere else.

Every capability is a protocol of its own and optional. A part of the runtime asks once, when it is made, and has either
the log as that protocol or None; so the way without a capability is written beside the way with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from kraftlib.frozen import immutable
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
    """A log that can be scrubbed."""

    def scrub(self, step: Callable[[], None]) -> Iterator[int | ScrubFinding]:
        """Read everything; yield how many bytes were read, and each thing that is wrong."""
        ...


@runtime_checkable
class DoubtfulLog(Protocol):
    """A log that knows when its acknowledged end is unknown."""

    @property
    def is_doubtful(self) -> bool:
        """Whether durable records may be missing at an unknown end."""
        ...


@immutable
class Capabilities:
    """The log as each of the optional protocols; None where it does not keep that one."""

    controls: RemembersControls | None
    """Knows its control batches without being read."""
    space: RoomyLog | None
    """Knows when its disk is nearly full."""
    note: NotingLog | None
    """Can sync its note of the durable end with every flush."""
    spare: SparingLog | None
    """Has something to prepare for later."""
    repair: RepairableLog | None
    """Continues with damaged ranges, and takes the records of other replicas for them."""
    checks: SnapshotCheckingLog | None
    """Finds damaged snapshots, and continues without them."""
    scrub: ScrubbedLog | None
    """Can be scrubbed."""
    is_doubtful: bool
    """Whether its acknowledged end is unknown."""

    def holes(self) -> tuple[OffsetRange, ...]:
        """Return the known missing ranges, ascending. A log that cannot be repaired has no holes."""
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
