"""Elections, field by field: what is refused, what a refusal costs nobody, what each message says."""

from __future__ import annotations

import uuid
from typing import Any

import attrs
import pytest

from kraftlib.consensus.actions import PersistElection, SendResponse
from kraftlib.consensus.events import Failure, RequestFailed, ResignRequested, TimeoutReached
from kraftlib.consensus.roles import Candidate, Prospective, Role
from kraftlib.records.batch import encode_batch
from kraftlib.types import METADATA_TOPIC, ElectionState, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus.build import (
    LISTENER,
    LONG,
    answer_vote,
    ask,
    begin_request,
    end_request,
    fetch_response,
    follower,
    in_role,
    leader,
    outstanding_to,
    partition_of,
    place,
    replica,
    reply,
    requests,
    tell,
    vote_request,
    voter_set,
)


@pytest.mark.parametrize("count", [0, 2])
def test_a_vote_about_not_exactly_one_topic_is_refused_at_top_level(count: int) -> None:
    core = in_role("unattached")
    request = vote_request(epoch=6, last=LONG)
    response = ask(core, attrs.evolve(request, topics=request.topics * count), version=2)

    assert (response.error_code, response.topics, core.epoch) == (ErrorCode.INVALID_REQUEST, (), 5)


def test_somebody_with_our_own_id_gets_no_vote() -> None:
    """Two run with one identity: a vote for ourselves is cast by standing."""
    core = in_role("unattached")
    for pre_vote in (True, False):
        answer = partition_of(ask(core, vote_request(epoch=6, replica_id=1, last=LONG, pre_vote=pre_vote), version=2))
        assert (answer.error_code, answer.vote_granted) == (ErrorCode.NONE, False)

    assert core.state.refused == {"our own id": 2}
    assert core.state.election.voted_key is None


def test_an_epoch_is_durable_before_it_is_answered_be_the_vote_meant_for_another() -> None:
    core = in_role("unattached")
    actions = tell(core, vote_request(epoch=6, last=LONG, voter_id=3), version=2)
    kinds = [type(action) for action in actions]

    assert kinds.index(PersistElection) < kinds.index(SendResponse)


def test_a_vote_that_is_refused_is_not_cast() -> None:
    """Whoever has everything may still get it."""
    core = in_role("unattached")
    assert not partition_of(ask(core, vote_request(epoch=6, replica_id=2, last=(1, 1)), version=2)).vote_granted
    assert core.state.election.voted_key is None
    assert partition_of(ask(core, vote_request(epoch=6, replica_id=3, last=LONG), version=2)).vote_granted


def test_nobody_is_elected_in_an_epoch_whose_leader_is_known() -> None:
    """Be it that we do not know where it is."""
    core = replica(1, 1, election=ElectionState(epoch=5, leader_id=9))
    assert core.role is Role.UNATTACHED

    assert not partition_of(ask(core, vote_request(epoch=5, last=LONG), version=2)).vote_granted
    assert core.state.election == ElectionState(epoch=5, leader_id=9)


def test_asking_again_for_a_vote_postpones_nothing() -> None:
    """A candidate that asks over and over must not keep its voter from standing."""
    core = in_role("unattached")
    ask(core, vote_request(epoch=6, replica_id=2, last=LONG), version=2)
    deadline_ms = core.state.role_state.election_deadline_ms  # type: ignore[union-attr]
    for _ in range(5):
        actions = tell(core, vote_request(epoch=6, replica_id=2, last=LONG), version=2)
        assert [type(action) for action in actions] == [SendResponse]

    assert core.state.role_state.election_deadline_ms == deadline_ms  # type: ignore[union-attr]


