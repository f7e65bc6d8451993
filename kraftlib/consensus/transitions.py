"""Entering a role: the durable write first, then everything that others may see (KIP-595, Persistent State).

`enter` is the only way into a role. It consults the table of allowed changes, makes the election state durable where it
has changed, forgets the outstanding requests of the role before, and closes the leadership if there was one. The
`become_*` functions around it build the data of the new role; `start` chooses the first one.
"""

from __future__ import annotations

import attrs

from kraftlib.consensus import actions as act
from kraftlib.consensus import responses
from kraftlib.consensus.actions import Action
from kraftlib.consensus.deadlines import check_quorum_timeout_ms, follow
from kraftlib.consensus.extensions.epoch_budget import charge, owe, raises_too_far
from kraftlib.consensus.roles import (
    NEXT_ROLES,
    Candidate,
    Endpoints,
    Follower,
    Heard,
    Leader,
    Link,
    Progress,
    Prospective,
    Resigned,
    RoleState,
    Unattached,
)
from kraftlib.consensus.state import Amnesia, ReplicaState, logger
from kraftlib.consensus.voters import Tally, VoterSet
from kraftlib.errors import ensure
from kraftlib.records.control import KRAFT_VERSION_MAX, ControlRecord, encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage
from kraftlib.types import LAST_EPOCH, ElectionState, Epoch, LeaderAndEpoch, ReplicaId, ReplicaKey
from kraftlib.wire.apis import ErrorCode


def enter(state: ReplicaState, role_state: RoleState, epoch: Epoch, reason: str) -> list[Action]:
    """Enter a role. The state on which the next election depends is durable before a message of it leaves."""
    before = state.role_state
    ensure(role_state.role in NEXT_ROLES[before.role], f"{before.role} cannot become {role_state.role}: {reason}")
    ensure(epoch >= state.epoch, f"epoch {epoch} is behind {state.epoch}: {reason}")
    logger.info(
        "replica %d: %s in epoch %d -> %s in epoch %d, %s",
        state.key.id, before.role, state.epoch, role_state.role, epoch, reason,
    )  # fmt: skip
    epoch_before = state.epoch
    charge(state, epoch - epoch_before)
    state.role_state, state.epoch = role_state, epoch
    # An answer to a question of the earlier role must never be heard in this one.
    state.connections.forget()
    for read in state.reads:
        read.asked = 0
    actions = persist(state)
    if isinstance(before, Leader):
        actions += close_leadership(state, before, epoch_before)
    if state.kept is not None and isinstance(role_state, Leader):
        # Its own log is the one to have. Any other role may come to want the rest of the download.
        state.kept = None
        actions.append(act.DropSnapshotDownload())
    return actions


def persist(state: ReplicaState) -> list[Action]:
    """Make the election state durable, if it is not."""
    election = state.election
    if election == state.persisted:
        return []
    ensure(election.epoch >= state.persisted.epoch, f"{election} is behind {state.persisted}")
    state.persisted = election
    return [act.PersistElection(election, state.log.kraft_version.latest)]


def close_leadership(state: ReplicaState, leader: Leader, epoch: Epoch) -> list[Action]:
    """Tell everybody who waits for this leader that it is one no more."""
    actions: list[Action] = [act.RefuseAppends(epoch)]
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    actions += [
        act.SendResponse(parked.request_id, responses.fetch(state, error=error, version=parked.version))
        for parked in (*leader.parked.values(), *leader.waiting.fetches.values())
    ]
    if leader.change is not None and leader.change.request_id is not None:
        actions.append(act.SendResponse(leader.change.request_id, responses.voter_change(leader.change.request, error)))
    return actions


