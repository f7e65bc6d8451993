"""Arithmetic of majorities: pure functions and one tally, which know nothing of roles."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import ensure
from kraftlib.types import Offset, ReplicaId


def majority_offset(end_offsets: Iterable[Offset]) -> Offset:
    """Return the highest offset that a majority of voters has reached.

    `end_offsets` holds each voter's flushed log end offset, the leader's own included; -1 where it is not known.

    Source: KIP-595, "Fetch": fetch offsets advance the leader's high watermark.
    Raises: InvariantError, if there are no voters and hence no majority.
    """
    ordered = sorted(end_offsets, reverse=True)
    ensure(ordered, "a quorum has at least one voter")
    # In descending order, n // 2 + 1 voters are at or above the element at n // 2: a majority, be n odd or even.
    return ordered[len(ordered) // 2]


@attrs.define
class Tally:
    """Votes of one election. Its voters are those at its start; each counts once, whatever is sent twice."""

    voters: VoterSet
    granted: set[ReplicaId] = attrs.field(factory=set)
    rejected: set[ReplicaId] = attrs.field(factory=set)

    def record(self, voter_id: ReplicaId, granted: bool) -> None:
        """Count the answer of a voter; its last one counts, and that of anybody else does not."""
        if self.voters.get(voter_id) is None:
            return
        (self.granted if granted else self.rejected).add(voter_id)
        (self.rejected if granted else self.granted).discard(voter_id)

    @property
    def won(self) -> bool:
        """Whether a majority has granted."""
        return len(self.granted) >= self.voters.majority

    @property
    def lost(self) -> bool:
        """Whether a majority can no longer be reached."""
        return len(self.voters) - len(self.rejected) < self.voters.majority

    def unanswered(self) -> list[ReplicaId]:
        """Ids of the voters whose answer is still missing."""
        return [
            voter_id for voter_id in self.voters.ids if voter_id not in self.granted and voter_id not in self.rejected
        ]
