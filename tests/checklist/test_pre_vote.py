"""Checklist section 11: pre-votes (KafkaRaftClientPreVoteTest, ProspectiveStateTest, EpochElectionTest)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftlib.consensus.actions import PersistElection
from kraftlib.consensus.events import Failure, RequestFailed, ResponseReceived, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Prospective, Role, Unattached
from kraftlib.consensus.voters import Tally
from kraftlib.types import METADATA_TOPIC, ElectionState, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus.build import (
    answer_vote,
    ask,
    begin_request,
    fetch_response,
    follower,
    leader,
    outstanding_to,
    partition_of,
    place,
    replica,
    reply,
    tell,
    vote_request,
    voter_set,
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


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("last", "granted"), [((9, EPOCH), True), ((1, 1), False)])
def test_a_pre_vote_of_a_higher_epoch_is_believed_first(role: str, last: tuple[int, int], granted: bool) -> None:
    """KafkaRaftClientPreVoteTest, higher epoch: Unattached, durably; then it is decided."""
    core = ROLES[role][0]()
    actions = tell(core, vote_request(epoch=EPOCH + 1, last=last, pre_vote=True), version=2)

    assert PersistElection(ElectionState(epoch=EPOCH + 1), 0) in actions
    assert isinstance(core.state.role_state, Unattached)
    assert core.state.role_state.voted_key is None
    assert partition_of(next(a.response for a in actions if hasattr(a, "response"))).vote_granted is granted


@pytest.mark.parametrize("role", ROLES)
def test_a_pre_vote_of_an_older_epoch_is_fenced(role: str) -> None:
    """KafkaRaftClientPreVoteTest, older epoch: FENCED_LEADER_EPOCH with ours."""
    core = ROLES[role][0]()
    answer = partition_of(ask(core, vote_request(epoch=EPOCH - 1, last=(9, 1), pre_vote=True), version=2))

    assert (answer.error_code, answer.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, EPOCH)


@pytest.mark.parametrize(("last_epoch", "error"), [(EPOCH, 0), (EPOCH + 1, ErrorCode.INVALID_REQUEST)])
def test_a_log_may_be_as_new_as_the_epoch_it_asks_in_and_no_newer(last_epoch: int, error: int) -> None:
    """KafkaRaftClientPreVoteTest, last epoch above the epoch; a binding vote asks in the epoch after its log's."""
    core = ROLES["unattached"][0]()

    assert (
        partition_of(ask(core, vote_request(epoch=EPOCH, last=(9, last_epoch), pre_vote=True), version=2)).error_code
        == error
    )


def test_a_pre_vote_for_another_voter_or_cluster_is_refused() -> None:
    """KafkaRaftClientPreVoteTest, voter key and cluster id checks."""
    core = replica(1, 1, election=ElectionState(epoch=EPOCH), directory_id=UUID(int=1_001))
    for voter_id, disk in ((2, 1_001), (1, 9_999)):
        request = vote_request(
            epoch=EPOCH, last=(9, 1), pre_vote=True, voter_id=voter_id, voter_directory_id=UUID(int=disk)
        )
        answer = partition_of(ask(core, request, version=2))
        assert (answer.error_code, answer.vote_granted) == (ErrorCode.INVALID_VOTER_KEY, False)
    request = vote_request(epoch=EPOCH, last=(9, 1), pre_vote=True, cluster_id="other")

    assert ask(core, request, version=2).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def pre_vote_answer(*, granted: bool, leader_id: int = -1) -> VoteResponse:
    """An answer to a pre-vote."""
    partition = VoteResponse.PartitionData(leader_id=leader_id, leader_epoch=EPOCH, vote_granted=granted)
    endpoints = ()
    if leader_id >= 0:
        where = place(leader_id)
        endpoints = (VoteResponse.NodeEndpoint(node_id=leader_id, host=where.host, port=where.port),)
    topics = (VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),)
    return VoteResponse(topics=topics, node_endpoints=endpoints)