@pytest.mark.parametrize(("last", "granted"), [((1, 1), False), ((2, 1), True), ((2, 2), True)])
def test_an_observer_without_its_leader_grants_to_no_shorter_log(last: tuple[int, int], granted: bool) -> None:
    core = follower(1, 1, own_id=9, epoch=5, leader_id=3)
    reply(core, 3, fetch_response(epoch=5, leader_id=3, high_watermark=0))
    deadline_ms = core.state.role_state.fetch_deadline_ms  # type: ignore[union-attr]
    answer = ask(core, vote_request(epoch=5, last=last, pre_vote=True), version=2, now_ms=deadline_ms)

    assert partition_of(answer).vote_granted is granted


@pytest.mark.parametrize(
    ("asker", "last", "waits"),
    [(3, (2, 1), False), (3, (3, 1), True), (3, (1, 2), True), (0, (2, 1), True)],
    ids=["higher id", "longer log", "newer log", "lower id"],
)
def test_of_two_that_lost_their_leader_one_goes_first(asker: int, last: tuple[int, int], waits: bool) -> None:
    """The one with the longer log, or the lower id: they would stand in the same millisecond."""
    core = in_role("prospective")
    role = core.state.role_state
    assert isinstance(role, Prospective)
    ask(core, vote_request(epoch=5, replica_id=asker, last=last, pre_vote=True), version=2)
    answer_vote(core, 3, granted=True, pre_vote=True)

    assert core.role is (Role.PROSPECTIVE if waits else Role.CANDIDATE)


@pytest.mark.parametrize(("round_trip_ms", "waits_ms"), [(0, 60), (25, 60), (100, 200)])
def test_who_goes_first_has_its_slots_and_two_round_trips(round_trip_ms: int, waits_ms: int) -> None:
    """Three slots of 20 ms; where links are slow, a Vote takes longer than that."""
    core = in_role("prospective")
    asked_ms = core.state.now_ms
    ask(core, vote_request(epoch=5, replica_id=0, last=(2, 1), pre_vote=True), version=2)
    answer_vote(core, 3, granted=True, pre_vote=True, now_ms=asked_ms + round_trip_ms)

    assert core.deadline_ms() == asked_ms + waits_ms
    core.handle(TimeoutReached(), asked_ms + waits_ms - 1)
    assert core.role is Role.PROSPECTIVE
    core.handle(TimeoutReached(), asked_ms + waits_ms)
    assert core.role is Role.CANDIDATE


def test_who_asks_again_and_again_is_let_go_first_once() -> None:
    core = in_role("prospective")
    asked_ms = core.state.now_ms
    request = vote_request(epoch=5, replica_id=0, last=(2, 1), pre_vote=True)
    ask(core, request, version=2)
    answer_vote(core, 3, granted=True, pre_vote=True)
    ask(core, request, version=2, now_ms=asked_ms + 50)

    core.handle(TimeoutReached(), asked_ms + 60)
    assert core.role is Role.CANDIDATE


def test_a_candidate_that_cannot_win_any_more_asks_nobody() -> None:
    core = replica(1, voters=voter_set(1, 2, 3, 4, 5), election=ElectionState(epoch=5, voted_key=ReplicaKey(1)))
    core.handle(RequestFailed(outstanding_to(core, 5).correlation_id, Failure.DISCONNECTED), core.state.now_ms)
    for voter_id in (2, 3, 4):
        answer_vote(core, voter_id, granted=False, pre_vote=False)
    role = core.state.role_state
    assert isinstance(role, Candidate)
    assert role.tally.lost
    actions = core.handle(TimeoutReached(), min(core.state.now_ms + 600, role.election_deadline_ms - 1))

    assert requests(actions, VoteRequest) == []


