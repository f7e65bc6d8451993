"""The roles of a replica, what each of them owns, and the table of allowed changes.

A role owns its data, and entering a role makes a new object: no reset can be forgotten. Voter and observer are no roles
but follow from the voter set (KIP-853, Reference explanation).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import attrs

from kraftlib.consensus.voters import Tally, Voter, VoterSet
from kraftlib.frozen import define, immutable
from kraftlib.types import Endpoint, Epoch, Offset, OffsetAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftlib.wire.messages.update_features import UpdateFeaturesRequest


class Role(enum.Enum):
    """The part that a replica plays in its epoch."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"

    def __str__(self) -> str:
        return self.value


# KIP-595 with the Prospective role of KIP-996. An observer that never led moves between UNATTACHED and FOLLOWER only.
NEXT_ROLES: Final[Mapping[Role, frozenset[Role]]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER, Role.LEADER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),  # a sole voter starts anew
}

ChangeRequest = AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateFeaturesRequest
"""Requests that change the voter set."""

Endpoints = Mapping[str, Endpoint]
"""Where a replica is reached, by upper-case listener name."""


@define(kw_only=True)
class Unattached:
    """Knows of no leader that it could fetch from."""

    role = Role.UNATTACHED
    leader_id: ReplicaId | None = None
    """The leader of the epoch, if known by id while its endpoints are not."""
    voted_key: ReplicaKey | None = None
    election_deadline_ms: int | None = None
    """None for an observer, which never stands."""


@define(kw_only=True)
class Prospective:
    """Asks whether it would be elected, without disturbing a leader (pre-vote, KIP-996)."""

    role = Role.PROSPECTIVE
    leader_id: ReplicaId | None = None
    leader_endpoints: Endpoints = attrs.field(factory=dict)
    """The leader that it has lost; it goes back to it if the pre-vote is lost."""
    leader_refused: bool = False
    """The leader was given up because it refused a connection: it is told dead again as soon as it does so again."""
    pre_votes_lost: int = 0
    """As for a follower."""
    left_ms: int | None = None
    """When the leader said good-bye and named us first: a voter that refuses us has not heard that yet."""
    voted_key: ReplicaKey | None = None
    election_deadline_ms: int
    gave_way_ms: int | None = None
    """When it granted a pre-vote to another voter that would win as well and stands first; None while there is none."""
    round_trip_ms: int = 0
    """The time that the slowest voter took to grant our pre-vote."""
    tally: Tally


@define(kw_only=True)
class Candidate:
    """Stands for an epoch of its own, having voted for itself."""

    role = Role.CANDIDATE
    election_deadline_ms: int
    tally: Tally


@define(kw_only=True)
class Progress:
    """The progress of one replica, as its Fetches tell (KIP-595, DescribeQuorum; KIP-836)."""

    key: ReplicaKey
    end_offset: Offset = -1
    """Fetch offset of the latest valid Fetch: everything below is flushed there. -1: none yet in this epoch."""
    last_fetch_ms: int | None = None
    moved_ms: int = 0
    """When it was last seen to get on: another fetch offset, all that we have, or a piece of a snapshot."""
    last_caught_up_ms: int | None = None
    leader_end_offset: Offset = 0
    """Our log end offset at its previous Fetch."""
    confirmed_round: int = 0
    """The newest round of reads in which it has said that it knows of no newer leader."""
    is_proven: bool = True
    """Whether its Fetches came from a peer that may speak as this replica. Fetches of other peers never count for a
    voter."""
    has_space: bool = True
    """Whether its disk has room for more records; a replica whose disk is full asks for one byte."""
    fetches_as: ReplicaKey | None = attrs.field(default=None, eq=False, repr=False)
    """The key in the last Fetch under its id, which may be that of another disk."""

    @property
    def heard_ms(self) -> int | None:
        """When it fetched last, be it a piece of a snapshot; None: not in this epoch."""
        return self.moved_ms or None if self.last_fetch_ms is None else max(self.last_fetch_ms, self.moved_ms)

    def fetched(self, offset: Offset, leader_end_offset: Offset, now_ms: int) -> None:
        """Take note of a valid Fetch at `offset`."""
        if offset != self.end_offset or offset >= leader_end_offset:
            self.moved_ms = now_ms
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 < self.leader_end_offset <= offset and self.last_fetch_ms is not None:
            self.last_caught_up_ms = max(self.last_caught_up_ms or 0, self.last_fetch_ms)
        self.leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms
        self.end_offset = offset


