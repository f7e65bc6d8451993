"""BeginQuorumEpoch and EndQuorumEpoch, through the door of the core."""

from __future__ import annotations

import uuid
from typing import Any

import attrs
import pytest

from kraftlib.consensus.actions import PersistElection, SendResponse
from kraftlib.consensus.events import ResignRequested, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Role
from kraftlib.types import METADATA_TOPIC, ElectionState, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlib.wire.messages.vote import VoteRequest
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
    pending_requests,
    place,
    replica,
    reply,
    requests,
    tell,
    vote_request,
    voter_set,
)


def test_begin_makes_a_follower_and_is_repeated_without_effect() -> None:
    """It does not restart the fetch timer (KIP-595, BeginQuorumEpoch)."""
    core = in_role("unattached")
    answer = partition_of(ask(core, begin_request(epoch=6, leader_id=2)))
    deadline = core.state.role_state.fetch_deadline_ms  # type: ignore[union-attr]
    ask(core, begin_request(epoch=6, leader_id=2), now_ms=core.state.now_ms + 100, request_id=78)

    assert (answer.error_code, answer.leader_id, core.leader_and_epoch) == (0, 2, LeaderAndEpoch(2, 6))
    assert core.state.role_state.fetch_deadline_ms == deadline  # type: ignore[union-attr]


def test_two_leaders_of_one_epoch_are_never_believed_and_never_stop_us() -> None:
    """Kafka stops; what a peer says never stops a replica of ours."""
    core = in_role("follower, fetched")
    actions = tell(core, begin_request(epoch=5, leader_id=2))

    assert actions == [SendResponse(77, None)]
    assert (core.leader_and_epoch, core.state.refused) == (LeaderAndEpoch(3, 5), {"two leaders": 1})


@pytest.mark.parametrize(
    ("candidates", "pause_ms"),
    [((1, 3), 0), ((3, 1), 500), ((3, 4, 1), 500), ((3, 4, 5, 1), 500), ((3, 1, 4), 250), ((3, 4), 1_000), ((), 0)],
)
def test_a_successor_waits_as_its_place_in_the_list_says(candidates: tuple[int, ...], pause_ms: int) -> None:
    """The first not at all, who is not named the longest (KIP-595, EndQuorumEpoch)."""
    core = follower(1, epoch=5, leader_id=2)
    tell(core, end_request(epoch=5, leader_id=2, candidates=candidates))
    role = core.state.role_state

    if pause_ms == 0:
        assert core.role is Role.PROSPECTIVE
    else:
        assert role.fetch_deadline_ms == core.state.now_ms + pause_ms  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("longest_ms", "pauses_ms"), [(50, [20, 40, 50, 50]), (1_000, [62, 124, 248, 496]), (5, [5, 5, 5, 5])]
)
def test_of_many_successors_no_two_stand_as_soon_as_the_leader_leaves(longest_ms: int, pauses_ms: list[int]) -> None:
    """Kafka's shortest pause comes to nothing where `longest` is short, and then every vote would be split."""
    for rank, pause_ms in enumerate(pauses_ms, start=1):
        others = [3, 4, 5, 6, 7]
        candidates = (*others[:rank], 1, *others[rank:])[:5]
        core = follower(1, epoch=5, leader_id=2, election_backoff_max_ms=longest_ms)
        tell(core, end_request(epoch=5, leader_id=2, candidates=candidates))
        role = core.state.role_state

        assert role.fetch_deadline_ms == core.state.now_ms + pause_ms  # type: ignore[union-attr]


def refuse_pre_votes(core: Replica) -> None:
    for voter_id in (2, 3):
        answer_vote(core, voter_id, granted=False, pre_vote=True)


def test_a_successor_that_is_refused_by_who_has_not_heard_of_it_asks_again_at_once_and_ever_less_often() -> None:
    """Its request may be faster than the leader's good-bye to the others; they hear that any moment."""
    core = follower(1, epoch=5, leader_id=2)
    tell(core, end_request(epoch=5, leader_id=2, candidates=(1, 3)))
    began_ms, pauses = core.state.now_ms, []
    for answered_after_ms in (0, 1, 1, 1, 1, 1, 1, 1, 1, 1):
        core.state.now_ms += answered_after_ms
        answer_vote(core, 2, granted=False, pre_vote=True)
        assert core.role is Role.PROSPECTIVE
        pauses.append(core.deadline_ms() - core.state.now_ms)
        asked = requests(core.handle(TimeoutReached(), core.deadline_ms()), VoteRequest)
        assert [request.destination for request in asked] == [2]

    assert pauses[:4] == [1, 2, 5, 11]
    assert core.state.now_ms > began_ms + 100
    backoff_ms = core.state.config.retry_backoff_ms
    assert all(backoff_ms <= pause < 2 * backoff_ms for pause in pauses[5:])