def test_a_vote_says_who_asks_whom_and_with_which_log() -> None:
    """The whole log, what is not flushed of it, too: it is compared, and vouches for nothing."""
    keys = [ReplicaKey(number, uuid.UUID(int=number)) for number in (1, 2, 3)]
    core = replica(1, 1, voters=voter_set(*keys), directory_id=keys[0].directory_id, election=ElectionState(epoch=5))
    core.state.log.append([encode_batch([b"x"], timestamp_ms=0, base_offset=2, epoch=5)])
    (first, _) = requests(core.handle(TimeoutReached(), core.deadline_ms() or 0), VoteRequest)
    asked = partition_of(first.request)

    assert (first.request.voter_id, asked.voter_directory_id) == (2, keys[1].directory_id)
    assert (asked.replica_id, asked.replica_directory_id) == (1, keys[0].directory_id)
    assert (asked.last_offset, asked.last_offset_epoch, asked.replica_epoch) == (3, 5, 5)


def test_a_begin_says_which_disk_it_is_meant_for() -> None:
    keys = [ReplicaKey(number, uuid.UUID(int=number)) for number in (1, 2, 3)]
    core = leader(1, voters=voter_set(*keys), directory_id=keys[0].directory_id)
    request = outstanding_to(core, 3).request

    assert isinstance(request, BeginQuorumEpochRequest)
    assert (request.voter_id, partition_of(request).voter_directory_id) == (3, keys[2].directory_id)


def test_a_peer_that_says_itself_that_it_knows_no_pre_vote_makes_us_stand_at_once() -> None:
    core = in_role("prospective")
    reply(core, 2, VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))

    assert (core.role, core.epoch) == (Role.CANDIDATE, 6)


def test_a_grant_beside_an_error_counts_for_nothing() -> None:
    core = in_role("candidate")
    partition = VoteResponse.PartitionData(
        error_code=ErrorCode.INVALID_VOTER_KEY, leader_id=-1, leader_epoch=5, vote_granted=True
    )
    reply(core, 2, VoteResponse(topics=(VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),)))

    assert core.role is Role.CANDIDATE


def test_a_lost_pre_vote_does_not_make_us_forget_a_leader_of_unknown_place() -> None:
    """In this epoch nobody else can lead."""
    core = replica(1, 1, election=ElectionState(epoch=5, leader_id=9))
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    for voter_id in (2, 3):
        answer_vote(core, voter_id, granted=False, pre_vote=True)

    assert (core.role, core.state.leader_id, core.epoch) == (Role.UNATTACHED, 9, 5)


