"""The memory of one replica, and the handful of questions that every conversation asks of it."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from kraftlib.config import PRIORITY_MAX, RaftConfig
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.outstanding import OutstandingRequests
from kraftlib.consensus.roles import (
    Candidate,
    Download,
    Endpoints,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    RoleState,
    Unattached,
    WaitingObservers,
)
from kraftlib.consensus.voters import VoterSet
from kraftlib.frozen import define, immutable
from kraftlib.types import (
    LAST_EPOCH_TO_STAND_IN,
    ElectionState,
    Endpoint,
    Epoch,
    LeaderAndEpoch,
    Offset,
    OffsetAndEpoch,
    ReplicaId,
    ReplicaKey,
)

logger = logging.getLogger("kraftlib.consensus")

FADING_MAX: Final = 6
"""The greatest number of times that the effect of a priority is halved, and the patience with a stalled quorum
doubled."""

LAST_RESORT_ROUNDS: Final = 2
"""The rounds of the others, each a fetch timeout and an election, for which a voter that cannot serve waits."""

OF_OUR_EPOCH: Final = (Leader, Resigned)
"""The roles in which a replica is the leader that its epoch has, or had."""

WARNINGS_MAX: Final = 200
"""The greatest number of refusals, of different reasons or peers, that are logged at WARNING in one life of a
replica."""


@define(kw_only=True)
class Read:
    """A pending read: of a caller of this replica, or of another replica (`remote`)."""

    request_id: int
    deadline_ms: int
    remote: bool = False
    asked: int = 0
    """The round, or question to the leader, that it is part of; 0: it waits for the next one."""


@define
class Amnesia:
    """The part of a lost election state that is known again (`kraftlib.consensus.repair`)."""

    reported: set[ReplicaId] = attrs.field(factory=set)
    """The other voters that have told their epoch, which was none above that of this replica then."""
    leader_epoch: Epoch = -1
    """The latest epoch in which the end of the log of a leader that knows its high watermark was reached."""


@immutable
class HandOver:
    """Leadership was handed to a voter that is to lead in our place."""

    at_ms: int
    count: int
    """The number of hand-overs in a row, each soon after the one before: it did not lead for long, or not at all."""


@define(kw_only=True)
class Filling:
    """The repair of the first hole of the log, as far as it is filled (`kraftlib.consensus.repair`)."""

    epoch: Epoch
    """Of the leader, which has everything that we had."""
    next_offset: Offset
    last_epoch: Epoch
    """Of the record before `next_offset`."""
    is_writing: bool = False


@immutable
class StateDigest:
    """A hash of the state of a state machine, and the version of the form in which it was written."""

    snapshot_version: int
    sha256: bytes

    def is_comparable(self, other: StateDigest) -> bool:
        """Whether equal states have equal hashes."""
        return self.snapshot_version == other.snapshot_version


@define(kw_only=True)
class Quarantine:
    """The state of this replica differs from that of a majority (`extensions.state_digests`)."""

    offset: Offset
    """The offset at which it was found to differ."""
    is_loading: bool = False
    """A snapshot that heals it is stored, and is being loaded."""


@define(kw_only=True)
class Digests:
    """The known digests of the states of this replica and of others (`extensions.state_digests`)."""

    own: dict[Offset, StateDigest] = attrs.field(factory=dict)
    replaced_at: Offset = 0
    """The end of the last snapshot of the leader that was stored: a digest from before it is of another state."""
    told: dict[ReplicaId, dict[Offset, StateDigest]] = attrs.field(factory=dict)
    """Those of other replicas, by replica."""
    ask_due_ms: int | None = None
    """The time at which the voters are asked next; None while nothing is to be asked."""
    informed: set[ReplicaId] = attrs.field(factory=set)
    """Voters that have heard our newest one."""
    without_answer: set[ReplicaId] = attrs.field(factory=set)
    """Voters that know no such question."""
    named: set[ReplicaId] = attrs.field(factory=set)
    """Observers that have a log line since our newest one."""
    snapshot_taken_ms: int | None = None
    """The time at which a snapshot was last taken for a quarantined replica."""
    quarantine: Quarantine | None = None
    differing: set[ReplicaId] = attrs.field(factory=set)
    """Other replicas whose state was not that of the majority when they were compared last."""
    undecided_offset: Offset = -1
    """The newest offset at which states differ and none has a majority."""
    agreed_offset: Offset = -1
    """The newest offset at which our state was that of a majority."""
    quarantines: int = 0
    """The number of times that this replica was quarantined in this life."""


@define(kw_only=True)
class Upstreams:
    """The way by which news of the leader comes to this replica (`extensions.upstreams`)."""

    chosen: int | None = None
    """The upstream that is fetched from, by its number as a destination; None: the leader is."""
    chosen_ms: int = 0
    resting_until_ms: dict[int, int] = attrs.field(factory=dict)
    """Upstreams that were left, and when they are tried again."""
    failures: dict[int, int] = attrs.field(factory=dict)
    """The number of times in a row that each was left."""
    wanted_until_ms: int = 0
    """Until then all records of the leader are taken, since it counts us as a voter, which our log does not say yet."""
    heard_ms: int = 0
    """The newest time at which the leader is known to have been heard, by us or by those that we hear it from."""
    current_ms: int | None = None
    """The newest time of which we have everything that was committed then; None: of none yet."""


@define(kw_only=True)
class Downstream(WaitingObservers):
    """The observers that fetch from this replica though it does not lead (`extensions.downstream`)."""

    epoch: Epoch = -1
    """That of all Fetches that wait."""
    told: Offset = -1
    """The high watermark for which the last round was asked for."""
    known: dict[ReplicaId, Offset] = attrs.field(factory=dict)
    """Our high watermark at the last Fetch of each."""


@define(kw_only=True)
class ReplicaState:
    """Memory of the core. Changed by the handlers of one event at a time.

    * `epoch` never falls;
    * `persisted` is what the last PersistElection made, or will have made, durable before anything that follows it.
    """

    config: RaftConfig
    key: ReplicaKey
    cluster_id: str | None
    """None only for an observer that was not told: it names none, and follows whichever cluster it finds."""
    endpoints: Endpoints
    log: LogView
    random: random.Random
    connections: OutstandingRequests
    role_state: RoleState
    epoch: Epoch
    persisted: ElectionState
    high_watermark: Offset | None = None
    """One past the last committed record; None where it is not known, as at the start of an own leadership."""
    committed_offset: Offset = 0
    """The greatest high watermark ever known here: nothing below it is truncated, except records that the disk has
    lost."""
    amnesia: Amnesia | None = None
    """It neither votes nor stands, since it may have voted already; None while its election state is known."""
    is_truncating: bool = False
    """Where the log ends is known with the next event: only whole batches go."""
    filling: Filling | None = None
    """The missing range that is being fetched, or None if no replica is known to hold it."""
    disk_full: bool = False
    """No more records are taken from the leader, though its answers count as signs of life. As a leader it hands
    over."""
    disk_full_since_ms: int = 0
    machine_failed_ms: int | None = None
    """When its state machine stopped for good (see `extensions.failed_state_machine`)."""
    last_resorts: int = 0
    """The number of times that it was elected as a last resort since then."""
    digests: Digests = attrs.field(factory=Digests)
    """The comparison of states between replicas (see `extensions.state_digests`)."""
    flush_waiting_since_ms: int | None = None
    """Since when something that was appended waits for the disk, without any of it becoming durable."""
    stalls: int = 0
    """The number of leaderships given up because no follower got on, since anything was committed (see `deadlines`)."""
    setbacks: int = 0
    """The number of elections and hand-overs since it last committed something as leader: its priority fades."""
    hand_overs: dict[ReplicaId, HandOver] = attrs.field(factory=dict)
    """The last hand-over to each voter that is to lead in our place (see `extensions.priority`)."""
    kept: Download | None = None
    """The download whose bytes are on the disk, be it under way or not."""
    learned_commit: OffsetAndEpoch | None = None
    """The committed end that an answer other than that to a Fetch has told (see `extensions.commit_news`)."""
    sent: dict[OffsetAndEpoch, int] = attrs.field(factory=dict)
    """When a replica last asked us for bytes of each snapshot, in ms."""
    upstreams: Upstreams = attrs.field(factory=Upstreams)
    downstream: Downstream = attrs.field(factory=Downstream)
    reads: list[Read] = attrs.field(factory=list)
    """The pending reads, in the order of asking."""
    shutdown_deadline_ms: int | None = None
    shutdown_complete: bool = False
    epochs_paid_at_ms: int = 0
    """The time at which the debt for epochs that were entered is paid off (see `extensions.epoch_budget`)."""
    now_ms: int = 0
    """Time of the event that is being handled."""
    wall_offset_ms: int = 0
    """Wall clock minus monotonic clock: for timestamps in control records and DescribeQuorum alone."""
    refused: dict[str, int] = attrs.field(factory=dict)
    """The number of refused messages of peers, by reason."""
    warned: set[tuple[str, ReplicaId | None]] = attrs.field(factory=set)
    """Reasons and peers that a WARNING has named."""
    controllers: frozenset[Endpoint] = frozenset()
    """Where those are reached who have said that they are controllers of Kafka."""
    _judged_voters: VoterSet | None = attrs.field(default=None, init=False)
    _is_voter: bool = attrs.field(default=False, init=False)
    """Whether we are in the voter set that was looked at last."""

    # --- who we are --------------------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The role, without its data."""
        return self.role_state.role

    @property
    def voters(self) -> VoterSet:
        """The voter set in force: the latest in the log, committed or not."""
        return self.log.voters.latest

    @property
    def static_voters(self) -> tuple[ReplicaId, ...]:
        """Ids of the configured voters, ascending, while they are in force; empty where the voters stand in the log."""
        return self.voters.ids if self.log.voters.latest_offset is None else ()

    @property
    def is_voter(self) -> bool:
        """Whether this replica counts for majorities."""
        voters = self.log.voters.latest
        if voters is not self._judged_voters:
            self._judged_voters, self._is_voter = voters, self.key in voters
        return self._is_voter

    @property
    def are_voters_committed(self) -> bool:
        """Whether the voter set in force is known to be committed; a configured one always is."""
        offset = self.log.voters.latest_offset
        return offset is None or offset < self.committed_offset

    @property
    def may_stand(self) -> bool:
        """Whether this replica may ask for votes, be it as a last resort."""
        is_able = self.is_voter and self.amnesia is None and not self.log.holes
        return is_able and self.epoch <= LAST_EPOCH_TO_STAND_IN

    @property
    def reluctance_ms(self) -> int:
        """The time that it waits longer than another voter before it stands (see `extensions.failed_state_machine`)."""
        if self.machine_failed_ms is None:
            return 0
        return LAST_RESORT_ROUNDS * (self.config.fetch_timeout_ms + 2 * self.config.election_timeout_ms)

    @property
    def abstains(self) -> str | None:
        """Why this replica does not stand though it may be a voter, or does so as a last resort; None if it stands."""
        if self.log.holes:
            holes = ", ".join(f"[{hole.start_offset}, {hole.end_offset})" for hole in self.log.holes)
            return f"repairing {holes}"
        if self.amnesia is not None:
            return "election state lost"
        if self.digests.quarantine is not None:
            return "quarantined: state differs"
        if self.machine_failed_ms is not None:
            return "state machine failed"
        return None if self.epoch <= LAST_EPOCH_TO_STAND_IN else "epochs used up"

    @property
    def yield_to(self) -> Sequence[ReplicaId]:
        """The voters that have a controller on top: those that are configured, else those that have said so."""
        if self.config.yield_to is not None:
            return self.config.yield_to
        if not self.controllers:
            return ()
        others = self.voters.others(self.key)
        return sorted(voter.key.id for voter in others if self.controllers.intersection(voter.endpoints.values()))

    @property
    def shutting_down(self) -> bool:
        """Whether a graceful end has begun."""
        return self.shutdown_deadline_ms is not None

    @property
    def wall_clock_ms(self) -> int:
        """Milliseconds since 1970 at the event that is being handled."""
        return self.now_ms + self.wall_offset_ms

    @property
    def id_text(self) -> str:
        """The name of this replica in log lines."""
        return f"replica {self.key.id}, epoch {self.epoch}"

    # --- the leader, as known here -----------------------------------------------------------------------------------

    @property
    def leader_id(self) -> ReplicaId | None:
        """The leader of the epoch. A resigned one still names itself: its epoch had no other."""
        role = self.role_state
        if isinstance(role, OF_OUR_EPOCH):
            return self.key.id
        return None if isinstance(role, Candidate) else role.leader_id

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The leader of the epoch, for the application: a resigned one leads no more."""
        return LeaderAndEpoch(None if isinstance(self.role_state, Resigned) else self.leader_id, self.epoch)

    @property
    def leader_endpoints(self) -> Endpoints:
        """Where the leader is reached: as it said itself, else as the voter set says."""
        role = self.role_state
        if isinstance(role, OF_OUR_EPOCH) or (leader_id := self.leader_id) == self.key.id:
            return self.endpoints
        if isinstance(role, Follower | Prospective) and leader_id is not None and role.leader_endpoints:
            return role.leader_endpoints
        return {} if leader_id is None else self.endpoints_of(leader_id)

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader is reached on our listener."""
        return self.leader_endpoints.get(self.config.listener_name.upper())

    def endpoints_of(self, replica_id: ReplicaId) -> Endpoints:
        """Where the voter set says that a replica is reached; empty if it does not."""
        voter = self.voters.get(replica_id)
        return voter.endpoints if voter is not None else {}

    @property
    def election(self) -> ElectionState:
        """The election state that must be durable in this role (KIP-595, Persistent State)."""
        role = self.role_state
        voted = self.key if isinstance(role, Candidate) else None
        if isinstance(role, Unattached | Prospective | Follower):
            voted = role.voted_key
        return ElectionState(
            epoch=self.epoch,
            leader_id=self.leader_id,
            voted_key=voted,
            amnesiac=self.amnesia is not None,
            epoch_debt_ms=self.epoch_debt_ms,
        )

    @property
    def epoch_debt_ms(self) -> int:
        """The debt for epochs that were entered, in ms."""
        return max(0, self.epochs_paid_at_ms - self.now_ms)

    # --- time and chance ---------------------------------------------------------------------------------------------

    @property
    def eagerness(self) -> int:
        """Its election priority, halved for each time that it stood in vain."""
        return self.config.election_priority >> min(self.setbacks, FADING_MAX)

    def random_election_deadline_ms(self) -> int:
        """When an election timer that starts now ends: after one to two election timeouts, up to a half sooner with
        a priority, one later if we yield."""
        timeout = self.config.election_timeout_ms
        deference = timeout if self.yield_to else 0
        spread = timeout * (2 * PRIORITY_MAX - self.eagerness) // (2 * PRIORITY_MAX)
        return self.now_ms + deference + timeout + (self.random.randrange(spread) if spread else 0)

    def jittered_backoff_ms(self) -> int:
        """A pause before asking again: one to two times the retry backoff, so that replicas do not march in step."""
        backoff = self.config.retry_backoff_ms
        return backoff + self.random.randrange(backoff)

    def refuse(self, reason: str, detail: str, *, peer: ReplicaId | None = None) -> None:
        """Count something that a peer sent and we do not take; log the first of its kind and peer at WARNING."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        is_new = (reason, peer) not in self.warned and len(self.warned) < WARNINGS_MAX
        if is_new:
            self.warned.add((reason, peer))
        logger.log(logging.WARNING if is_new else logging.DEBUG, "%s: refused, %s: %s", self.id_text, reason, detail)


def listener_endpoints(endpoint: Endpoint | None, listener_name: str) -> Mapping[str, Endpoint]:
    """Return the endpoint that a response names, by our listener; empty if it names none."""
    return {} if endpoint is None else {listener_name.upper(): endpoint}