@define(kw_only=True)
class ParkedFetch:
    """A Fetch that the leader had nothing to answer with, kept until it has, or until its time is up."""

    request_id: int
    request: FetchRequest
    version: int
    fetch_offset: Offset
    high_watermark: Offset
    """The high watermark that its sender knows; at most ours, -1 for none."""
    deadline_ms: int
    fetcher: ReplicaKey | None
    """None where it does not say."""


@define(kw_only=True)
class WaitingObservers:
    """The Fetches of observers that are told in rounds (`observer_rounds`), who has waited longest first."""

    fetches: dict[int, ParkedFetch] = attrs.field(factory=dict)
    deadline_ms: int | None = None
    """Their earliest deadline, or earlier."""
    round_due_ms: int | None = None
    """When some of them are told what is new; None while nothing is."""
    rest_until_ms: int = 0
    """No round is due before."""

    def is_due(self, now_ms: int) -> bool:
        """Whether some of them are told something now, be it that their time is up."""
        deadline_ms, round_due_ms = self.deadline_ms, self.round_due_ms
        return (deadline_ms is not None and now_ms >= deadline_ms) or (
            round_due_ms is not None and now_ms >= round_due_ms
        )

    def add(self, parked: ParkedFetch) -> None:
        """Let one more Fetch wait."""
        self.fetches[parked.request_id] = parked
        self.deadline_ms = min(self.deadline_ms or parked.deadline_ms, parked.deadline_ms)

    def ask_for_round(self, due_ms: int) -> None:
        """There is news for them: a round is due then, if none is before."""
        due_ms = max(due_ms, self.rest_until_ms)
        self.round_due_ms = min(self.round_due_ms or due_ms, due_ms)


@define(kw_only=True)
class VoterChange:
    """The one Add or Remove of a voter that is under way (KIP-853)."""

    request_id: int | None
    """None once it is answered: the record may still be uncommitted."""
    request: ChangeRequest
    voter_id: ReplicaId
    deadline_ms: int
    wanted: VoterSet | None = None
    """The voter set that was submitted; None while the new voter is asked for its versions, or another is to lead."""
    offset: Offset | None = None
    """Of its Voters record, once that is appended."""


@define(kw_only=True)
class Transfer:
    """Leadership is to go to this voter, as soon as it has everything."""

    target_id: ReplicaId
    deadline_ms: int


@define(kw_only=True)
class PreferredVoter:
    """A voter that is wanted as leader, as it has said itself."""

    priority: int
    due_ms: int
    """Not before, leadership is handed to it."""


@immutable(kw_only=True)
class ReadRound:
    """Voters are asked whether this replica still leads; if so, `offset` was committed when the round began."""

    number: int
    offset: Offset


Presented = tuple[FetchResponse.LeaderIdAndEpoch, tuple[FetchResponse.NodeEndpoint, ...]]
"""The leader and its endpoints, as an answer to a Fetch names them."""


@define(kw_only=True)
class Leader:
    """Writes, and counts what the others have."""

    role = Role.LEADER
    elected_ms: int
    epoch_start_offset: Offset
    """Of the LeaderChange record. The high watermark is unknown until a majority has more (Raft, figure 8)."""
    progress: dict[ReplicaId, Progress]
    """By id: the voters, this replica left out."""
    observers: dict[ReplicaKey, Progress] = attrs.field(factory=dict)
    parked: dict[int, ParkedFetch] = attrs.field(factory=dict)
    parked_deadline_ms: int | None = None
    """Earliest deadline of the parked Fetches."""
    waiting: WaitingObservers = attrs.field(factory=WaitingObservers)
    fetched_voters: set[ReplicaId] = attrs.field(factory=set)
    """Voters heard of since `check_quorum_deadline_ms` was set."""
    check_quorum_deadline_ms: int
    begin_epoch_due_ms: int
    stalled_since_ms: int | None = None
    """Since when something waits to be committed without anything being (see `deadlines`)."""
    resign_requested: bool = False
    transfer: Transfer | None = None
    """Records that are appended meanwhile wait, so that the target can catch up."""
    change: VoterChange | None = None
    control_waits: bool = False
    """Control records wait to be appended, perhaps for long: behind a flush, or a transfer of the leadership. Until
    then the log does not have the next voters, and they may not be changed again."""
    preferred_voters: dict[ReplicaId, PreferredVoter] = attrs.field(factory=dict)
    """Voters with an election priority."""
    read_rounds: int = 0
    """The number of rounds of reads that have begun."""
    read_round: ReadRound | None = None
    reported: dict[ReplicaId, Voter] = attrs.field(factory=dict)
    """The voters of a static quorum, as they describe themselves (UpdateRaftVoter with kraft.version 0)."""
    presented: dict[bool, Presented] = attrs.field(factory=dict, eq=False, repr=False)
    """How each answer to a Fetch names this leader, and where it is reached, by whether its version has a place for
    that. It is the same in all of them, and made once."""