def become_unattached(
    state: ReplicaState, epoch: Epoch, reason: str, *, leader_id: ReplicaId | None = None
) -> list[Action]:
    """Follow no leader, in a newer epoch or after a lost pre-vote in the same one.

    A vote survives while the epoch does. The *remaining* election time is kept where there is one: a stream of requests
    with ever higher epochs must not postpone this voter's own candidacy for ever.
    """
    before = state.role_state
    ensure(epoch > state.epoch or isinstance(before, Prospective), f"already in epoch {epoch}: {reason}")
    voted_key = before.voted_key if isinstance(before, Prospective) and epoch == state.epoch else None
    deadline_ms: int | None = None
    if state.may_stand:
        deadline_ms = state.random_election_deadline_ms()
        is_lost = isinstance(before, Prospective) and before.tally.lost
        if not isinstance(before, Leader | Follower) and before.election_deadline_ms is not None and not is_lost:
            deadline_ms = before.election_deadline_ms
    role = Unattached(leader_id=leader_id, voted_key=voted_key, election_deadline_ms=deadline_ms)
    actions = enter(state, role, epoch, reason)
    return [*actions, act.AnnounceLeader(LeaderAndEpoch(leader_id, epoch))]


def become_prospective(state: ReplicaState, reason: str) -> list[Action]:
    """Ask for pre-votes. Nothing is written: an epoch that no voter would follow is not begun (KIP-996)."""
    ensure(state.may_stand, "only a voter that knows its votes stands")
    before = state.role_state
    tally = Tally(state.voters)
    tally.record(state.key.id, True)
    role = Prospective(
        # A resigned leader asks anew: it must not go back to itself.
        leader_id=None if isinstance(before, Resigned) else state.leader_id,
        leader_endpoints=before.leader_endpoints if isinstance(before, Follower | Prospective) else {},
        leader_refused=isinstance(before, Follower) and before.link is Link.REFUSED,
        pre_votes_lost=before.pre_votes_lost if isinstance(before, Follower) else 0,
        left_ms=state.now_ms if isinstance(before, Follower) and before.heard is Heard.GOOD_BYE_TO_US else None,
        voted_key=state.election.voted_key,
        election_deadline_ms=state.random_election_deadline_ms(),
        tally=tally,
    )
    actions = enter(state, role, state.epoch, reason)
    return [*actions, *(become_candidate(state, "sole voter") if tally.won else [])]


def become_candidate(state: ReplicaState, reason: str) -> list[Action]:
    """Begin an epoch and vote for oneself in it, durably."""
    ensure(state.may_stand, "only a voter that knows its votes stands")
    tally = Tally(state.voters)
    tally.record(state.key.id, True)
    state.setbacks += 1
    role = Candidate(election_deadline_ms=state.random_election_deadline_ms(), tally=tally)
    actions = enter(state, role, state.epoch + 1, reason)
    return [*actions, *(become_leader(state) if tally.won else [])]


def become_leader(state: ReplicaState) -> list[Action]:
    """Lead the epoch that a majority has granted: the first batch says so, and its commit proves it.

    The high watermark is unknown until a majority holds that batch (Raft, section 5.4.2).
    """
    before = state.role_state
    ensure(isinstance(before, Candidate) and before.tally.won, f"{before.role} has not won epoch {state.epoch}")
    ensure(state.is_voter, "only a voter leads")
    granting = before.tally.granted if isinstance(before, Candidate) else set()
    start_offset = state.log.end_offset
    role = Leader(
        elected_ms=state.now_ms,
        epoch_start_offset=start_offset,
        progress={voter.key.id: Progress(key=voter.key) for voter in state.voters.others(state.key)},
        check_quorum_deadline_ms=state.now_ms + check_quorum_timeout_ms(state),
        begin_epoch_due_ms=state.now_ms,
    )
    actions = enter(state, role, state.epoch, f"elected by {sorted(granting)}")
    state.high_watermark = None
    state.last_resorts += state.machine_failed_ms is not None
    records = _first_records(state, granting)
    batch = encode_control_batch(records, timestamp_ms=state.wall_clock_ms, base_offset=start_offset, epoch=state.epoch)
    state.log.begin_epoch(state.epoch, start_offset)
    state.log.append([batch])
    return [
        *actions,
        act.BeginEpoch(state.epoch, start_offset),
        act.AppendToLog((batch,)),
        act.FlushLog(state.log.log_version),
        act.AcceptAppends(state.epoch, state.log.end_offset),
        act.AnnounceLeader(LeaderAndEpoch(state.key.id, state.epoch), start_offset),
    ]


