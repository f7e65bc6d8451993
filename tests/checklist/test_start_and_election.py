"""Checklist section 1: start-up and election, as Kafka's KafkaRaftClientTest pins them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftlib.consensus.actions import AppendToLog, PersistElection, SendRequest
from kraftlib.consensus.events import RecordsSubmitted, ResponseReceived, ShutdownRequested, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role, Unattached
from kraftlib.errors import InvariantError
from kraftlib.records.batch import encode_batch
from kraftlib.records.control import decode_control_batch
from kraftlib.records.control_messages import LeaderChangeMessage
from kraftlib.types import METADATA_TOPIC, ElectionState, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus.build import (
    answer_vote,
    ask,
    begin_request,
    fetch_response,
    flush,
    follower,
    leader,
    outstanding_to,
    partition_of,
    pending_requests,
    replica,
    reply,
    requests,
    tell,
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


def candidate(*epochs: int, epoch: int = 5) -> Replica:
    """A replica that voted for itself before it was restarted."""
    return replica(*epochs, election=ElectionState(epoch=epoch, voted_key=ReplicaKey(1)))


def a_vote(*, epoch: int) -> VoteResponse:
    """A vote for us."""
    granted = VoteResponse.PartitionData(leader_id=-1, leader_epoch=epoch, vote_granted=True)
    return VoteResponse(topics=(VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(granted,)),))


# --- restarts --------------------------------------------------------------------------------------------------------


def test_a_restarted_leader_refuses_appends_says_that_it_leaves_and_stands_again_later() -> None:
    """testInitializeAsResignedLeaderFromStateStore."""
    core = resigned(1, 1)
    assert (core.role, core.epoch) == (Role.RESIGNED, 5)
    assert [request.destination for request in outstanding(core, EndQuorumEpochRequest)] == [2, 3]
    batch = encode_batch([b"x"], timestamp_ms=0, base_offset=2, epoch=5)
    with pytest.raises(InvariantError):
        core.handle(RecordsSubmitted((batch,), 5), 0)
    time_out(core)

    # Kafka 4.x: Unattached(E+1) with nothing left of its timer, hence Prospective in the same turn.
    assert (core.role, core.epoch) == (Role.PROSPECTIVE, 6)
    answer_vote(core, 2, granted=True, pre_vote=True)
    assert (core.role, core.epoch) == (Role.CANDIDATE, 7)


def test_a_restarted_leader_goes_through_every_state_to_the_next_candidacy() -> None:
    """testInitializeAsResignedAndBecomeCandidate."""
    core = resigned(1)
    actions = time_out(core)

    assert PersistElection(ElectionState(epoch=6), 0) in actions
    assert [partition_of(request.request).pre_vote for request in outstanding(core, VoteRequest)] == [True, True]
    actions = answer_vote(core, 3, granted=True, pre_vote=True)
    assert actions[0] == PersistElection(ElectionState(epoch=7, voted_key=ReplicaKey(1)), 0)


def test_a_resigned_leader_votes_for_nobody_in_its_epoch_and_names_itself() -> None:
    """testRejectVotesFromSameEpochAfterResigningLeadership: not even for a better log."""
    core = resigned(1)
    answer = partition_of(ask(core, vote_request(epoch=5, last=(9, 4)), version=2))

    assert (answer.error_code, answer.vote_granted, answer.leader_id, answer.leader_epoch) == (0, False, 1, 5)


def test_a_restarted_candidate_votes_for_nobody_else_in_its_epoch() -> None:
    """testRejectVotesFromSameEpochAfterResigningCandidacy: its vote is its own, and nobody leads."""
    core = candidate(1)
    answer = partition_of(ask(core, vote_request(epoch=5, last=(9, 4)), version=2))

    assert core.role is Role.CANDIDATE
    assert (answer.error_code, answer.vote_granted, answer.leader_id, answer.leader_epoch) == (0, False, -1, 5)


@pytest.mark.parametrize(
    "start",
    [resigned, candidate],
    ids=[
        "testGrantVotesFromHigherEpochAfterResigningLeadership",
        "testGrantVotesFromHigherEpochAfterResigningCandidacy",
    ],
)
def test_a_restarted_replica_votes_in_the_next_epoch(start: Any) -> None:
    """testGrantVotesFromHigherEpochAfterResigningLeadership, ...Candidacy: durably, and is Unattached then."""
    core = start(1)
    actions = tell(core, vote_request(epoch=6, last=LONG), version=2)

    assert PersistElection(ElectionState(epoch=6, voted_key=ReplicaKey(2)), 0) in actions
    assert isinstance(core.state.role_state, Unattached)
    assert core.state.role_state.voted_key == ReplicaKey(2)


def test_a_leader_that_shuts_down_still_votes_in_the_next_epoch() -> None:
    """testGrantVotesWhenShuttingDown."""
    core = leader(1)
    core.handle(ShutdownRequested(5_000), core.state.now_ms)
    answer = partition_of(ask(core, vote_request(epoch=core.epoch + 1, last=(9, core.epoch)), version=2))

    assert answer.vote_granted
    assert core.role is Role.UNATTACHED


def test_a_restarted_candidate_resumes_its_election() -> None:
    """testInitializeAsCandidateFromStateStore: the same epoch, a Vote to both peers."""
    core = candidate(1)

    votes = outstanding(core, VoteRequest)
    assert [request.destination for request in votes] == [2, 3]
    for request in votes:
        partition = partition_of(request.request)
        assert (partition.replica_epoch, partition.pre_vote) == (5, False)


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


@pytest.mark.parametrize(
    "epochs", [(), (1, 2, 2)], ids=["testInitializeAsFollowerEmptyLog", "testInitializeAsFollowerNonEmptyLog"]
)
def test_a_restarted_follower_fetches_from_its_leader(epochs: tuple[int, ...]) -> None:
    """testInitializeAsFollowerEmptyLog, testInitializeAsFollowerNonEmptyLog: its epoch, log end and last epoch."""
    core = follower(*epochs, epoch=5, leader_id=2)
    partition = partition_of(outstanding_to(core, 2).request)

    assert core.leader_and_epoch == LeaderAndEpoch(2, 5)
    assert partition.current_leader_epoch == 5
    assert (partition.fetch_offset, partition.last_fetched_epoch) == (len(epochs), epochs[-1] if epochs else 0)


# --- standing --------------------------------------------------------------------------------------------------------


def test_a_voter_whose_leader_is_silent_asks_in_advance_and_then_stands() -> None:
    """testVoterBecomeCandidateAfterFetchTimeout: first in its own epoch (4.x), then bindingly in the next."""
    core = follower(1, 2, epoch=5, leader_id=2)
    time_out(core)
    for request in outstanding(core, VoteRequest):
        partition = partition_of(request.request)
        assert (partition.replica_epoch, partition.pre_vote) == (5, True)
        assert (partition.last_offset_epoch, partition.last_offset) == (2, 2)
    actions = answer_vote(core, 3, granted=True, pre_vote=True)

    partitions = [partition_of(request.request) for request in requests(actions, VoteRequest)]
    assert [(p.replica_epoch, p.pre_vote, p.last_offset_epoch, p.last_offset) for p in partitions] == [
        (6, False, 2, 2),
        (6, False, 2, 2),
    ]


def test_a_vote_without_an_answer_is_asked_for_again_and_only_the_second_answer_counts() -> None:
    """testVoteRequestTimeout."""
    core = replica(
        election=ElectionState(epoch=1, voted_key=ReplicaKey(1)), request_timeout_ms=600, election_timeout_ms=5_000
    )
    first = outstanding_to(core, 2)
    core.handle(TimeoutReached(), 600)
    core.handle(TimeoutReached(), 700)
    second = outstanding_to(core, 2)
    assert second.correlation_id != first.correlation_id
    assert second.request == first.request
    response = a_vote(epoch=1)
    core.handle(ResponseReceived(first.correlation_id, response), 710)
    assert core.role is Role.CANDIDATE
    core.handle(ResponseReceived(second.correlation_id, response), 720)
    assert core.role is Role.LEADER


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


@pytest.mark.parametrize(
    ("core", "epoch", "error", "granted", "named"),
    [
        (replica(1, election=ElectionState(epoch=5)), 5, 0, True, -1),
        (follower(1, epoch=5, leader_id=3), 5, 0, False, 3),
        (replica(1, election=ElectionState(epoch=5, voted_key=ReplicaKey(3))), 5, 0, False, -1),
        (follower(1, epoch=5, leader_id=3), 4, ErrorCode.FENCED_LEADER_EPOCH, False, 3),
        (replica(1, own_id=9, election=ElectionState(epoch=5)), 5, 0, True, -1),
        (replica(1, own_id=9, election=ElectionState(epoch=5)), 6, 0, True, -1),
        (leader(1, election=ElectionState(epoch=4)), 5, 0, False, 1),
        (candidate(1), 5, 0, False, -1),
    ],
    ids=[
        "testHandleValidVoteRequestAsFollower",
        "testHandleVoteRequestAsFollowerWithElectedLeader",
        "testHandleVoteRequestAsFollowerWithVotedCandidate",
        "testHandleInvalidVoteRequestWithOlderEpoch",
        "testHandleVoteRequestAsObserver",
        "testHandleVoteRequestAsObserver, newer epoch",
        "testLeaderIgnoreVoteRequestOnSameEpoch",
        "testCandidateIgnoreVoteRequestOnSameEpoch",
    ],
)
def test_a_vote_is_granted_once_and_never_against_a_leader(
    core: Replica, epoch: int, error: int, granted: bool, named: int
) -> None:
    """testHandleValidVoteRequestAsFollower, testHandleVoteRequestAsFollowerWithElectedLeader,
    testHandleVoteRequestAsFollowerWithVotedCandidate, testHandleInvalidVoteRequestWithOlderEpoch,
    testHandleVoteRequestAsObserver, testLeaderIgnoreVoteRequestOnSameEpoch, testCandidateIgnoreVoteRequestOnSameEpoch.
    """
    before = (core.role, core.state.persisted)
    answer = partition_of(ask(core, vote_request(epoch=epoch, last=(9, 3)), version=2))

    assert (answer.error_code, answer.vote_granted, answer.leader_id) == (error, granted, named)
    assert answer.leader_epoch == core.epoch
    if granted:
        assert core.state.persisted == ElectionState(epoch=epoch, voted_key=ReplicaKey(2))
    else:
        assert (core.role, core.state.persisted) == before


@pytest.mark.parametrize(
    ("epoch", "error", "granted"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH, False), (5, 0, False), (6, 0, True)],
    ids=["older", "same", "newer"],
)
def test_a_vote_of_a_replica_that_is_no_voter_is_treated_like_any_other(epoch: int, error: int, granted: bool) -> None:
    """testLeaderAcceptVoteFromObserver: voter sets may differ while they change."""
    core = leader(1, election=ElectionState(epoch=4))
    answer = partition_of(
        ask(core, vote_request(epoch=epoch, replica_id=9, last=LONG if epoch == 6 else (9, 3)), version=2)
    )

    assert (answer.error_code, answer.vote_granted) == (error, granted)


@pytest.mark.parametrize(
    ("last", "pre_vote"),
    [((-1, 1), False), ((1, -1), False), ((1, 6), False), ((1, 7), False), ((1, 7), True), ((-1, 1), True)],
)
def test_an_impossible_log_is_refused_and_the_higher_epoch_not_believed(last: tuple[int, int], pre_vote: bool) -> None:
    """testInvalidVoteRequest."""
    core = follower(1, epoch=5, leader_id=3)
    answer = partition_of(ask(core, vote_request(epoch=6, last=last, pre_vote=pre_vote), version=2))

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert core.leader_and_epoch == LeaderAndEpoch(3, 5)


@pytest.mark.parametrize(("voter_id", "directory"), [(2, 1_001), (1, 9_999)], ids=["another id", "another disk"])
def test_a_vote_that_asks_another_voter_is_refused_but_its_epoch_believed(voter_id: int, directory: int) -> None:
    """testInvalidVoterReplicaVoteRequest."""
    core = replica(1, election=ElectionState(epoch=5), directory_id=UUID(int=1_001))
    request = vote_request(epoch=6, last=LONG, voter_id=voter_id, voter_directory_id=UUID(int=directory))
    answer = partition_of(ask(core, request, version=2))

    assert (answer.error_code, answer.vote_granted) == (ErrorCode.INVALID_VOTER_KEY, False)
    assert (core.epoch, core.state.persisted) == (6, ElectionState(epoch=6))


def test_votes_that_arrive_after_a_leader_introduced_itself_change_nothing() -> None:
    """testVoteResponseIgnoredAfterBecomingFollower."""
    core = candidate(1)
    late = [outstanding_to(core, voter_id).correlation_id for voter_id in (2, 3)]
    ask(core, begin_request(epoch=5, leader_id=3))
    assert core.leader_and_epoch == LeaderAndEpoch(3, 5)
    for number in late:
        assert core.handle(ResponseReceived(number, a_vote(epoch=5)), core.state.now_ms) == []
    assert core.leader_and_epoch == LeaderAndEpoch(3, 5)


def test_an_observer_whose_leader_is_silent_goes_on_fetching_and_never_stands() -> None:
    """testFollowerAsObserverDoesNotBecomeCandidateAfterFetchTimeout."""
    core = follower(1, epoch=5, leader_id=2, own_id=9)
    for now_ms in range(0, 20_000, 500):
        core.handle(TimeoutReached(), now_ms)

    assert (core.role, core.leader_and_epoch) == (Role.FOLLOWER, LeaderAndEpoch(2, 5))
    assert outstanding(core, FetchRequest)
    assert partition_of(ask(core, vote_request(epoch=6, last=LONG), version=2)).vote_granted


def test_an_observer_without_a_leader_goes_on_looking_for_one_and_never_stands() -> None:
    """testUnattachedAsObserverDoesNotBecomeCandidateAfterElectionTimeout."""
    core = replica(1, own_id=9, election=ElectionState(epoch=5))
    asked = 0
    for now_ms in range(0, 20_000, 500):
        actions = core.handle(TimeoutReached(), now_ms)
        asked += sum(isinstance(action, SendRequest) for action in actions)
        assert not requests(actions, VoteRequest)

    assert core.role is Role.UNATTACHED
    assert asked > 5
    reply(core, outstanding(core, FetchRequest)[0].destination, fetch_response(epoch=5, leader_id=3, error=6))
    assert core.leader_and_epoch == LeaderAndEpoch(3, 5)
