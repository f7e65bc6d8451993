"""The data of each role, as the rules of elections know them (KIP-595, KIP-996).

Where chance decides a time, it is a `Span`, from the first to the last moment that is possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kraftlib.consensus.roles import Role
from kraftlib.consensus.voters import VoterSet
from kraftlib.types import Endpoint, Offset, ReplicaId, ReplicaKey

Endpoints = Mapping[str, Endpoint]

LONGEST_PAUSE_MS = 500
HALVINGS_MAX = 6


def same_replica(voter: ReplicaKey, key: ReplicaKey) -> bool:
    """Whether `key` is this voter: an id alone stands for any disk (KIP-853)."""
    return voter.id == key.id and voter.directory_id in (None, key.directory_id)


def majority_of(voters: VoterSet) -> int:
    """The least number of voters that is more than half of them."""
    return len(voters.voters) // 2 + 1


@attrs.define
class Span:
    """A time that is not before `low` and not after `high`."""

    low: int
    high: int

    def no_earlier(self, other: Span) -> None:
        """Let it be the later one of both."""
        self.low, self.high = max(self.low, other.low), max(self.high, other.high)


@attrs.define(kw_only=True)
class Unattached:
    """Knows of no leader to fetch from."""

    role = Role.UNATTACHED
    leader_id: ReplicaId | None = None
    voted: ReplicaKey | None = None
    timer: Span | None = None


@attrs.define(kw_only=True)
class Asking:
    """Prospective, or a candidate: asks the voters of its beginning."""

    role: Role
    timer: Span
    electors: VoterSet
    granted: set[ReplicaId]
    rejected: set[ReplicaId] = attrs.field(factory=set)
    leader_id: ReplicaId | None = None
    endpoints: Endpoints = attrs.field(factory=dict)
    voted: ReplicaKey | None = None
    leader_refused: bool | None = False
    """None: not known."""
    lost_before: Span = attrs.field(factory=lambda: Span(0, 0))
    left_ms: int | None = None
    gave_way_ms: int | None = None
    round_trip_ms: int = 0

    @property
    def won(self) -> bool:
        """Whether a majority has granted."""
        return len(self.granted) >= majority_of(self.electors)

    @property
    def lost(self) -> bool:
        """Whether a majority is out of reach."""
        return len(self.electors.voters) - len(self.rejected) < majority_of(self.electors)


@attrs.define(kw_only=True)
class Following:
    """Fetches from a leader."""

    role = Role.FOLLOWER
    leader_id: ReplicaId
    endpoints: Endpoints
    timer: Span
    voted: ReplicaKey | None = None
    has_fetched: bool | None = False
    """None: not known."""
    said_good_bye: bool = False
    is_successor: bool = False
    lost_connection: bool | None = False
    refused: bool | None = False
    lost_before: Span = attrs.field(factory=lambda: Span(0, 0))


@attrs.define(kw_only=True)
class Known:
    """A leader's knowledge of another replica."""

    key: ReplicaKey
    end_offset: Offset = -1
    fetched_ms: int | None = None
    moved_ms: int = 0
    has_space: bool = True


@attrs.define(kw_only=True)
class Leading:
    """Leads its epoch."""

    role = Role.LEADER
    elected_ms: int
    granting: frozenset[ReplicaId]
    voters: dict[ReplicaId, Known]
    others: dict[ReplicaKey, Known] = attrs.field(factory=dict)
    contacts: set[ReplicaId] = attrs.field(factory=set)
    quorum_until_ms: int
    begin_due_ms: int
    resign_requested: bool = False
    stalled_since_ms: int | None = None
    transfer: tuple[ReplicaId, int] | None = None
    """To whom, and until when."""
    priorities: dict[ReplicaId, tuple[int, int]] = attrs.field(factory=dict)
    """The priority of a voter as leader, and the time from which it counts."""


@attrs.define(kw_only=True)
class Resigned:
    """Led its epoch."""

    role = Role.RESIGNED
    timer: Span
    unacknowledged: set[ReplicaId]
    preferred: tuple[ReplicaKey, ...] = ()
    told_again: set[ReplicaId] = attrs.field(factory=set)
    """Voters that were told again at once when their connection broke, which happens once only."""


Part = Unattached | Asking | Following | Leading | Resigned


@attrs.define
class Sent:
    """A request that waits for its answer."""

    destination: int
    request: Any
    at_ms: int
    question: tuple[Any, ...] | None = None
    """Of a Fetch to the leader: the contents that must still hold when its answer comes."""


@attrs.define
class Forgotten:
    """The parts of a lost election that are known again."""

    reported: set[ReplicaId] = attrs.field(factory=set)
    reached_epoch: int = -1