def _first_records(state: ReplicaState, granting: set[ReplicaId]) -> list[ControlRecord]:
    """The control records that open an epoch (KIP-595, LeaderChangeMessage; KIP-853, VotersRecord).

    LeaderChange always; the voter set again while it stands in the bootstrap checkpoint only, which is never sent, or
    where our own entry in it is out of date.
    """
    voter = LeaderChangeMessage.Voter
    records: list[ControlRecord] = [
        LeaderChangeMessage(
            leader_id=state.key.id,
            voters=tuple(voter(voter_id=voter_id) for voter_id in state.voters.ids),
            granting_voters=tuple(voter(voter_id=voter_id) for voter_id in sorted(granting)),
        )
    ]
    kraft_version = state.log.kraft_version.latest
    if kraft_version >= 1:
        current = updated_voters(state)
        if state.log.voters.latest_offset == -1 or current != state.voters:
            records += [KRaftVersionRecord(kraft_version=kraft_version), current.to_record()]
    return records


def updated_voters(state: ReplicaState) -> VoterSet:
    """Return the voter set with our own entry as we run now."""
    own = state.voters.get(state.key.id)
    if own is None or state.key not in state.voters:
        return state.voters
    return state.voters.with_voter(
        attrs.evolve(own, endpoints=dict(state.endpoints), min_kraft_version=0, max_kraft_version=KRAFT_VERSION_MAX)
    )


def become_follower(
    state: ReplicaState, epoch: Epoch, leader_id: ReplicaId, leader_endpoints: Endpoints, reason: str
) -> list[Action]:
    """Fetch from the leader of `epoch`. A vote cast in the same epoch is kept: it may not be cast twice."""
    ensure(leader_id != state.key.id, "a replica does not follow itself")
    ensure(leader_endpoints, f"leader {leader_id} has no endpoint")
    own_listener = state.config.listener_name.upper()
    if own_listener not in leader_endpoints:
        text = f"replica {leader_id} leads and is reached on {sorted(leader_endpoints)}, and we ask on"
        text += f" {own_listener!r}: give all replicas one listener_name"
        state.refuse("no common listener", text[:500], peer=leader_id)
    before = state.role_state
    voted_key = state.election.voted_key if epoch == state.epoch else None
    if epoch == state.epoch:
        ensure(state.leader_id in (None, leader_id), f"epoch {epoch} has leaders {state.leader_id} and {leader_id}")
        ensure(not isinstance(before, Leader | Resigned), f"{leader_id} cannot lead our own epoch {epoch}")
    back = isinstance(before, Prospective) and (before.leader_id, state.epoch) == (leader_id, epoch)
    role = follow(
        state,
        leader_id,
        leader_endpoints,
        voted_key=voted_key,
        link=Link.BROKEN if isinstance(before, Prospective) and back and before.leader_refused else Link.WHOLE,
        pre_votes_lost=before.pre_votes_lost + 1 if isinstance(before, Prospective) and back else 0,
    )
    actions = enter(state, role, epoch, reason)
    return [*actions, act.AnnounceLeader(LeaderAndEpoch(leader_id, epoch))]


def stop_standing(state: ReplicaState, reason: str) -> list[Action]:
    """End a candidacy, and the asking before it; the vote of a candidate in its epoch is left with the epoch."""
    role = state.role_state
    if isinstance(role, Prospective):
        return become_unattached(state, state.epoch, reason, leader_id=role.leader_id)
    return become_unattached(state, state.epoch + 1, reason) if isinstance(role, Candidate) else []


def become_resigned(state: ReplicaState, reason: str, preferred: tuple[ReplicaKey, ...] = ()) -> list[Action]:
    """Give up leadership without a new epoch: the voters are told, the most caught-up one first."""
    role = Resigned(
        election_deadline_ms=state.random_election_deadline_ms(),
        unacknowledged={voter.key.id for voter in state.voters.others(state.key)},
        preferred=preferred,
    )
    return enter(state, role, state.epoch, reason)


