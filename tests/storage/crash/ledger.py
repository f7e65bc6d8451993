"""What a replica was told by its disk, and so what a crash must leave: marks in a trace, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from kraftlib.records.batch import Batch
from kraftlib.types import ElectionState, Offset, OffsetAndEpoch


@attrs.frozen
class Appending:
    """These are about to be appended: from here on they may be found."""

    batches: Sequence[Batch]


@attrs.frozen
class Flushed:
    """Everything below was said to be durable."""

    end_offset: Offset


@attrs.frozen
class Truncating:
    """Everything from here on is about to be dropped."""

    end_offset: Offset


@attrs.frozen
class Truncated:
    """The log was said to end here, durably."""

    end_offset: Offset


@attrs.frozen
class Writing:
    """A snapshot of these bytes is about to be written."""

    snapshot_id: OffsetAndEpoch
    data: bytes


@attrs.frozen
class Frozen:
    """That snapshot was said to be there."""

    snapshot_id: OffsetAndEpoch


@attrs.frozen
class Installing:
    """The log is about to begin anew behind this snapshot."""

    snapshot_id: OffsetAndEpoch


@attrs.frozen
class Installed:
    """It was said to have done so, durably."""

    snapshot_id: OffsetAndEpoch


@attrs.frozen
class Deleting:
    """Everything that this snapshot replaces is about to be forgotten."""

    snapshot_id: OffsetAndEpoch


@attrs.frozen
class Voting:
    """This election state is about to be written."""

    election: ElectionState


@attrs.frozen
class Voted:
    """It was said to be durable."""

    election: ElectionState


@attrs.frozen
class Recovered:
    """A new process found this, and will tell others so."""

    start_offset: Offset
    end_offset: Offset
    election: ElectionState


@attrs.frozen
class Exact:
    """Whether, from here on, each flush has made durable how far it came before it was acknowledged."""

    is_exact: bool


@attrs.define
class Ledger:
    """What may be found, and what must be."""

    chain: list[Batch] = attrs.Factory(list)
    """What was ever appended and not dropped since."""
    floor: Offset = 0
    """The log must not end below this."""
    unflushed_from: Offset = 0
    """From here on nothing that stands in the files was ever said to be durable."""
    start_max: Offset = 0
    """The log must not begin beyond this, unless a snapshot beyond its end takes its place."""
    is_exact: bool = False
    """Whether nothing that a power cut leaves may look like damage."""
    written: dict[OffsetAndEpoch, bytes] = attrs.Factory(dict)
    needed: set[OffsetAndEpoch] = attrs.Factory(set)
    elections: list[ElectionState] = attrs.Factory(lambda: [ElectionState()])
    """Those of which one must be found."""

    @classmethod
    def of(cls, marks: Iterable[object]) -> Ledger:
        """Return what follows from these marks."""
        ledger = cls()
        for mark in marks:
            ledger._take(mark)
        return ledger

    def _take(self, mark: object) -> None:
        match mark:
            case Appending(batches):
                self.chain += batches
            case Flushed(end_offset):
                self.floor = self.unflushed_from = max(self.floor, end_offset)
            case Truncating(end_offset):
                self.floor = min(self.floor, end_offset)
            case Truncated(end_offset):
                self.chain = [batch for batch in self.chain if batch.last_offset < end_offset]
                self.unflushed_from = end_offset
            case Writing(snapshot_id, data):
                self.written[snapshot_id] = data
            case Frozen(snapshot_id):
                self.needed.add(snapshot_id)
            case Installing(snapshot_id):
                self._need_no_older_than(snapshot_id)
            case Installed(snapshot_id):
                self.chain = []
                self.start_max = self.floor = self.unflushed_from = snapshot_id.offset
            case Deleting(snapshot_id):
                self.start_max = max(self.start_max, snapshot_id.offset)
                self._need_no_older_than(snapshot_id)
            case Exact(is_exact):
                self.is_exact = is_exact
            case Voting(election):
                self.elections = [self.elections[-1], election]
            case Voted(election):
                self.elections = [election]
            case Recovered(start_offset, end_offset, election):
                self.chain = [batch for batch in self.chain if batch.last_offset < end_offset]
                if self.end_max < end_offset:  # a snapshot took its place
                    self.chain = []
                self.start_max = max(self.start_max, start_offset)
                self.floor = self.unflushed_from = end_offset
                self.elections = [election]
                self.needed = {needed for needed in self.needed if needed.offset >= start_offset}
            case _:
                raise AssertionError(f"what does {mark!r} mean?")

    def _need_no_older_than(self, snapshot_id: OffsetAndEpoch) -> None:
        self.needed = {needed for needed in self.needed if needed >= snapshot_id}

    @property
    def end_max(self) -> Offset:
        """The log must not end beyond this."""
        return max([self.floor, *(batch.last_offset + 1 for batch in self.chain)])
