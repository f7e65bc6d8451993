"""The repair of a log that has lost records: its requests, its writes, its refusals.

| id | rule |
|---|---|
| RF40 | a repair begins with a valid answer at the end of the log, and again in another epoch |
| RF41 | the batches are written that continue what is before the hole, and none that reaches behind what is missing |
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import events as ev
from kraftlib.consensus.state import ReplicaState
from kraftlib.records.batch import Batch
from kraftlib.testing.judge import BrokenRuleError
from kraftlib.types import Epoch, Offset, OffsetAndEpoch
from tools.rules.positions import epoch_before


@attrs.define
class Filled:
    """The part of the first hole that is filled, beside the log."""

    epoch: Epoch
    """Of the leader that the repair has begun with."""
    next_offset: Offset
    last_epoch: Epoch
    is_writing: bool = False

    @property
    def position(self) -> OffsetAndEpoch:
        """The position that the next Fetch asks for."""
        return OffsetAndEpoch(offset=self.next_offset, epoch=self.last_epoch)


class Repair:
    """The repair of one replica's log, in one life."""

    def __init__(self) -> None:
        self._filled: Filled | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is filled now."""
        return self._filled is None

    def now(self, epoch: Epoch) -> Filled | None:
        """Return how far it is; None where it is still to be asked whether the leader has everything."""
        filled = self._filled
        if filled is not None and not filled.is_writing and filled.epoch != epoch:
            self._filled = filled = None
        return filled

    def hear(self, state: ReplicaState, event: ev.Event) -> None:
        """Take note of what the disk has done, before the core does."""
        filled = self._filled
        if filled is None:
            return
        match event:
            case ev.RepairWritten():
                filled.is_writing = False
                filled.next_offset, filled.last_epoch = event.end_offset, event.epoch
            case ev.StorageFailed() if not event.holes and event.begins_at is None:
                return
            case ev.SnapshotLost() if event.holes == tuple(state.log.holes):
                return
            case (
                ev.StorageFailed()
                | ev.SnapshotLost()
                | ev.RepairRefused()
                | ev.Repaired()
                | ev.SnapshotAdopted()
                | ev.SnapshotInstalled()
            ):
                self._filled = None

    def begin(self, state: ReplicaState) -> None:
        """The leader has everything that this replica ever had: its holes are filled from the first one on."""
        start = state.log.holes[0].start_offset
        self._filled = Filled(state.epoch, start, epoch_before(state.log, start))

    def usable(self, state: ReplicaState, batches: Sequence[Batch]) -> list[Batch]:
        """Return what is to be written of batches that continue what is there."""
        hole = state.log.holes[0]
        reaches_end = len(state.log.holes) == 1 and hole.end_offset == state.log.end_offset
        usable = [batch for batch in batches if reaches_end or batch.end_offset <= hole.end_offset]
        if not usable:
            self._filled = None
        return usable

    def follow(self, state: ReplicaState, actions: Sequence[act.Action]) -> None:
        """Take note of what the core has asked for; compare."""
        if self._filled is None and state.filling is None:
            return
        for action in actions:
            if type(action) is act.WriteRepair and self._filled is not None:
                self._filled.is_writing = True
            elif type(action) is act.TruncateLog:
                self._filled = None
        theirs = state.filling
        if self._filled is None and theirs is None:
            return
        if not state.log.holes:
            self._filled = None
        ours = self.now(state.epoch)
        is_stale = theirs is not None and not theirs.is_writing and theirs.epoch != state.epoch
        known = None
        if theirs is not None and not is_stale:
            known = Filled(theirs.epoch, theirs.next_offset, theirs.last_epoch, theirs.is_writing)
        if ours != known:
            raise BrokenRuleError("RF40", f"the repair of {state.log.holes} is at {known}, must be at {ours}")

    def begins_later(self, state: ReplicaState, actions: Sequence[act.Action], holes: Sequence[object]) -> None:
        """A snapshot of our own stands in for what was missing: the repair begins anew."""
        if self._filled is None:
            return
        if any(type(action) is act.DeleteBefore for action in actions) and list(holes) != state.log.holes:
            self._filled = None
