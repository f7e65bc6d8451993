"""Votes, and who may say what about leaders (KIP-595, Vote, BeginQuorumEpoch and EndQuorumEpoch; KIP-996)."""

from __future__ import annotations

import uuid
from typing import Any

import attrs
import pytest

from kraftlib.consensus.actions import PersistElection, SendResponse
from kraftlib.consensus.events import Failure, RequestFailed, ResponseReceived, TimeoutReached
from kraftlib.consensus.roles import Candidate, Prospective, Role
from kraftlib.records.batch import encode_batch
from kraftlib.types import ElectionState, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus.build import (
    EQUAL,
    LONG,
    SHORT,
    answer_vote,
    ask,
    fetch_response,
    flush,
    follower,
    in_role,
    leader,
    outstanding_to,
    partition_of,
    replica,
    reply,
    requests,
    tell,
    told_of,
    vote_request,
    voter_set,
)

DISK, OTHER_DISK = uuid.UUID(int=1_000), uuid.UUID(int=2_000)

VOTE_TABLE = [
    # role                     pre-vote: long, equal, short     vote: long, equal, short
    ("leader",                 (False, False, False),           (False, False, False)),
    ("follower, not fetched",  (True, True, False),             (False, False, False)),
    ("follower, fetched",      (False, False, False),           (False, False, False)),
    ("candidate",              (True, True, False),             (False, False, False)),
    ("resigned",               (True, True, False),             (False, False, False)),
    ("unattached",             (True, True, False),             (True, True, False)),
    ("prospective",            (True, True, False),             (True, True, False)),
    ("voted for 2",            (True, True, False),             (True, True, True)),
    ("voted for 3",            (True, True, False),             (False, False, False)),
]  # fmt: skip


@pytest.mark.parametrize(("role", "pre_votes", "votes"), VOTE_TABLE, ids=[row[0] for row in VOTE_TABLE])
def test_votes_in_the_own_epoch_follow_the_table(
    role: str, pre_votes: tuple[bool, ...], votes: tuple[bool, ...]
) -> None:
    """The answer of each role to a Vote of its own epoch (KIP-595, Vote; KIP-996)."""
    for pre_vote, expected in ((True, pre_votes), (False, votes)):
        for last, granted in zip((LONG, EQUAL, SHORT), expected, strict=True):
            core = in_role(role)
            request = vote_request(epoch=5, last=(last[0] + (role == "leader"), last[1]), pre_vote=pre_vote)
            answer = partition_of(ask(core, request, version=2))

            assert (answer.error_code, answer.vote_granted) == (ErrorCode.NONE, granted), (pre_vote, last)


@pytest.mark.parametrize("role", [row[0] for row in VOTE_TABLE])
def test_a_pre_vote_changes_nothing(role: str) -> None:
    """Not the role, nor a timer, nor anything on disk (scenario E12)."""
    core = in_role(role)
    before = (core.role, core.epoch, core.state.election, core.deadline_ms())
    actions = tell(core, vote_request(epoch=5, last=LONG, pre_vote=True), version=2)

    assert (core.role, core.epoch, core.state.election, core.deadline_ms()) == before
    assert not [action for action in actions if isinstance(action, PersistElection)]


def test_a_vote_is_durable_before_it_is_spoken() -> None:
    """The order of the actions is the promise (scenario E1)."""
    actions = tell(in_role("unattached"), vote_request(epoch=5, last=LONG), version=2)
    kinds = [type(action) for action in actions]

    assert kinds.index(PersistElection) < kinds.index(SendResponse)
    assert actions[0].election == ElectionState(epoch=5, voted_key=ReplicaKey(2))


def test_the_same_id_with_another_disk_is_another_candidate() -> None:
    """A vote is given to a key, not to an id (KIP-853)."""
    core = in_role("unattached")
    assert partition_of(ask(core, vote_request(epoch=5, last=LONG, replica_directory_id=DISK), version=2)).vote_granted
    other = ask(core, vote_request(epoch=5, last=LONG, replica_directory_id=OTHER_DISK), version=2, request_id=78)

    assert not partition_of(other).vote_granted


def test_a_vote_for_another_voter_is_refused_and_its_epoch_is_believed() -> None:
    """testInvalidVoterReplicaVoteRequest of Kafka: the epoch *is* adopted, and is durable before the answer."""
    core = in_role("unattached")
    actions = tell(core, vote_request(epoch=6, last=LONG, voter_id=3), version=2)

    (answer,) = [action for action in actions if isinstance(action, SendResponse)]
    assert (partition_of(answer.response).error_code, core.epoch) == (ErrorCode.INVALID_VOTER_KEY, 6)
    assert [type(action) for action in actions].index(PersistElection) < actions.index(answer)


def test_an_epoch_that_jumps_closes_the_connection() -> None:
    """One such message would leave no epochs for elections to come (scenario E17)."""
    core = in_role("unattached")
    actions = tell(core, vote_request(epoch=2**31 - 1, last=LONG), version=2)

    assert actions == [SendResponse(77, None)]
    assert (core.epoch, core.state.refused) == (5, {"epoch jump": 1})