@define(kw_only=True)
class Download:
    """A snapshot on its way from the leader. The received bytes outlive the leader, and this replica's process.

    All bytes are of one file, since snapshots of one id differ between replicas. An epoch has one leader, and ends
    with its process. So the bytes go on as they are in the epoch in which they came; in any other one, and after a
    restart of ours, only once the leader has proved to have the same bytes so far, and as many in all.
    """

    snapshot_id: OffsetAndEpoch
    source_epoch: Epoch | None
    """The epoch in which the source has sent, or proved, these bytes; None after a restart, or of a lost upstream."""
    source: int | None = None
    """The upstream that sends it (`extensions.upstreams`); None: the leader."""
    position: int = 0
    size: int | None = None
    unproven: bool = False
    """The first `position` bytes of the leader are still to be compared with ours."""
    digest: bytes | None = None
    """SHA-256 of our first `position` bytes, while they are being compared."""
    refusals: int = 0
    """The number of responses in a row that said only that something is wrong."""
    not_before_ms: int = 0
    """When the next bytes may be asked for, where there is a limit to their rate."""
    fills: bool = False
    """It is to stand in for the missing records of our log, which goes on behind it."""
    heals: bool = False
    """It is to replace a wrong state (`extensions.state_digests`): nothing need be missing in our log."""


class Heard(enum.Enum):
    """The latest sign of its leader that a follower has."""

    NOTHING = "nothing"
    """No Fetch has succeeded, or none since the leader was taken for dead."""
    ANSWER = "answer"
    """A Fetch has succeeded: the follower refuses pre-votes (KIP-996)."""
    GOOD_BYE = "good-bye"
    """The leader leaves. An answer from before the good-bye that comes after it is no sign of life."""
    GOOD_BYE_TO_US = "good-bye to us"
    """The leader leaves, and has named us first among those who should stand."""


class Link(enum.Enum):
    """The connection to the leader, as far as its losses tell."""

    WHOLE = "whole"
    BROKEN = "broken"
    """It broke; a refused new one makes it a dead leader."""
    REFUSED = "refused"
    """A new one was refused, too: the leader is taken for dead."""


@define(kw_only=True)
class Follower:
    """Fetches from the leader of its epoch."""

    role = Role.FOLLOWER
    leader_id: ReplicaId
    leader_endpoints: Endpoints
    voted_key: ReplicaKey | None = None
    fetch_deadline_ms: int
    heard: Heard = Heard.NOTHING
    link: Link = Link.WHOLE
    update_due_ms: int
    updated_voter: bool = False
    """Whether this leader knows our endpoints and versions (UpdateRaftVoter)."""
    predecessor_fetched_ms: int | None = None
    """When the voter with our id and another disk fetched last, as this leader has said (see `joining`)."""
    predecessor_silence: int = 0
    """The number of times in a row that the leader has said the same of it again."""
    told_priority: bool = False
    """The leader knows our election priority, or is none that could."""
    pre_votes_lost: int = 0
    """The number of times in a row that the others have kept this leader, without a response of its own in between."""
    download: Download | None = None
    writing_chunk: bool = False

    @property
    def has_fetched(self) -> bool:
        """Whether a Fetch from this leader has succeeded, and nothing says that it leads no more."""
        return self.heard is Heard.ANSWER

    @property
    def is_left(self) -> bool:
        """Whether the leader has told us that it leaves."""
        return self.heard in (Heard.GOOD_BYE, Heard.GOOD_BYE_TO_US)

    def doubt_leader(self) -> None:
        """Keep the leader, but refuse no pre-vote for its sake."""
        if self.heard is Heard.ANSWER:
            self.heard = Heard.NOTHING


@define(kw_only=True)
class Resigned:
    """Led this epoch and does so no more; tells the voters, and may neither vote nor lead again in it."""

    role = Role.RESIGNED
    election_deadline_ms: int
    unacknowledged: set[ReplicaId]
    preferred: tuple[ReplicaKey, ...] = ()
    told_again: set[ReplicaId] = attrs.field(factory=set)
    """Voters that were told once more at once, since the connection to them broke."""


RoleState = Unattached | Prospective | Candidate | Leader | Follower | Resigned
