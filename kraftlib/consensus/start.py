"""Start-up: which role follows from what was durable (KIP-595, Persistent State).

A leader that restarts never leads its epoch again, and never votes in it: an unflushed record could have been lost, and
(offset, epoch) must identify one record for ever (KAFKA-10527).
"""

from __future__ import annotations

from kraftlib.consensus.actions import Action, AnnounceLeader
from kraftlib.consensus.quorum import Tally
from kraftlib.consensus.roles import Candidate, Follower, Resigned, RoleState, Unattached
from kraftlib.consensus.state import Amnesia, ReplicaState, log
from kraftlib.consensus.transitions import become_leader, become_prospective, persist
from kraftlib.types import ElectionState


def start(state: ReplicaState, election: ElectionState) -> list[Action]:
    """Enter the first role; the sole voter of a quorum goes on to lead at once."""
    log_epoch = state.log.last_epoch
    if election.epoch < log_epoch:
        log.warning("replica %d: recorded epoch %d is behind the log's %d", state.key.id, election.epoch, log_epoch)
        election = ElectionState(epoch=log_epoch, amnesiac=election.amnesiac)
    state.epoch = election.epoch
    if election.amnesiac or state.log.lacks_last_epoch:
        # A vote compares the ends of two logs. Without the epoch of our last record it could go to a candidate that
        # lacks what we have acknowledged.
        state.amnesia = Amnesia()
        lost = "its election state" if election.amnesiac else "the epoch of its last record"
        log.warning("replica %d: %s was lost: it neither votes nor stands yet", state.key.id, lost)
    state.role_state = first_role(state, election)
    log.info("replica %d: starts as %s in epoch %d, log end %s", state.key.id, state.role, state.epoch, state.log.end)
    actions = persist(state)
    actions.append(AnnounceLeader(state.leader_and_epoch))
    if state.may_stand and len(state.voters) == 1:
        role = state.role_state
        won = isinstance(role, Candidate) and role.tally.won
        actions += become_leader(state) if won else become_prospective(state, "sole voter")
    return actions


def first_role(state: ReplicaState, election: ElectionState) -> RoleState:
    """Pick the role that the recorded election asks for; the first matching row of the table wins."""
    deadline_ms = state.random_election_deadline_ms()
    if election.leader_id == state.key.id:
        others = {voter.key.id for voter in state.voters.others(state.key)}
        return Resigned(election_deadline_ms=deadline_ms, unacknowledged=others)
    voted = election.voted_key
    if voted is not None and state.may_stand and voted.matches(state.key):
        tally = Tally(state.voters)
        tally.record(state.key.id, True)
        return Candidate(election_deadline_ms=deadline_ms, tally=tally)
    endpoints = state.endpoints_of(election.leader_id) if election.leader_id is not None else {}
    if election.leader_id is not None and endpoints:
        return Follower(
            leader_id=election.leader_id,
            leader_endpoints=endpoints,
            voted_key=voted,
            fetch_deadline_ms=state.now_ms + state.config.fetch_timeout_ms,
            update_due_ms=state.now_ms + state.config.fetch_timeout_ms,
        )
    return Unattached(
        leader_id=election.leader_id,
        voted_key=voted,
        election_deadline_ms=deadline_ms if state.may_stand else None,
    )