def test_an_observer_grants_a_pre_vote_when_its_leader_has_been_silent_for_the_fetch_timeout() -> None:
    """It has no timer of its own, and may be the voter whose vote is needed (scenario M9)."""
    core = follower(1, 1, own_id=9, epoch=5, leader_id=3)
    reply(core, 3, fetch_response(epoch=5, leader_id=3, high_watermark=0))
    deadline_ms = core.state.role_state.fetch_deadline_ms  # type: ignore[union-attr]

    tries = [(deadline_ms - 1, LONG, False), (deadline_ms, LONG, True)]
    tries += [(deadline_ms, last, granted) for last, granted in (((1, 1), False), ((2, 1), True), ((2, 2), True))]
    for now_ms, last, granted in tries:
        answer = ask(core, vote_request(epoch=5, last=last, pre_vote=True), version=2, now_ms=now_ms)
        assert partition_of(answer).vote_granted is granted
    assert (core.role, core.epoch) == (Role.FOLLOWER, 5)


def test_an_answer_to_an_earlier_election_counts_for_nothing() -> None:
    """A change of role forgets what was asked before (scenario E6)."""
    core = in_role("prospective")
    old = outstanding_to(core, 2).correlation_id
    answer_vote(core, 3, granted=True, pre_vote=True)
    assert core.role is Role.CANDIDATE
    core.handle(ResponseReceived(old, told_of(VoteResponse, epoch=6, vote_granted=True)), core.state.now_ms)

    assert core.role is Role.CANDIDATE


def test_a_candidate_asks_for_votes_only_when_its_log_is_flushed() -> None:
    """Records of its own that others have committed may not be on its disk yet. After a crash it is granted the same
    votes again, and would lead without them."""
    core = leader()
    end_offset = core.state.log.end_offset
    assert core.state.log.flushed_offset < end_offset
    tell(core, vote_request(epoch=5, replica_id=3))
    actions: list[Any] = []
    while core.role is not Role.PROSPECTIVE:
        actions = core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert {vote.destination for vote in requests(actions, VoteRequest)} == {2, 3}, "a pre-vote binds nobody"

    actions = answer_vote(core, 2, granted=True, pre_vote=True)
    assert core.role is Role.CANDIDATE
    assert requests(actions, VoteRequest) == []
    assert requests(core.handle(TimeoutReached(), core.state.now_ms + 1), VoteRequest) == []
    votes = requests(flush(core), VoteRequest)
    assert [(vote.destination, partition_of(vote.request).last_offset) for vote in votes] == [
        (2, end_offset),
        (3, end_offset),
    ]


def test_a_candidate_does_not_stand_again_because_a_peer_knows_no_vote() -> None:
    """Only the pre-vote can be done without."""
    core = in_role("candidate")
    core.handle(TimeoutReached(), core.state.now_ms)
    number = outstanding_to(core, 2).correlation_id
    core.handle(RequestFailed(number, Failure.UNSUPPORTED_VERSION), core.state.now_ms)

    assert (core.role, core.epoch) == (Role.CANDIDATE, 5)
    assert core.state.connections.is_backing_off(2, core.state.now_ms)


@pytest.mark.parametrize(
    ("voters", "own_id", "expected"), [((1,), 1, True), ((1, 2), 1, True), ((1, 2, 3), 1, False), ((2,), 1, False)]
)
def test_who_is_in_every_majority_is_indispensable(voters: tuple[int, ...], own_id: int, expected: bool) -> None:
    """Nobody else can be elected, so nobody else could repair its log."""
    assert replica(own_id=own_id, voters=voter_set(*voters)).is_indispensable is expected


@pytest.mark.parametrize("count", [0, 2])
def test_a_vote_about_not_exactly_one_topic_is_refused_at_top_level(count: int) -> None:
    core = in_role("unattached")
    request = vote_request(epoch=6, last=LONG)
    response = ask(core, attrs.evolve(request, topics=request.topics * count), version=2)

    assert (response.error_code, response.topics, core.epoch) == (ErrorCode.INVALID_REQUEST, (), 5)


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


def test_a_grant_beside_an_error_counts_for_nothing() -> None:
    core = in_role("candidate")
    reply(core, 2, told_of(VoteResponse, epoch=5, error=ErrorCode.INVALID_VOTER_KEY, vote_granted=True))

    assert core.role is Role.CANDIDATE


def test_a_pre_vote_that_fails_is_no_reason_to_stand() -> None:
    core = in_role("prospective")
    core.handle(RequestFailed(outstanding_to(core, 2).correlation_id, Failure.DISCONNECTED), core.state.now_ms)

    assert (core.role, core.epoch, core.state.connections.failures(2)) == (Role.PROSPECTIVE, 5, 1)
