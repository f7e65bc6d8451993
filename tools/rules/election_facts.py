"""One life of a replica in its elections: its identity, the requests that it has sent, and its timers.

The core's log, which it reads, is judged by other rules.
"""

from __future__ import annotations

from typing import Any, Final

from kraftlib.consensus import actions as act
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.consensus.voters import Voter, VoterSet
from kraftlib.types import ElectionState, Endpoint, ReplicaId, ReplicaKey
from tools.rules.election_parts import (
    HALVINGS_MAX,
    LONGEST_PAUSE_MS,
    Asking,
    Endpoints,
    Following,
    Forgotten,
    Leading,
    Part,
    Resigned,
    Sent,
    Span,
    Unattached,
    same_replica,
)

EPOCH_PRICE_MS: Final = 100
"""The price of an epoch that is entered, paid from the purse that time fills."""

LAST_EPOCHS: Final = 2**31 - 2
"""No replica stands from here on: two more epochs are needed, to be elected and to give that up."""


class Facts:
    """The facts of one life, from the log and the election that it begins with."""

    def __init__(self, core: Replica) -> None:
        state = self.state = core.state
        self.core, self.config, self.key = core, state.config, state.key
        self.cluster_id, self.endpoints = state.cluster_id, state.endpoints
        self.listener = state.config.listener_name.upper()
        self.now_ms = 0
        self.epoch = state.persisted.epoch
        self.persisted = state.persisted
        self.part: Part = Unattached()
        self.entered = False
        """Whether a role was entered in this step."""
        self.is_sent_to_snapshot = False
        """Whether this step has answered our question with a snapshot."""
        self.due: list[act.Action] = []
        self.sent: dict[int, Sent] = {}
        self.awaiting: dict[int, int] = {}
        self.pauses: dict[int, Span] = {}
        self.failures: dict[int, int] = {}
        self.forgotten: Forgotten | None = None
        self.leading_role: Any = None
        """The core's own role as leader, for voter changes, which other rules judge."""
        self.reads = False
        """Whether a read waits: then BeginQuorumEpoch is sent for that, too."""
        self.machine_failed_ms: int | None = None
        self.last_resorts = 0
        """The number of times that it was elected since then."""
        self.is_full = False
        self.full_since_ms = 0
        self.shutdown_ms: int | None = None
        self.is_over = False
        """Whether a graceful end is complete."""
        self.is_in_doubt = False
        """Whether the event names an epoch or a leader that is not believed."""
        self.setbacks = 0
        self.stalls = 0
        self.purse_ms = self._purse_max_ms = EPOCH_PRICE_MS * self.config.epoch_jump_max
        """The rest of the purse at `purse_at_ms`; epochs are paid from it."""
        self.purse_at_ms = 0
        self.hand_overs: dict[ReplicaId, tuple[int, int]] = {}
        """When leadership was last handed to a voter on our own accord, and how often in a row."""
        self.flush_waits_since_ms: int | None = None
        self.controllers: set[Endpoint] = set()
        self.voters = state.log.voters.latest
        self.holes = tuple(state.log.holes)
        self.is_voter = self._is_voter(self.voters)

    def purse(self) -> int:
        """The rest of the purse now: time fills it, and each epoch that is entered costs (scenario E17)."""
        return min(self._purse_max_ms, self.purse_ms + self.now_ms - self.purse_at_ms)

    def spend(self, epochs: int) -> None:
        """Pay for epochs, as far as the purse goes."""
        self.purse_ms, self.purse_at_ms = max(0, self.purse() - EPOCH_PRICE_MS * epochs), self.now_ms

    @property
    def epoch_debt_ms(self) -> int:
        """The amount that the purse lacks."""
        return self._purse_max_ms - self.purse()

    def believes(self, epoch: int) -> bool:
        """Whether a peer may raise the epoch so far."""
        return EPOCH_PRICE_MS * (epoch - self.epoch) <= self.purse()

    def look_at_log(self) -> None:
        """Take over what other rules judge: the voters in force, and what is missing in the log."""
        log = self.state.log
        if log.voters.latest is not self.voters:
            self.voters = log.voters.latest
            self.is_voter = self._is_voter(self.voters)
        if log.holes or self.holes:
            self.holes = tuple(log.holes)

    def _is_voter(self, voters: VoterSet) -> bool:
        return any(same_replica(voter.key, self.key) for voter in voters.voters)

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def may_stand(self) -> bool:
        """Whether it may ask for votes: a voter that knows its votes, and has its whole log."""
        return self.is_voter and self.forgotten is None and not self.holes and self.epoch < LAST_EPOCHS

    @property
    def waits_longer_ms(self) -> int:
        """The time by which it stands later than others, since it could not serve (decision 11): two rounds of them."""
        a_round_ms = self.config.fetch_timeout_ms + 2 * self.config.election_timeout_ms
        return 0 if self.machine_failed_ms is None else 2 * a_round_ms

    @property
    def remote_voters(self) -> list[Voter]:
        """The voters of other ids."""
        return [voter for voter in self.voters.voters if voter.key.id != self.key.id]

    @property
    def leader_id(self) -> ReplicaId | None:
        """The leader of the epoch; one that has resigned names itself."""
        part = self.part
        if isinstance(part, Leading | Resigned):
            return self.key.id
        return part.leader_id

    def voter_endpoints(self, replica_id: ReplicaId) -> Endpoints:
        """Where the voter set says that a replica is reached."""
        return next((voter.endpoints for voter in self.voters.voters if voter.key.id == replica_id), {})

    @property
    def leader_place(self) -> Endpoint | None:
        """Where the leader is reached on our listener."""
        leader_id, part = self.leader_id, self.part
        if leader_id is None:
            return None
        if leader_id == self.key.id:
            return self.endpoints.get(self.listener)
        if isinstance(part, Following | Asking) and part.endpoints:
            return part.endpoints.get(self.listener)
        return self.voter_endpoints(leader_id).get(self.listener)

    @property
    def voted(self) -> ReplicaKey | None:
        """The candidate that it has voted for in its epoch."""
        part = self.part
        if isinstance(part, Asking) and part.role is Role.CANDIDATE:
            return self.key
        return None if isinstance(part, Leading | Resigned) else part.voted

    def election(self) -> ElectionState:
        """The election state that must be durable."""
        return ElectionState(
            epoch=self.epoch,
            leader_id=self.leader_id,
            voted_key=self.voted,
            amnesiac=self.forgotten is not None,
            epoch_debt_ms=self.epoch_debt_ms,
        )

    def question(self) -> tuple[Any, ...]:
        """Return what a Fetch to the leader asks now; other rules judge its contents."""
        state = self.state
        filling, log = state.filling, state.log
        position = (log.end_offset, log.last_epoch) if filling is None else (filling.next_offset, filling.last_epoch)
        is_anonymous = state.amnesia is not None or (bool(log.holes) and filling is None)
        return position, log.log_version, is_anonymous, filling is not None

    def other_voters(self) -> frozenset[ReplicaId]:
        """Return the voters that may have been voted for: of the last committed set, and of each one since."""
        if self.forgotten is None:
            return frozenset()
        state = self.state
        sets = state.log.voters.since(state.committed_offset - 1)
        return frozenset(voter.key.id for voters in sets for voter in voters.voters) - {self.key.id}

    # --- times -------------------------------------------------------------------------------------------------------

    def election_timer(self) -> Span:
        """An election timer that starts now: one to two election timeouts (KIP-595); our wishes shift it."""
        timeout = self.config.election_timeout_ms
        eagerness = self.config.election_priority >> min(self.setbacks, HALVINGS_MAX)
        low = self.now_ms + timeout + (timeout if self.yields else 0)
        return Span(low, low + max(timeout * (200 - eagerness) // 200 - 1, 0))

    @property
    def yields(self) -> bool:
        """Whether voters with a controller on top are to lead instead."""
        if self.config.yield_to is not None:
            return bool(self.config.yield_to)
        if not self.controllers:
            return False
        places = {place for voter in self.remote_voters for place in voter.endpoints.values()}
        return bool(self.controllers & places)

    def exactly(self, after_ms: int) -> Span:
        """A timer of a known length."""
        return Span(self.now_ms + after_ms, self.now_ms + after_ms)

    def fail(self, destination: int) -> None:
        """A request came to nothing: one to two retry backoffs of pause, doubled with each in a row."""
        count = self.failures[destination] = min(self.failures.get(destination, 0) + 1, 16)
        backoff = self.config.retry_backoff_ms
        low, high = (
            min(pause << (count - 1), max(pause, LONGEST_PAUSE_MS)) for pause in (backoff, max(2 * backoff - 1, 0))
        )
        self.pause(destination, Span(self.now_ms + low, self.now_ms + high))

    def pause(self, destination: int, until: Span) -> None:
        """Leave a destination alone."""
        if destination in self.pauses:
            self.pauses[destination].no_earlier(until)
        else:
            self.pauses[destination] = until

    def must_be_ready(self, destination: int) -> bool:
        """Whether a request may be sent there for certain."""
        pause = self.pauses.get(destination)
        return destination not in self.awaiting and (pause is None or pause.high <= self.now_ms)

    def may_be_ready(self, destination: int) -> bool:
        """Whether a request may be sent there, perhaps."""
        pause = self.pauses.get(destination)
        return destination not in self.awaiting and (pause is None or pause.low <= self.now_ms)
