"""Entering a role, written a second time: the parts that are kept, begin anew or must be durable (KIP-595, KIP-996).

`Life` follows the core from event to event. Its `due` holds the durable writes and announcements that
the core must ask for, in this order.
"""

from __future__ import annotations

from kraftlib.consensus import actions as act
from kraftlib.consensus.roles import Role
from kraftlib.types import LeaderAndEpoch, ReplicaId, ReplicaKey
from tools.rules.election_facts import Facts
from tools.rules.election_parts import (
    Asking,
    Endpoints,
    Following,
    Known,
    Leading,
    Part,
    Resigned,
    Span,
    Unattached,
)


class Life(Facts):
    """One life, from the log and the election that it begins with."""

    def enter(self, part: Part, epoch: int) -> None:
        """Be something else from now on."""
        before, epoch_before = self.part, self.epoch
        self.spend(epoch - epoch_before)
        self.part, self.epoch, self.entered = part, epoch, True
        for memory in (self.sent, self.awaiting, self.pauses, self.failures):
            memory.clear()
        self.write()
        if isinstance(before, Leading):
            self.due.append(act.RefuseAppends(epoch_before))

    def write(self) -> None:
        """Let the election be durable, if it is not."""
        election = self.election()
        if election != self.persisted:
            self.persisted = election
            self.due.append(act.PersistElection(election, 0))

    def unattached(self, epoch: int, leader_id: ReplicaId | None = None) -> None:
        """Follow no leader. A vote lives as long as its epoch, and an election timer that runs goes on."""
        before = self.part
        is_prospective = isinstance(before, Asking) and before.role is Role.PROSPECTIVE
        voted = before.voted if isinstance(before, Asking) and is_prospective and epoch == self.epoch else None
        timer: Span | None = None
        if self.may_stand:
            was_lost = isinstance(before, Asking) and is_prospective and before.lost
            if isinstance(before, Unattached | Resigned | Asking) and not was_lost:
                timer = before.timer
            timer = timer or self.election_timer()
        self.enter(Unattached(leader_id=leader_id, voted=voted, timer=timer), epoch)
        self.due.append(act.AnnounceLeader(LeaderAndEpoch(leader_id, epoch)))

    def follow(self, epoch: int, leader_id: ReplicaId, endpoints: Endpoints) -> None:
        """Fetch from this leader. A vote of the same epoch is kept."""
        before = self.part
        back = (
            isinstance(before, Asking)
            and before.role is Role.PROSPECTIVE
            and (before.leader_id, self.epoch) == (leader_id, epoch)
        )
        lost = Span(0, 0)
        if isinstance(before, Asking) and back:
            lost = Span(before.lost_before.low + 1, before.lost_before.high + 1)
        part = Following(
            leader_id=leader_id,
            endpoints=endpoints,
            timer=self.exactly(self.config.fetch_timeout_ms),
            voted=self.voted if epoch == self.epoch else None,
            lost_connection=before.leader_refused if isinstance(before, Asking) and back else False,
            lost_before=lost,
        )
        self.enter(part, epoch)
        self.due.append(act.AnnounceLeader(LeaderAndEpoch(leader_id, epoch)))

    def learn(self, epoch: int, leader_id: ReplicaId | None, endpoints: Endpoints) -> bool | None:
        """Take over what a peer says of epoch and leader; whether that changed anything, None if it contradicts."""
        if epoch < self.epoch:
            return False
        is_of_us = leader_id == self.key.id and (epoch, leader_id) != (self.epoch, self.leader_id)
        is_other = epoch == self.epoch and None not in (leader_id, self.leader_id) and leader_id != self.leader_id
        if not self.believes(epoch) or is_of_us or is_other:
            self.is_in_doubt = True
            return None
        places = endpoints or ({} if leader_id is None else self.voter_endpoints(leader_id))
        if epoch > self.epoch:
            if leader_id is None or not places:
                self.unattached(epoch, leader_id)
            else:
                self.follow(epoch, leader_id, places)
            return True
        part = self.part
        if leader_id in (None, self.key.id) or leader_id is None or isinstance(part, Leading | Resigned):
            return False
        known = len(part.endpoints) if isinstance(part, Following | Asking) else 0
        if len(places) <= known:
            return False
        self.follow(epoch, leader_id, places)
        return True

    def prospective(self) -> None:
        """Ask who would vote for us: nothing is written, and no epoch begun."""
        before = self.part
        part = Asking(
            role=Role.PROSPECTIVE,
            timer=self.election_timer(),
            electors=self.voters,
            granted={self.key.id},
            leader_id=None if isinstance(before, Resigned) else self.leader_id,
            endpoints=before.endpoints if isinstance(before, Following | Asking) else {},
            voted=self.voted,
            left_ms=self.now_ms if isinstance(before, Following) and before.is_successor else None,
        )
        if isinstance(before, Following):
            part.leader_refused = before.refused
            part.lost_before = Span(before.lost_before.low, before.lost_before.high)
        self.enter(part, self.epoch)
        if part.won:
            self.candidate()

    def candidate(self) -> None:
        """Begin an epoch, and vote for ourselves in it."""
        self.setbacks += 1
        part = Asking(role=Role.CANDIDATE, timer=self.election_timer(), electors=self.voters, granted={self.key.id})
        self.enter(part, self.epoch + 1)
        if part.won:
            self.leader()

    def leader(self) -> None:
        """Lead the epoch that a majority has granted."""
        before = self.part
        self.leading_role = None
        self.last_resorts += self.machine_failed_ms is not None
        self.enter(
            Leading(
                elected_ms=self.now_ms,
                granting=frozenset(before.granted) if isinstance(before, Asking) else frozenset(),
                voters={voter.key.id: Known(key=voter.key) for voter in self.remote_voters},
                quorum_until_ms=self.now_ms + self.config.fetch_timeout_ms * 3 // 2,
                begin_due_ms=self.now_ms,
            ),
            self.epoch,
        )
        self.due.append(act.AnnounceLeader(LeaderAndEpoch(self.key.id, self.epoch)))

    def resigned(self, preferred: tuple[ReplicaKey, ...]) -> None:
        """Lead no more, in the same epoch."""
        part = Resigned(
            timer=self.election_timer(),
            unacknowledged={voter.key.id for voter in self.remote_voters},
            preferred=preferred,
        )
        self.enter(part, self.epoch)

    def give_up(self) -> None:
        """End a pre-vote: go back to the leader that we know, else wait."""
        part = self.part
        if isinstance(part, Asking) and part.leader_id is not None and part.endpoints:
            self.follow(self.epoch, part.leader_id, part.endpoints)
        else:
            self.unattached(self.epoch, self.leader_id)
