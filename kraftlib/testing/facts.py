"""The facts of a run: every batch ever written, the committed records, all leaders and all votes.

Each batch that any log ever held is one `LogEntry`, linked to the batch before it. Two logs that hold the same entry at
one place therefore agree on everything before it, and comparing prefixes is comparing two references.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import attrs

from kraftlib.consensus.voters import VoterSet
from kraftlib.records.batch import Batch
from kraftlib.records.control import decode_control_batch
from kraftlib.records.control_messages import VotersRecord
from kraftlib.types import ElectionState, Epoch, Offset, ReplicaKey


@attrs.define(eq=False)
class LogEntry:
    """One batch at its place, and through `parent` everything before it."""

    base_offset: Offset
    end_offset: Offset
    epoch: Epoch
    batch: Batch
    parent: LogEntry | None
    voters: tuple[ReplicaKey, ...] | None
    """The voter set in force from this batch on, if the log has named one."""
    first_writer: int
    """Id of the node that wrote it first."""
    writers: int = 1
    """Number of times that a log appended it."""

    def __str__(self) -> str:
        return f"[{self.base_offset}, {self.end_offset}) of epoch {self.epoch}"


class Chain:
    """The entries of one log, in order."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self._bases: list[Offset] = []

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def tail(self) -> LogEntry | None:
        """The last entry; None if there is none."""
        return self.entries[-1] if self.entries else None

    @property
    def end_offset(self) -> Offset:
        """One past the last record; 0 if there is none."""
        return self.entries[-1].end_offset if self.entries else 0

    def append(self, entry: LogEntry) -> None:
        """Add an entry at the end."""
        self.entries.append(entry)
        self._bases.append(entry.base_offset)

    def covering(self, offset: Offset) -> LogEntry | None:
        """Return the entry that holds `offset`; None if it lies before or beyond this log."""
        place = bisect_right(self._bases, offset) - 1
        if place < 0 or self.entries[place].end_offset <= offset:
            return None
        return self.entries[place]

    def between(self, start_offset: Offset, end_offset: Offset) -> Sequence[LogEntry]:
        """Return the entries that begin in this range."""
        first = bisect_right(self._bases, start_offset - 1)
        return self.entries[first : bisect_right(self._bases, end_offset - 1)]

    def truncate(self, end_offset: Offset) -> list[LogEntry]:
        """Drop the entries that reach beyond `end_offset`; return them."""
        keep = len(self.entries)
        while keep and self.entries[keep - 1].end_offset > end_offset:
            keep -= 1
        dropped = self.entries[keep:]
        del self.entries[keep:], self._bases[keep:]
        return dropped

    def begin_at(self, entry: LogEntry | None) -> None:
        """Begin anew behind `entry`, the last one that a snapshot covers. It stays, as the end of the known log."""
        self.entries = [] if entry is None else [entry]
        self._bases = [] if entry is None else [entry.base_offset]


class Facts:
    """Everything that is true of the run so far, whether a replica knows it or not."""

    def __init__(self) -> None:
        self.entries: dict[tuple[Offset, Epoch], LogEntry] = {}
        self.committed = Chain()
        self.committed_in: dict[Epoch, LogEntry] = {}
        """The last entry that was committed in an epoch: a leader commits by an entry of its own epoch."""
        self.committed_under: tuple[ReplicaKey, ...] = ()
        """The voters whose majority committed the latest of it: those of its leader's log, committed or not (M8)."""
        self.leaders: dict[Epoch, ReplicaKey] = {}
        self.votes: dict[tuple[ReplicaKey, Epoch], ReplicaKey] = {}
        self.spoken_epochs: dict[ReplicaKey, Epoch] = {}
        """The greatest epoch in which a replica, by its disk, ever sent anything."""

    @property
    def committed_end(self) -> Offset:
        """One past the last record that some leader knew to be committed."""
        return self.committed.end_offset

    @property
    def latest_epoch(self) -> Epoch:
        """The greatest epoch that ever had a leader; -1 while none has."""
        return max(self.leaders, default=-1)

    def entry_of(self, batch: Batch, parent: LogEntry | None, node: int) -> tuple[LogEntry, bool]:
        """Return the entry of a batch that a log takes behind `parent`, and whether it is the first to take it."""
        key = (batch.base_offset, batch.epoch)
        known = self.entries.get(key)
        if known is not None:
            known.writers += 1
            return known, False
        voters = named_voters(batch) if batch.is_control else None
        if voters is None and parent is not None:
            voters = parent.voters
        entry = LogEntry(batch.base_offset, batch.end_offset, batch.epoch, batch, parent, voters, node)
        self.entries[key] = entry
        return entry, True

    def commit(self, tail: LogEntry) -> LogEntry | None:
        """Take everything up to `tail` for committed; return an entry that contradicts what was committed before."""
        fresh: list[LogEntry] = []
        entry: LogEntry | None = tail
        end = self.committed_end
        while entry is not None and entry.base_offset >= end:
            fresh.append(entry)
            entry = entry.parent
        if entry is not self.committed.tail:
            return entry or fresh[-1]
        for entry in reversed(fresh):
            self.committed.append(entry)
        self.committed_in[tail.epoch] = tail
        return None

    def committed_before(self, epoch: Epoch) -> LogEntry | None:
        """Return the last entry that was committed in an epoch before this one; None if nothing was."""
        earlier = [tail for committed_in, tail in self.committed_in.items() if committed_in < epoch]
        return max(earlier, key=lambda tail: tail.end_offset, default=None)

    def forget_votes(self, voter: ReplicaKey, kept: ElectionState) -> None:
        """Let a voter have cast no vote since its disk held `kept`."""
        self.votes = {
            (key, epoch): candidate
            for (key, epoch), candidate in self.votes.items()
            if key != voter or epoch < kept.epoch or (epoch == kept.epoch and kept.voted_key is not None)
        }

    def was_committed(self, entry: LogEntry, epoch: Epoch) -> bool:
        """Whether that entry was committed in an epoch up to this one.

        An earlier leader that has not heard of later epochs may lack their committed records; and a copy in an earlier
        epoch counts for nothing.
        """
        tail = self.committed_before(epoch + 1)
        known = tail is not None and entry.base_offset < tail.end_offset
        return known and self.committed.covering(entry.base_offset) is entry


def named_voters(batch: Batch) -> tuple[ReplicaKey, ...] | None:
    """Return the voters that a control batch names; None if it names none."""
    found = None
    for _, record in decode_control_batch(batch):
        if isinstance(record, VotersRecord):
            found = tuple(voter.key for voter in VoterSet.from_record(record))
    return found
