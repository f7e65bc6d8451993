"""Where one listener stands: the offset up to which it was given records, the reader that it holds, and whether it was
stopped."""

from __future__ import annotations

from kraftlib.errors import ReplicaFailedError
from kraftlib.frozen import define
from kraftlib.runtime.committed import BatchReader, LoadedSnapshot
from kraftlib.runtime.listener import Listener
from kraftlib.types import LeaderAndEpoch, Offset, OffsetAndEpoch


@define(eq=False)
class Feed:
    """Where one listener stands."""

    listener: Listener
    is_machine: bool = False
    """Whether it is the state machine."""
    next_offset: Offset | None = None
    """First offset that it has not been given, or still holds the reader of; None before its first call."""
    told: LeaderAndEpoch | None = None
    """The last leader that the listener was told."""
    reader: BatchReader | LoadedSnapshot | None = None
    """The reader that it still holds."""
    failed_to_load: OffsetAndEpoch | None = None
    """The snapshot that it could not read to its end; once more, and the fault is its own."""
    is_half_loaded: bool = False
    """It has taken a part of that snapshot."""
    is_stopped: bool = False
    """It has raised, and gets no further calls."""
    must_reload: bool = False
    """Its state is to be replaced by a snapshot."""
    heals_with: OffsetAndEpoch | None = None
    """It was quarantined, and only this snapshot is known to be good."""
    failure: ReplicaFailedError | None = None
    """The error for callers that want to wait for it."""

    @property
    def is_loading(self) -> bool:
        """Whether its state is being replaced by a snapshot: the state shown meanwhile is neither the old one nor the
        new one."""
        return isinstance(self.reader, LoadedSnapshot) or self.failed_to_load is not None

    def is_news(self, leader: LeaderAndEpoch) -> bool:
        """Whether the listener must be told `leader`: a newer epoch, or the first leader in this one (as in Kafka)."""
        told = self.told
        return told is None or (leader.epoch, leader.leader_id is not None) > (told.epoch, told.leader_id is not None)
