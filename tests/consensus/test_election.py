"""Votes, and who may say what about leaders (KIP-595, Vote, BeginQuorumEpoch and EndQuorumEpoch; KIP-996)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kraftlib.consensus.actions import PersistElection, SendResponse
from kraftlib.consensus.events import Failure, RequestFailed, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Role
from kraftlib.types import ElectionState, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus.build import (
    answer_vote,
    ask,
    begin_request,
    end_request,
    fetch_response,
    flush,
    follower,
    leader,
    outstanding_to,
    partition_of,
    replica,
    reply,
    requests,
    tell,
    vote_request,
    voter_set,
)

LONG, EQUAL, SHORT = (9, 1), (2, 1), (1, 1)
"""Ends of an asker's log, beside our own of two records of epoch 1."""

DISK, OTHER_DISK = uuid.UUID(int=1_000), uuid.UUID(int=2_000)


def in_role(role: str) -> Replica:
    """A replica with a log of two records of epoch 1, in a role of epoch 5."""
    match role:
        case "unattached":
            return replica(1, 1, election=ElectionState(epoch=5))
        case "voted for 2":
            return replica(1, 1, election=ElectionState(epoch=5, voted_key=ReplicaKey(2)))
        case "voted for 3":
            return replica(1, 1, election=ElectionState(epoch=5, voted_key=ReplicaKey(3)))
        case "follower, not fetched":
            return follower(1, 1, epoch=5, leader_id=3)
        case "follower, fetched":
            core = follower(1, 1, epoch=5, leader_id=3)
            reply(core, 3, fetch_response(epoch=5, leader_id=3, high_watermark=0))
            return core
        case "prospective":
            core = replica(1, 1, election=ElectionState(epoch=5))
            core.handle(TimeoutReached(), core.deadline_ms() or 0)
            assert core.role is Role.PROSPECTIVE
            return core
        case "candidate":
            return replica(1, 1, election=ElectionState(epoch=5, voted_key=ReplicaKey(1)))
        case "resigned":
            return replica(1, 1, election=ElectionState(epoch=5, leader_id=1))
        case "leader":
            return leader(1, 1, election=ElectionState(epoch=4))
    raise AssertionError(role)


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


def test_a_leader_grants_no_pre_vote_however_much_its_asker_has() -> None:
    """Only its own records are of its epoch, so only in a pre-vote can somebody have as much as it has."""
    core = in_role("leader")
    end = core.state.log.end
    for offset in (end.offset, end.offset + 7):
        answer = ask(core, vote_request(epoch=5, last=(offset, end.epoch), pre_vote=True), version=2)
        assert not partition_of(answer).vote_granted


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


def test_a_repeated_vote_is_granted_again_without_a_write() -> None:
    """The same key asked again, its first answer lost."""
    core = in_role("unattached")
    tell(core, vote_request(epoch=5, last=LONG), version=2)
    actions = tell(core, vote_request(epoch=5, last=SHORT), version=2, request_id=78)

    assert not [action for action in actions if isinstance(action, PersistElection)]
    assert partition_of(actions[0].response).vote_granted


def test_the_same_id_with_another_disk_is_another_candidate() -> None:
    """A vote is given to a key, not to an id (KIP-853)."""
    core = in_role("unattached")
    assert partition_of(ask(core, vote_request(epoch=5, last=LONG, replica_directory_id=DISK), version=2)).vote_granted
    other = ask(core, vote_request(epoch=5, last=LONG, replica_directory_id=OTHER_DISK), version=2, request_id=78)

    assert not partition_of(other).vote_granted


@pytest.mark.parametrize("role", [row[0] for row in VOTE_TABLE])
@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_higher_epoch_is_taken_over_whoever_wins(role: str, pre_vote: bool) -> None:
    """The asker's epoch is real, in a pre-vote as well: whoever is asked from it is behind."""
    core = in_role(role)
    answer = partition_of(ask(core, vote_request(epoch=6, last=SHORT, pre_vote=pre_vote), version=2))

    assert (core.epoch, core.role, answer.vote_granted) == (6, Role.UNATTACHED, False)
    assert core.state.persisted == ElectionState(epoch=6)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote_request(epoch=4, last=LONG), ErrorCode.FENCED_LEADER_EPOCH),
        (vote_request(epoch=6, last=(-1, 0)), ErrorCode.INVALID_REQUEST),
        (vote_request(epoch=6, last=(0, -1)), ErrorCode.INVALID_REQUEST),
        (vote_request(epoch=6, last=(0, 6)), ErrorCode.INVALID_REQUEST),
        (vote_request(epoch=6, last=(0, 7), pre_vote=True), ErrorCode.INVALID_REQUEST),
        (vote_request(epoch=6, replica_id=-1), ErrorCode.INVALID_REQUEST),
    ],
    ids=["old epoch", "offset below 0", "epoch below 0", "log of the vote's epoch", "log beyond it", "nobody"],
)
def test_an_impossible_vote_is_refused_and_its_epoch_not_believed(request_: VoteRequest, error: ErrorCode) -> None:
    """testInvalidVoteRequest of Kafka: the higher epoch is *not* adopted."""
    core = in_role("unattached")

    assert partition_of(ask(core, request_, version=2)).error_code == error
    assert core.epoch == 5