@pytest.mark.parametrize("make", [begin_request, end_request])
def test_another_cluster_and_another_partition_say_nothing_of_a_leader(make: Any) -> None:
    core = in_role("unattached")
    request = make(epoch=9)
    for changed, error in (
        (attrs.evolve(request, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (attrs.evolve(request, topics=()), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(request, topics=request.topics * 2), ErrorCode.INVALID_REQUEST),
    ):
        assert ask(core, changed).error_code == error

    assert (core.role, core.epoch) == (Role.UNATTACHED, 5)


@pytest.mark.parametrize(
    ("make", "kind"), [(begin_request, BeginQuorumEpochResponse), (end_request, EndQuorumEpochResponse)]
)
def test_a_leader_of_an_epoch_that_is_over_is_answered_in_kind(make: Any, kind: type) -> None:
    answer = ask(in_role("unattached"), make(epoch=4))

    assert type(answer) is kind
    assert partition_of(answer).error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("named", [("", 7), ("moved", 0)])
def test_a_place_that_is_none_is_looked_up_in_the_voter_set(named: tuple[str, int]) -> None:
    where = BeginQuorumEpochRequest.LeaderEndpoint(name=LISTENER, host=named[0], port=named[1])
    core = in_role("unattached")
    ask(core, begin_request(epoch=6, leader_id=2, leader_endpoints=(where,)))

    assert core.state.role_state.leader_endpoints == {LISTENER: place(2)}  # type: ignore[union-attr]


def test_a_leader_that_leaves_names_its_successors_with_their_disks() -> None:
    keys = [ReplicaKey(number, uuid.UUID(int=number)) for number in (1, 2, 3)]
    core = leader(1, voters=voter_set(*keys), directory_id=keys[0].directory_id)
    (request, _) = requests(core.handle(ResignRequested(core.epoch), core.state.now_ms), EndQuorumEpochRequest)
    named = partition_of(request.request).preferred_candidates

    assert [(row.candidate_id, row.candidate_directory_id) for row in named] == [
        (key.id, key.directory_id) for key in keys[1:]
    ]


def test_an_end_of_a_newer_epoch_is_durable_before_it_is_answered() -> None:
    core = in_role("unattached")
    kinds = [type(action) for action in tell(core, end_request(epoch=6, leader_id=2, candidates=(3, 1)))]

    assert kinds.index(PersistElection) < kinds.index(SendResponse)
    assert (core.role, core.epoch) == (Role.FOLLOWER, 6)


def test_an_end_of_a_leader_that_we_cannot_reach_costs_us_nothing() -> None:
    """Nobody of this id is known: there is nobody to follow, and nobody to stop following."""
    core = in_role("unattached")
    answer = ask(core, end_request(epoch=6, leader_id=9))

    assert partition_of(answer).error_code == ErrorCode.NONE
    assert (core.role, core.state.leader_id) == (Role.UNATTACHED, 9)


@pytest.mark.parametrize(("candidates", "setbacks"), [((1, 3), 1), ((3, 1), 0)])
def test_only_the_first_in_line_was_handed_the_leadership(candidates: tuple[int, ...], setbacks: int) -> None:
    """If it fails, it is wanted less in the next election."""
    core = in_role("follower, fetched")
    ask(core, end_request(epoch=5, leader_id=3, candidates=candidates))

    assert core.state.setbacks == setbacks


def test_an_older_leader_names_its_successors_by_id() -> None:
    """Before KIP-853 there were no directory ids; the pauses are the same."""
    for successors, pause_ms in (((1, 2), 0), ((2, 1), 500), ((2,), 1_000), ((), 0)):
        core = in_role("follower, fetched")
        partition = EndQuorumEpochRequest.PartitionData(leader_id=3, leader_epoch=5, preferred_successors=successors)
        topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        ask(core, EndQuorumEpochRequest(topics=(topic,)), version=0)

        if core.role is Role.FOLLOWER:
            assert core.state.role_state.fetch_deadline_ms == core.state.now_ms + pause_ms  # type: ignore[union-attr]
        else:
            assert (core.role, pause_ms) == (Role.PROSPECTIVE, 0)


def test_a_successor_of_our_id_with_another_disk_is_not_we() -> None:
    core = in_role("follower, fetched")
    core = follower(1, 1, epoch=5, leader_id=3, directory_id=uuid.UUID(int=1))
    request = end_request(epoch=5, leader_id=3, candidates=(1, 2))
    partition = request.topics[0].partitions[0]
    info = attrs.evolve(partition.preferred_candidates[0], candidate_directory_id=uuid.UUID(int=99))
    partition = attrs.evolve(partition, preferred_candidates=(info, partition.preferred_candidates[1]))
    ask(core, attrs.evolve(request, topics=(attrs.evolve(request.topics[0], partitions=(partition,)),)))

    assert core.role is Role.FOLLOWER
    assert core.state.role_state.fetch_deadline_ms == core.state.now_ms + 1_000  # type: ignore[union-attr]


def test_a_voter_that_refuses_a_good_bye_is_told_again() -> None:
    core = in_role("resigned")
    core.handle(TimeoutReached(), core.state.now_ms)
    partition = EndQuorumEpochResponse.PartitionData(
        error_code=ErrorCode.BROKER_NOT_AVAILABLE, leader_id=core.key.id, leader_epoch=core.epoch
    )
    topic = EndQuorumEpochResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    reply(core, 2, EndQuorumEpochResponse(topics=(topic,)))
    assert 2 in core.state.role_state.unacknowledged  # type: ignore[union-attr]
    again = core.handle(TimeoutReached(), core.state.now_ms + 100)

    assert 2 in [request.destination for request in requests(again, EndQuorumEpochRequest)]