def maybe_follow(
    state: ReplicaState, epoch: Epoch, leader_id: ReplicaId | None, endpoints: Endpoints, reason: str
) -> list[Action] | None:
    """Take over what a peer says of epoch and leader (KIP-595, Vote and Fetch).

    `endpoints` are those of the message; where there are none, the voter set's are taken, and without any the leader is
    remembered by id. None: it contradicts what we know, nothing was changed. Kafka stops there; a peer never stops us.
    """
    if epoch < state.epoch:
        return []
    if raises_too_far(state, epoch, reason):
        return None
    if leader_id == state.key.id and not (epoch == state.epoch and state.leader_id == leader_id):
        state.refuse("unknown leadership", f"{reason} names us as leader of epoch {epoch}")
        return None
    if epoch == state.epoch and None not in (leader_id, state.leader_id) and leader_id != state.leader_id:
        text = f"{reason} names {leader_id} as leader of epoch {epoch}, known is {state.leader_id}"
        state.refuse("two leaders", text)
        return None
    places = endpoints or (state.endpoints_of(leader_id) if leader_id is not None else {})
    if epoch > state.epoch:
        if leader_id is None or not places:
            return become_unattached(state, epoch, reason, leader_id=leader_id)
        return become_follower(state, epoch, leader_id, places, reason)
    if leader_id is None or leader_id == state.key.id:
        return []
    role = state.role_state
    known = role.leader_endpoints if isinstance(role, Follower | Prospective) else {}
    if len(places) > len(known) and not isinstance(role, Leader | Resigned):
        return become_follower(state, epoch, leader_id, places, reason)
    return []


# --- start ------------------------------------------------------------------------------------------------------------


def start(state: ReplicaState, election: ElectionState) -> list[Action]:
    """Enter the first role; the sole voter of a quorum goes on to lead at once."""
    log_epoch = state.log.last_epoch
    if election.epoch < log_epoch:
        logger.warning("replica %d: recorded epoch %d is behind the log's %d", state.key.id, election.epoch, log_epoch)
        election = ElectionState(epoch=log_epoch, amnesiac=election.amnesiac, epoch_debt_ms=election.epoch_debt_ms)
    state.epoch = election.epoch
    owe(state, election.epoch_debt_ms)
    if election.amnesiac or state.log.lacks_last_epoch:
        # A vote compares the ends of two logs. Without the epoch of our last record it could go to a candidate that
        # lacks what we have acknowledged.
        state.amnesia = Amnesia()
        lost = "its election state" if election.amnesiac else "the epoch of its last record"
        logger.warning("replica %d: %s was lost: it neither votes nor stands yet", state.key.id, lost)
    state.role_state = first_role(state, election)
    logger.info(
        "replica %d: starts as %s in epoch %d, log end %s", state.key.id, state.role, state.epoch, state.log.end
    )
    actions = persist(state)
    actions.append(act.AnnounceLeader(state.leader_and_epoch))
    if state.may_stand and len(state.voters) == 1:
        role = state.role_state
        won = isinstance(role, Candidate) and role.tally.won
        actions += become_leader(state) if won else become_prospective(state, "sole voter")
    return actions


def first_role(state: ReplicaState, election: ElectionState) -> RoleState:
    """Pick the role that the recorded election asks for; the first matching row of the table wins."""
    deadline_ms = state.random_election_deadline_ms()
    if election.leader_id == state.key.id:
        if election.epoch >= LAST_EPOCH:  # there is no epoch to leave for, and no other voter may lead this one
            return Unattached(voted_key=state.key)
        others = {voter.key.id for voter in state.voters.others(state.key)}
        return Resigned(election_deadline_ms=deadline_ms, unacknowledged=others)
    voted = election.voted_key
    if voted is not None and state.may_stand and voted.matches(state.key):
        tally = Tally(state.voters)
        tally.record(state.key.id, True)
        return Candidate(election_deadline_ms=deadline_ms, tally=tally)
    endpoints = state.endpoints_of(election.leader_id) if election.leader_id is not None else {}
    if election.leader_id is not None and endpoints:
        return follow(state, election.leader_id, endpoints, voted_key=voted)
    return Unattached(
        leader_id=election.leader_id,
        voted_key=voted,
        election_deadline_ms=deadline_ms if state.may_stand else None,
    )