def test_a_successor_that_is_refused_by_one_asks_it_again_while_another_cannot_be_asked() -> None:
    """A minority that refuses does not lose the pre-vote, and a majority may be had of those who do now."""
    core = follower(1, epoch=5, leader_id=2)
    tell(core, end_request(epoch=5, leader_id=2, candidates=(1, 3)))
    answer_vote(core, 3, granted=False, pre_vote=True)

    asked = requests(core.handle(TimeoutReached(), core.deadline_ms()), VoteRequest)
    assert [request.destination for request in asked] == [3]
    answer_vote(core, 3, granted=True, pre_vote=True)
    assert core.role is Role.CANDIDATE


def test_a_leader_that_left_and_leads_again_in_a_new_epoch_is_followed_as_any_other() -> None:
    core = follower(1, epoch=5, leader_id=2)
    tell(core, end_request(epoch=5, leader_id=2, candidates=(1, 3)))
    tell(core, begin_request(epoch=6, leader_id=2), request_id=79)
    role = core.state.role_state
    assert isinstance(role, Follower)
    assert role.fetch_deadline_ms == core.state.now_ms + core.state.config.fetch_timeout_ms


def test_who_is_not_the_first_successor_goes_back_to_waiting() -> None:
    core = follower(1, epoch=5, leader_id=2)
    tell(core, end_request(epoch=5, leader_id=2, candidates=(3, 1)))
    core.handle(TimeoutReached(), core.deadline_ms())
    assert core.role is Role.PROSPECTIVE
    refuse_pre_votes(core)
    role = core.state.role_state
    assert isinstance(role, Follower)
    assert role.fetch_deadline_ms == core.state.now_ms + core.state.config.fetch_timeout_ms


def test_an_answer_that_comes_after_the_good_bye_is_no_sign_of_life() -> None:
    """It was on its way on another connection: the successor must not wait for a fetch timeout because of it."""
    core = in_role("follower, fetched")
    tell(core, end_request(epoch=5, leader_id=3, candidates=(2, 1)), request_id=78)
    role = core.state.role_state
    assert isinstance(role, Follower)
    deadline_ms = role.fetch_deadline_ms
    core.state.now_ms += 1
    reply(core, 3, fetch_response(epoch=5, leader_id=3))

    assert core.role is Role.FOLLOWER
    assert role.fetch_deadline_ms == deadline_ms
    assert partition_of(
        ask(core, vote_request(epoch=5, last=LONG, pre_vote=True), version=2, request_id=79)
    ).vote_granted


def test_a_leader_that_answers_that_it_leads_no_more_is_as_good_as_one_that_says_good_bye() -> None:
    """Its EndQuorumEpoch may be lost while it answers the Fetch that it held: the successor must not lose its round."""
    core = in_role("follower, fetched")
    request = vote_request(epoch=5, last=LONG, pre_vote=True)
    reply(core, 3, fetch_response(epoch=5, leader_id=3, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert core.role is Role.FOLLOWER

    assert partition_of(ask(core, request, version=2)).vote_granted


def test_a_restarted_leader_says_that_it_leaves_with_an_empty_list() -> None:
    """As captured from Kafka; it does not know who is caught up."""
    core = replica(1, 1, election=ElectionState(epoch=5, leader_id=1))
    outstanding = [request.request for request in pending_requests(core)]

    assert [type(request) for request in outstanding] == [EndQuorumEpochRequest] * 2
    assert partition_of(outstanding[0]).preferred_candidates == ()


def test_a_begin_says_which_disk_it_is_meant_for() -> None:
    keys = [ReplicaKey(number, uuid.UUID(int=number)) for number in (1, 2, 3)]
    core = leader(1, voters=voter_set(*keys), directory_id=keys[0].directory_id)
    request = outstanding_to(core, 3).request

    assert isinstance(request, BeginQuorumEpochRequest)
    assert (request.voter_id, partition_of(request).voter_directory_id) == (3, keys[2].directory_id)


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