def test_a_vote_for_another_voter_is_refused_and_its_epoch_is_believed() -> None:
    """testInvalidVoterReplicaVoteRequest of Kafka: the epoch *is* adopted."""
    core = in_role("unattached")
    answer = partition_of(ask(core, vote_request(epoch=6, last=LONG, voter_id=3), version=2))

    assert (answer.error_code, core.epoch) == (ErrorCode.INVALID_VOTER_KEY, 6)


def test_another_cluster_changes_nothing() -> None:
    """Two clusters meet on re-used hosts (scenario M11, I17)."""
    core = in_role("unattached")
    response = ask(core, vote_request(epoch=9, last=LONG, cluster_id="other"), version=2)

    assert (response.error_code, response.topics, core.epoch) == (ErrorCode.INCONSISTENT_CLUSTER_ID, (), 5)


def test_an_epoch_that_jumps_closes_the_connection() -> None:
    """One such message would leave no epochs for elections to come (scenario E17)."""
    core = in_role("unattached")
    actions = tell(core, vote_request(epoch=2**31 - 1, last=LONG), version=2)

    assert actions == [SendResponse(77, None)]
    assert (core.epoch, core.state.refused) == (5, {"epoch jump": 1})


def test_an_observer_votes() -> None:
    """It may be a voter that does not know it yet (scenario M9)."""
    core = replica(1, 1, own_id=9, election=ElectionState(epoch=5))

    assert partition_of(ask(core, vote_request(epoch=5, last=LONG), version=2)).vote_granted
    assert not core.is_voter


def test_an_observer_grants_a_pre_vote_when_its_leader_has_been_silent_for_the_fetch_timeout() -> None:
    """It has no timer of its own, and may be the voter whose vote is needed (scenario M9)."""
    core = follower(1, 1, own_id=9, epoch=5, leader_id=3)
    reply(core, 3, fetch_response(epoch=5, leader_id=3, high_watermark=0))
    deadline_ms = core.state.role_state.fetch_deadline_ms  # type: ignore[union-attr]

    for now_ms, granted in ((deadline_ms - 1, False), (deadline_ms, True)):
        answer = ask(core, vote_request(epoch=5, last=LONG, pre_vote=True), version=2, now_ms=now_ms)
        assert partition_of(answer).vote_granted is granted
    assert (core.role, core.epoch) == (Role.FOLLOWER, 5)


def test_an_old_peer_that_knows_no_pre_vote_makes_us_stand_at_once() -> None:
    """UNSUPPORTED_VERSION, from the wire or from below it (KIP-996)."""
    core = in_role("prospective")
    number = outstanding_to(core, 2).correlation_id
    core.handle(RequestFailed(number, Failure.UNSUPPORTED_VERSION), core.state.now_ms)

    assert (core.role, core.epoch) == (Role.CANDIDATE, 6)


def test_an_answer_to_an_earlier_election_counts_for_nothing() -> None:
    """A change of role forgets what was asked before (scenario E6)."""
    core = in_role("prospective")
    old = outstanding_to(core, 2).correlation_id
    answer_vote(core, 3, granted=True, pre_vote=True)
    assert core.role is Role.CANDIDATE
    partition = VoteResponse.PartitionData(leader_id=-1, leader_epoch=6, vote_granted=True)
    response = VoteResponse(topics=(VoteResponse.TopicData(topic_name="__cluster_metadata", partitions=(partition,)),))
    from kraftlib.consensus.events import ResponseReceived

    core.handle(ResponseReceived(old, response), core.state.now_ms)

    assert core.role is Role.CANDIDATE