def test_pre_votes_that_come_late_change_nothing() -> None:
    """KafkaRaftClientPreVoteTest, responses ignored after becoming follower."""
    core = prospective()
    late = [outstanding_to(core, voter_id).correlation_id for voter_id in (2, 3)]
    ask(core, begin_request(epoch=EPOCH, leader_id=2))
    for number in late:
        core.handle(ResponseReceived(number, pre_vote_answer(granted=True)), core.state.now_ms)

    assert core.leader_and_epoch == LeaderAndEpoch(2, EPOCH)


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


def test_a_leader_that_introduces_itself_ends_the_pre_vote() -> None:
    """KafkaRaftClientPreVoteTest, Begin while Prospective: Follower, of the same epoch as well."""
    core = prospective()
    ask(core, begin_request(epoch=EPOCH, leader_id=2))

    assert core.leader_and_epoch == LeaderAndEpoch(2, EPOCH)


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
    reply(core, 2, pre_vote_answer(granted=True, leader_id=3))

    assert core.leader_and_epoch == LeaderAndEpoch(3, EPOCH)


def test_a_pre_vote_without_an_answer_is_asked_for_again() -> None:
    """KafkaRaftClientPreVoteTest, request timeout repeats."""
    core = prospective(request_timeout_ms=600, fetch_max_wait_ms=500)
    first = outstanding_to(core, 2)
    start = core.state.now_ms
    core.handle(TimeoutReached(), start + 600)
    core.handle(TimeoutReached(), start + 700)
    second = outstanding_to(core, 2)

    assert (second.correlation_id != first.correlation_id, second.request) == (True, first.request)
    assert isinstance(second.request, VoteRequest)


# --- the tally -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("voters", "granted", "rejected", "won", "lost"),
    [
        ((1,), {1}, set(), True, False),
        ((1, 2), {1}, set(), False, False),
        ((1, 2), {1, 2}, set(), True, False),
        ((1, 2), {1}, {2}, False, True),
        ((1, 2, 3), {1}, {2}, False, False),
        ((1, 2, 3), {1, 2}, {3}, True, False),
        ((1, 2, 3), {1}, {2, 3}, False, True),
    ],
)
def test_an_election_is_won_and_lost_by_majorities(
    voters: tuple[int, ...], granted: set[int], rejected: set[int], won: bool, lost: bool
) -> None:
    """EpochElectionTest, CandidateStateTest: majorities and rejections of one, two and three voters."""
    tally = Tally(voter_set(*voters))
    for voter_id in granted:
        tally.record(voter_id, True)
    for voter_id in rejected:
        tally.record(voter_id, False)
    tally.record(9, True)

    assert (tally.won, tally.lost) == (won, lost)
    assert tally.unanswered() == [voter_id for voter_id in voters if voter_id not in granted | rejected]


def test_in_a_pre_vote_an_answer_may_change() -> None:
    """ProspectiveStateTest, EpochElectionTest: the last one counts; repeated ones count once."""
    tally = Tally(voter_set(1, 2, 3))
    tally.record(1, True)
    for granted in (False, True, True):
        tally.record(2, granted)

    assert (tally.won, tally.granted, tally.rejected) == (True, {1, 2}, set())


def test_a_vote_that_was_cast_survives_the_pre_vote() -> None:
    """ProspectiveStateTest, votes kept: and one may be cast meanwhile, durably."""
    core = replica(1, 1, election=ElectionState(epoch=EPOCH, voted_key=ReplicaKey(3)))
    core.handle(TimeoutReached(), core.state.role_state.election_deadline_ms)  # type: ignore[union-attr]
    assert isinstance(core.state.role_state, Prospective)
    assert core.state.election == ElectionState(epoch=EPOCH, voted_key=ReplicaKey(3))
    answer = partition_of(ask(core, vote_request(epoch=EPOCH, last=(9, 1), replica_id=2), version=2))
    assert not answer.vote_granted

    core = prospective()
    actions = tell(core, vote_request(epoch=EPOCH, last=(9, 1), replica_id=2), version=2)
    assert PersistElection(ElectionState(epoch=EPOCH, voted_key=ReplicaKey(2)), 0) in actions
    assert core.role is Role.PROSPECTIVE
