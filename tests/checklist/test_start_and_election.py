"""Checklist section 1: start-up and election, as Kafka's KafkaRaftClientTest pins them."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import AppendToLog, PersistElection, SendRequest
from kraftlib.consensus.events import RecordsSubmitted, ResponseReceived, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.errors import InvariantError
from kraftlib.records.batch import encode_batch
from kraftlib.records.control import decode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.types import ElectionState, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus.build import (
    answer_vote,
    ask,
    fetch_response,
    flush,
    follower,
    outstanding_to,
    partition_of,
    pending_requests,
    replica,
    reply,
    requests,
    told_of,
    vote_request,
    voter_set,
)

LONG = (9, 5)
"""End of a log that nobody here beats: (offset, epoch)."""


def outstanding(core: Replica, kind: type) -> list[Any]:
    """The requests of a kind that a core waits for, by destination."""
    found = [request for request in pending_requests(core) if isinstance(request.request, kind)]
    return sorted(found, key=lambda request: request.destination)


def time_out(core: Replica) -> list[Any]:
    """Let the election or fetch timer of a core run out."""
    role = core.state.role_state
    deadline = getattr(role, "election_deadline_ms", None) or getattr(role, "fetch_deadline_ms", None)
    assert deadline is not None
    return core.handle(TimeoutReached(), deadline)


def resigned(*epochs: int, epoch: int = 5) -> Replica:
    """A replica that led that epoch before it was restarted."""
    return replica(*epochs, election=ElectionState(epoch=epoch, leader_id=1))


# --- restarts --------------------------------------------------------------------------------------------------------


def test_a_restarted_leader_refuses_appends_says_that_it_leaves_and_stands_again_later() -> None:
    """testInitializeAsResignedLeaderFromStateStore, testInitializeAsResignedAndBecomeCandidate."""
    core = resigned(1, 1)
    assert (core.role, core.epoch) == (Role.RESIGNED, 5)
    assert [request.destination for request in outstanding(core, EndQuorumEpochRequest)] == [2, 3]
    batch = encode_batch([b"x"], timestamp_ms=0, base_offset=2, epoch=5)
    with pytest.raises(InvariantError):
        core.handle(RecordsSubmitted((batch,), 5), 0)

    # Kafka 4.x: Unattached(E+1) with nothing left of its timer, hence Prospective in the same turn.
    assert PersistElection(ElectionState(epoch=6), 0) in time_out(core)
    assert (core.role, core.epoch) == (Role.PROSPECTIVE, 6)
    actions = answer_vote(core, 2, granted=True, pre_vote=True)
    assert actions[0] == PersistElection(ElectionState(epoch=7, voted_key=ReplicaKey(1)), 0)
    assert core.role is Role.CANDIDATE


@pytest.mark.parametrize(
    "voters",
    [(1, 2), (1, 2, 3)],
    ids=["testInitializeAsCandidateAndBecomeLeader", "testInitializeAsCandidateAndBecomeLeaderQuorumOfThree"],
)
def test_a_new_voter_stands_wins_and_opens_its_epoch(voters: tuple[int, ...]) -> None:
    """testInitializeAsCandidateAndBecomeLeader, ...QuorumOfThree: every message, write and record of it."""
    core = replica(voters=voter_set(*voters))
    core.wall_offset_ms = 1_700_000_000_000
    time_out(core)
    actions = answer_vote(core, 2, granted=True, pre_vote=True)
    assert actions[0] == PersistElection(ElectionState(epoch=1, voted_key=ReplicaKey(1)), 0)
    for request in requests(actions, VoteRequest):
        partition = partition_of(request.request)
        assert (partition.replica_epoch, partition.last_offset, partition.last_offset_epoch) == (1, 0, 0)
    actions = answer_vote(core, 2, granted=True, pre_vote=False)
    assert core.role is Role.LEADER
    assert PersistElection(ElectionState(epoch=1, leader_id=1), 0) in actions

    (appended,) = [action for action in actions if isinstance(action, AppendToLog)]
    (batch,) = appended.batches
    ((offset, change),) = decode_control_batch(batch)
    assert isinstance(change, LeaderChangeMessage)
    assert (offset, batch.epoch, change.leader_id) == (0, 1, 1)
    assert tuple(voter.voter_id for voter in change.voters) == voters
    assert [voter.voter_id for voter in change.granting_voters] == [1, 2]
    assert batch.base_timestamp == core.state.wall_clock_ms
    flush(core)
    assert core.state.log.flushed_offset == 1
    begun = requests(actions, BeginQuorumEpochRequest)
    assert [request.destination for request in begun] == [voter for voter in voters if voter != 1]


# --- standing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pre_vote", [False, True])
def test_a_vote_without_an_answer_is_asked_for_again_and_only_the_second_answer_counts(pre_vote: bool) -> None:
    """testVoteRequestTimeout; KafkaRaftClientPreVoteTest, request timeout repeats."""
    election = ElectionState(epoch=1, voted_key=None if pre_vote else ReplicaKey(1))
    core = replica(election=election, request_timeout_ms=600, election_timeout_ms=5_000)
    if pre_vote:
        time_out(core)
    role, began_ms = core.role, core.state.now_ms
    first = outstanding_to(core, 2)
    core.handle(TimeoutReached(), began_ms + 600)
    core.handle(TimeoutReached(), began_ms + 700)
    second = outstanding_to(core, 2)
    assert second.correlation_id != first.correlation_id
    assert second.request == first.request
    response = told_of(VoteResponse, epoch=1, vote_granted=True)
    core.handle(ResponseReceived(first.correlation_id, response), began_ms + 710)
    assert core.role is role
    core.handle(ResponseReceived(second.correlation_id, response), began_ms + 720)
    assert core.role is (Role.CANDIDATE if pre_vote else Role.LEADER)


def test_a_candidate_that_lost_keeps_its_vote_and_begins_no_epoch_before_its_timer() -> None:
    """testRetryElection: in 4.x after the election timeout, by way of Prospective."""
    core = replica(1, voters=voter_set(1, 2), election=ElectionState(epoch=5, voted_key=ReplicaKey(1)))
    answer_vote(core, 2, granted=False, pre_vote=False)
    assert (core.role, core.state.persisted) == (Role.CANDIDATE, ElectionState(epoch=5, voted_key=ReplicaKey(1)))
    deadline = core.state.role_state.election_deadline_ms  # type: ignore[union-attr]
    assert core.handle(TimeoutReached(), deadline - 1) == []
    core.handle(TimeoutReached(), deadline)
    assert (core.role, core.epoch) == (Role.PROSPECTIVE, 5)
    actions = answer_vote(core, 2, granted=True, pre_vote=True)
    assert actions[0] == PersistElection(ElectionState(epoch=6, voted_key=ReplicaKey(1)), 0)


# --- voting ----------------------------------------------------------------------------------------------------------


def test_an_observer_whose_leader_is_silent_goes_on_fetching_and_never_stands() -> None:
    """testFollowerAsObserverDoesNotBecomeCandidateAfterFetchTimeout."""
    core = follower(1, epoch=5, leader_id=2, own_id=9)
    for now_ms in range(0, 20_000, 500):
        core.handle(TimeoutReached(), now_ms)

    assert (core.role, core.leader_and_epoch) == (Role.FOLLOWER, LeaderAndEpoch(2, 5))
    assert outstanding(core, FetchRequest)
    assert partition_of(ask(core, vote_request(epoch=6, last=LONG), version=2)).vote_granted


def test_an_observer_without_a_leader_goes_on_looking_for_one_and_never_stands() -> None:
    """testUnattachedAsObserverDoesNotBecomeCandidateAfterElectionTimeout, testHandleVoteRequestAsObserver: it votes."""
    core = replica(1, own_id=9, election=ElectionState(epoch=5))
    asked = 0
    for now_ms in range(0, 20_000, 500):
        actions = core.handle(TimeoutReached(), now_ms)
        asked += sum(isinstance(action, SendRequest) for action in actions)
        assert not requests(actions, VoteRequest)

    assert core.role is Role.UNATTACHED
    assert asked > 5
    assert partition_of(ask(core, vote_request(epoch=5, last=(9, 4)), version=2)).vote_granted
    assert core.state.persisted == ElectionState(epoch=5, voted_key=ReplicaKey(2))
    reply(core, outstanding(core, FetchRequest)[0].destination, fetch_response(epoch=5, leader_id=3, error=6))
    assert core.leader_and_epoch == LeaderAndEpoch(3, 5)
