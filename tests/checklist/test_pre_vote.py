"""Checklist section 11: pre-votes (KafkaRaftClientPreVoteTest, ProspectiveStateTest, EpochElectionTest)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.events import Failure, RequestFailed, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role, Unattached
from kraftlib.types import ElectionState, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.vote import VoteResponse
from tests.consensus.build import (
    answer_vote,
    ask,
    fetch_response,
    follower,
    leader,
    outstanding_to,
    partition_of,
    replica,
    reply,
    told_of,
    vote_request,
)

EPOCH = 5


def fetched() -> Replica:
    """A follower that has heard from its leader."""
    core = follower(1, 1, epoch=EPOCH, leader_id=3)
    reply(core, 3, fetch_response(epoch=EPOCH, leader_id=3, high_watermark=0))
    return core


def prospective(**more: Any) -> Replica:
    """A voter that knew no leader and asks in advance."""
    core = replica(1, 1, election=ElectionState(epoch=EPOCH), **more)
    core.handle(TimeoutReached(), core.state.role_state.election_deadline_ms)  # type: ignore[union-attr]
    assert core.role is Role.PROSPECTIVE
    return core


def lost_leader() -> Replica:
    """A voter that asks in advance, because its leader 3 is silent."""
    core = fetched()
    core.handle(TimeoutReached(), 2_000)
    assert core.role is Role.PROSPECTIVE
    return core


ROLES = {
    "follower before its first fetch": (lambda: follower(1, 1, epoch=EPOCH, leader_id=3), True),
    "follower after its first fetch": (fetched, False),
    "candidate": (lambda: replica(1, 1, election=ElectionState(epoch=EPOCH, voted_key=ReplicaKey(1))), True),
    "resigned": (lambda: replica(1, 1, election=ElectionState(epoch=EPOCH, leader_id=1)), True),
    "unattached": (lambda: replica(1, 1, election=ElectionState(epoch=EPOCH)), True),
    "voted": (lambda: replica(1, 1, election=ElectionState(epoch=EPOCH, voted_key=ReplicaKey(3))), True),
    "prospective": (prospective, True),
    "observer": (lambda: replica(1, 1, own_id=9, election=ElectionState(epoch=EPOCH)), True),
    "observer that follows": (lambda: follower(1, 1, own_id=9, epoch=EPOCH, leader_id=3), True),
    "leader": (lambda: leader(1, 1, election=ElectionState(epoch=EPOCH - 1)), False),
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("is_up_to_date", [True, False])
def test_a_pre_vote_is_granted_to_a_log_that_is_up_to_date(role: str, is_up_to_date: bool) -> None:
    """KafkaRaftClientPreVoteTest, who grants: a leader never, a follower until its first successful fetch."""
    make, grants = ROLES[role]
    core = make()
    log = core.state.log
    last = (log.end_offset, log.last_epoch) if is_up_to_date else (log.end_offset - 1, log.last_epoch)
    before = core.role, core.epoch, core.state.persisted
    answer = partition_of(ask(core, vote_request(epoch=EPOCH, last=last, pre_vote=True), version=2))

    assert (answer.error_code, answer.vote_granted) == (0, grants and is_up_to_date)
    assert (core.role, core.epoch, core.state.persisted) == before


@pytest.mark.parametrize("how", ["answered", "below the protocol"])
def test_a_peer_that_knows_no_pre_vote_makes_us_stand(how: str) -> None:
    """KafkaRaftClientPreVoteTest, UNSUPPORTED_VERSION: Candidate at once."""
    core = prospective()
    if how == "answered":
        reply(core, 2, VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    else:
        number = outstanding_to(core, 2).correlation_id
        core.handle(RequestFailed(number, Failure.UNSUPPORTED_VERSION), core.state.now_ms)

    assert (core.role, core.epoch) == (Role.CANDIDATE, EPOCH + 1)


@pytest.mark.parametrize(
    ("make", "how", "role", "known"),
    [
        (prospective, "refused", Role.UNATTACHED, None),
        # With nothing left of its timer it is Prospective again within the same turn.
        (prospective, "timed out", Role.PROSPECTIVE, None),
        (lost_leader, "refused", Role.FOLLOWER, 3),
        (lost_leader, "timed out", Role.FOLLOWER, 3),
    ],
)
def test_a_lost_pre_vote_leads_back_to_where_it_began(make: Any, how: str, role: Role, known: int | None) -> None:
    """KafkaRaftClientPreVoteTest, loss: Unattached, or Follower of the last leader; the epoch stays."""
    core = make()
    before = core.state.role_state
    if how == "refused":
        for voter_id in (2, 3):
            if core.role is Role.PROSPECTIVE:
                answer_vote(core, voter_id, granted=False, pre_vote=True)
    else:
        core.handle(TimeoutReached(), before.election_deadline_ms)

    assert core.state.role_state is not before
    assert (core.role, core.leader_and_epoch) == (role, LeaderAndEpoch(known, EPOCH))


def test_a_leader_without_a_place_stays_known_by_id() -> None:
    """KafkaRaftClientPreVoteTest, missing endpoints: Unattached, keeping the leader id."""
    core = replica(1, 1, election=ElectionState(epoch=EPOCH, leader_id=9))
    core.handle(TimeoutReached(), core.state.role_state.election_deadline_ms)  # type: ignore[union-attr]
    assert core.role is Role.PROSPECTIVE
    for voter_id in (2, 3):
        answer_vote(core, voter_id, granted=False, pre_vote=True)

    assert isinstance(core.state.role_state, Unattached)
    assert core.state.role_state.leader_id == 9


def test_an_answer_that_grants_and_names_a_leader_makes_a_follower() -> None:
    """KafkaRaftClientPreVoteTest, a granted answer that names a leader: row 7 of the common part wins."""
    core = prospective()
    reply(core, 2, told_of(VoteResponse, 3, epoch=EPOCH, vote_granted=True))

    assert core.leader_and_epoch == LeaderAndEpoch(3, EPOCH)


# --- the tally -------------------------------------------------------------------------------------------------------