def test_a_lost_pre_vote_leads_back_to_the_leader() -> None:
    """If it can be reached; captured from Kafka (KIP-996)."""
    core = in_role("follower, fetched")
    core.handle(TimeoutReached(), 10_000)
    assert core.role is Role.PROSPECTIVE
    for voter_id in (2, 3):
        if core.role is Role.PROSPECTIVE:
            answer_vote(core, voter_id, granted=False, pre_vote=True)

    assert (core.role, core.leader_and_epoch) == (Role.FOLLOWER, LeaderAndEpoch(3, 5))


def test_begin_makes_a_follower_and_is_repeated_without_effect() -> None:
    """It does not restart the fetch timer (KIP-595, BeginQuorumEpoch)."""
    core = in_role("unattached")
    answer = partition_of(ask(core, begin_request(epoch=6, leader_id=2)))
    deadline = core.state.role_state.fetch_deadline_ms  # type: ignore[union-attr]
    ask(core, begin_request(epoch=6, leader_id=2), now_ms=core.state.now_ms + 100, request_id=78)

    assert (answer.error_code, answer.leader_id, core.leader_and_epoch) == (0, 2, LeaderAndEpoch(2, 6))
    assert core.state.role_state.fetch_deadline_ms == deadline  # type: ignore[union-attr]


def test_begin_meant_for_another_disk_is_refused_and_followed_all_the_same() -> None:
    """INVALID_VOTER_KEY after the transition: who leads is true for everybody."""
    core = in_role("unattached")
    answer = partition_of(ask(core, begin_request(epoch=6, leader_id=2, voter_id=3)))

    assert (answer.error_code, core.role) == (ErrorCode.INVALID_VOTER_KEY, Role.FOLLOWER)


def test_two_leaders_of_one_epoch_are_never_believed_and_never_stop_us() -> None:
    """Kafka stops; what a peer says never stops a replica of ours."""
    core = in_role("follower, fetched")
    actions = tell(core, begin_request(epoch=5, leader_id=2))

    assert actions == [SendResponse(77, None)]
    assert (core.leader_and_epoch, core.state.refused) == (LeaderAndEpoch(3, 5), {"two leaders": 1})


def test_a_leader_introduces_itself_at_once_and_only_to_those_that_do_not_fetch() -> None:
    """KAFKA-16926; each half fetch timeout."""
    core = leader(1, 1)
    first = core.state.connections
    assert {request.destination for request in first._outstanding.values()} == {2, 3}
    for voter_id in (2, 3):
        topic = BeginQuorumEpochResponse.TopicData(
            topic_name="__cluster_metadata",
            partitions=(BeginQuorumEpochResponse.PartitionData(leader_id=1, leader_epoch=core.epoch),),
        )
        reply(core, voter_id, BeginQuorumEpochResponse(topics=(topic,)))
    role = core.state.role_state
    role.progress[2].fetched(2, 3, core.state.now_ms + 900)  # type: ignore[union-attr]
    actions = core.handle(TimeoutReached(), core.state.now_ms + 1_000)

    assert [request.destination for request in requests(actions, BeginQuorumEpochRequest)] == [3]


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
    for place, pause_ms in enumerate(pauses_ms, start=1):
        others = [3, 4, 5, 6, 7]
        candidates = (*others[:place], 1, *others[place:])[:5]
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


def test_a_late_end_of_an_older_epoch_is_fenced() -> None:
    """It costs nothing (scenario E19)."""
    core = follower(1, epoch=5, leader_id=2)
    before = core.deadline_ms()

    assert partition_of(ask(core, end_request(epoch=4, leader_id=2))).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert core.deadline_ms() == before


def test_after_end_a_follower_grants_the_successors_pre_vote() -> None:
    """Beyond Kafka (scenario E11): no round is lost because it had fetched from the leader that left."""
    core = in_role("follower, fetched")
    request = vote_request(epoch=5, last=LONG, pre_vote=True)
    assert not partition_of(ask(core, request, version=2)).vote_granted
    tell(core, end_request(epoch=5, leader_id=3, candidates=(2, 1)), request_id=78)

    assert partition_of(ask(core, request, version=2, request_id=79)).vote_granted


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
    outstanding = [request.request for request in core.state.connections._outstanding.values()]

    assert [type(request) for request in outstanding] == [EndQuorumEpochRequest] * 2
    assert partition_of(outstanding[0]).preferred_candidates == ()


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
