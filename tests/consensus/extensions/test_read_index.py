"""Read barriers: whose word counts, for whom, and who learns that nothing is known; see the scripts, too."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import PassReadBarrier, RefuseReadBarrier, SendRequest, SendResponse
from kraftlib.consensus.events import (
    Failure,
    Flushed,
    ReadBarrierRequested,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    TimeoutReached,
)
from kraftlib.consensus.extensions.read_index import lane_to
from kraftlib.consensus.outstanding import FIRST_LANE
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.types import METADATA_TOPIC
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest, ReadBarrierResponse
from tests.consensus.build import (
    CLUSTER,
    answer_vote,
    begin_request,
    fetch_request,
    follower,
    leader,
    outstanding_to,
    replica,
    voter_set,
)
from tests.consensus.test_deadlines import leader_of


def proven(core: Replica) -> Replica:
    """A leader whose first record is committed, and which nobody owes an answer."""
    state = core.state
    core.handle(Flushed(state.log.end_offset, state.log.log_version), state.now_ms)
    for progress in state.role_state.progress.values():  # type: ignore[union-attr]
        progress.end_offset = state.log.end_offset
    state.high_watermark = state.log.end_offset
    for voter in state.voters.others(state.key):
        answer_begin(core, voter.key.id)
    return core


def answer_begin(core: Replica, voter_id: int, *, error: int = 0, epoch: int | None = None) -> list[Any]:
    """Answer the BeginQuorumEpoch that is outstanding to a voter."""
    outstanding = outstanding_to(core, voter_id)
    assert isinstance(outstanding.request, BeginQuorumEpochRequest)
    partition = BeginQuorumEpochResponse.PartitionData(
        partition_index=0,
        error_code=error,
        leader_id=core.key.id if epoch is None else -1,
        leader_epoch=core.epoch if epoch is None else epoch,
    )
    topic = BeginQuorumEpochResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    response = BeginQuorumEpochResponse(error_code=0, topics=(topic,))
    return core.handle(ResponseReceived(outstanding.correlation_id, response), core.state.now_ms)


def ask(core: Replica, number: int = 1, *, timeout_ms: int = 1_000) -> list[Any]:
    """The application of this replica asks."""
    return core.handle(ReadBarrierRequested(number, timeout_ms), core.state.now_ms)


def is_asked_again(core: Replica, at_ms: int) -> bool:
    """Whether the leader, which is 2, is asked again then."""
    asked = only(core.handle(TimeoutReached(), at_ms), SendRequest)
    return lane_to(2) in [one.destination for one in asked if isinstance(one.request, ReadBarrierRequest)]


def ask_from_afar(
    core: Replica, request_id: int = 9, *, cluster_id: str | None = CLUSTER, ms: int = 1_000
) -> list[Any]:
    """Another replica asks."""
    request = ReadBarrierRequest(cluster_id=cluster_id, replica_id=3, timeout_ms=ms)
    return core.handle(RequestReceived(request_id, request, 0), core.state.now_ms)


def only(actions: list[Any], kind: type) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def test_a_sole_voter_needs_nobody() -> None:
    core = replica(voters=voter_set(1))
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    state = core.state
    core.handle(Flushed(state.log.end_offset, state.log.log_version), state.now_ms)

    assert only(ask(core), PassReadBarrier) == [PassReadBarrier(1, state.log.end_offset)]


@pytest.mark.parametrize(("count", "needed"), [(2, 1), (3, 1), (4, 2), (5, 2), (7, 3)])
def test_a_majority_with_ourselves_confirms(count: int, needed: int) -> None:
    core = proven(leader(voters=voter_set(*range(1, count + 1))) if count <= 3 else leader_of(count))
    assert only(ask(core), PassReadBarrier) == []
    for voter_id in range(2, 1 + needed):
        assert only(answer_begin(core, voter_id), PassReadBarrier) == []

    assert only(answer_begin(core, 1 + needed), PassReadBarrier) == [PassReadBarrier(1, core.high_watermark)]


def test_a_leader_that_is_no_voter_any_more_does_not_confirm_itself() -> None:
    """It leads on until its removal is committed, and two of the two that are left must say that it does."""
    core = proven(leader())
    core.state.log.voters.add(core.state.log.end_offset, voter_set(2, 3))
    ask(core)
    assert only(answer_begin(core, 2), PassReadBarrier) == []
    assert only(answer_begin(core, 3), PassReadBarrier) == [PassReadBarrier(1, core.high_watermark)]


def test_an_answer_to_a_question_from_before_the_read_confirms_nothing() -> None:
    """It may have been given before somebody else was elected."""
    core = proven(leader())
    ask(core, 1)
    ask(core, 2)

    assert only(answer_begin(core, 2), PassReadBarrier) == [PassReadBarrier(1, core.high_watermark)]
    # Voter 3 still owes its answer to the question of the first round.
    assert only(answer_begin(core, 3), PassReadBarrier) == []
    assert only(answer_begin(core, 2), PassReadBarrier) == [PassReadBarrier(2, core.high_watermark)]


@pytest.mark.parametrize("error", [ErrorCode.INVALID_VOTER_KEY, ErrorCode.BROKER_NOT_AVAILABLE])
def test_an_error_confirms_nothing(error: ErrorCode) -> None:
    core = proven(leader())
    ask(core)

    assert only(answer_begin(core, 2, error=error), PassReadBarrier) == []
    assert only(answer_begin(core, 3), PassReadBarrier) == [PassReadBarrier(1, core.high_watermark)]


def test_a_voter_of_a_newer_epoch_ends_the_leadership_and_not_the_read() -> None:
    core = proven(leader())
    ask(core)

    actions = answer_begin(core, 2, error=ErrorCode.FENCED_LEADER_EPOCH, epoch=core.epoch + 1)

    assert core.role.value != "leader"
    assert only(actions, PassReadBarrier) == only(actions, RefuseReadBarrier) == []
    assert len(core.state.reads) == 1


def test_the_offset_is_that_of_the_beginning_of_the_round() -> None:
    """What is committed later was not acknowledged when the read was asked for: it need not be waited for."""
    core = proven(leader())
    ask(core)
    began = core.high_watermark
    assert began is not None
    core.state.high_watermark = began + 5

    assert only(answer_begin(core, 2), PassReadBarrier) == [PassReadBarrier(1, began)]


def test_a_read_is_given_up_at_its_time_and_wakes_the_replica_for_it() -> None:
    core = proven(leader())
    ask(core, timeout_ms=40)
    deadline = core.state.now_ms + 40
    assert (core.deadline_ms() or 0) <= deadline

    assert only(core.handle(TimeoutReached(), deadline), RefuseReadBarrier) == [
        RefuseReadBarrier(1, ErrorCode.REQUEST_TIMED_OUT)
    ]
    assert core.state.reads == []


def test_another_replica_gets_the_same_word_as_our_own_callers() -> None:
    core = proven(leader())
    ask_from_afar(core)

    (answer,) = only(answer_begin(core, 2), SendResponse)

    assert (answer.request_id, answer.response.error_code, answer.response.offset) == (9, 0, core.high_watermark)


@pytest.mark.parametrize(
    ("core", "cluster_id", "error"),
    [
        (follower(1, 1), CLUSTER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (replica(1, 1), CLUSTER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (proven(leader()), "another", ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_who_cannot_know_says_so_at_once(core: Replica, cluster_id: str, error: ErrorCode) -> None:
    (answer,) = only(ask_from_afar(core, cluster_id=cluster_id), SendResponse)

    assert (answer.response.error_code, answer.response.offset) == (error, -1)
    assert core.state.reads == []


def test_a_peer_cannot_have_its_question_remembered_for_ever() -> None:
    core = proven(leader())
    ask_from_afar(core, ms=2**31 - 1)

    assert core.state.reads[0].deadline_ms <= core.state.now_ms + 600_000


def test_a_follower_asks_its_leader_beside_its_fetch() -> None:
    """On the same connection, the answer would wait until the parked Fetch is answered."""
    core = follower(1, 1)
    (question,) = [action for action in ask(core) if isinstance(action.request, ReadBarrierRequest)]

    assert question.destination == lane_to(2) <= FIRST_LANE
    assert outstanding_to(core, 2) is not None


def test_who_comes_while_the_leader_is_asked_waits_for_the_next_question() -> None:
    core = follower(1, 1)
    ask(core, 1)
    assert [action for action in ask(core, 2) if isinstance(action, SendRequest)] == []

    answer = ReadBarrierResponse(error_code=0, leader_epoch=1, offset=2)
    actions = core.handle(ResponseReceived(outstanding_to(core, lane_to(2)).correlation_id, answer), 0)

    assert only(actions, PassReadBarrier) == [PassReadBarrier(1, 2)]
    assert [action.destination for action in only(actions, SendRequest)] == [lane_to(2)]


@pytest.mark.parametrize("failure", [Failure.DISCONNECTED, Failure.MALFORMED, Failure.AUTHENTICATION])
def test_a_leader_that_was_not_reached_is_asked_again(failure: Failure) -> None:
    core = follower(1, 1)
    ask(core)
    core.handle(RequestFailed(outstanding_to(core, lane_to(2)).correlation_id, failure), 0)

    assert is_asked_again(core, 100)


def test_a_leader_that_knows_no_such_question_is_not_asked_again() -> None:
    core = follower(1, 1)
    ask(core)

    actions = core.handle(
        RequestFailed(outstanding_to(core, lane_to(2)).correlation_id, Failure.UNSUPPORTED_VERSION), 0
    )

    assert only(actions, RefuseReadBarrier) == [RefuseReadBarrier(1, ErrorCode.UNSUPPORTED_VERSION)]


def test_a_silent_leader_does_not_keep_a_follower_from_looking_for_another() -> None:
    core = follower(1, 1)
    ask(core)

    assert not core.state.connections.idle  # the Fetch
    core.state.connections.take(outstanding_to(core, 2).correlation_id)
    assert core.state.connections.idle


def test_a_question_without_an_answer_is_put_again_after_the_request_timeout() -> None:
    core = follower(1, 1, request_timeout_ms=600, fetch_timeout_ms=5_000)
    ask(core, timeout_ms=10_000)
    core.handle(TimeoutReached(), 600)

    assert is_asked_again(core, 700)


def test_who_leads_no_more_sends_others_away_and_keeps_its_own_callers() -> None:
    """Those who asked it as their leader must ask somebody else; its own callers wait for the next leader."""
    core = proven(leader())
    ask_from_afar(core)
    ask(core)
    actions = core.handle(RequestReceived(70, begin_request(epoch=core.epoch + 1), 1), core.state.now_ms)
    (answer,) = [action for action in only(actions, SendResponse) if action.request_id == 9]

    assert (answer.response.error_code, answer.response.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert [read.remote for read in core.state.reads] == [False]
    assert only(actions, RefuseReadBarrier) == []


def test_a_read_that_was_asked_of_the_last_leader_is_asked_anew_by_whoever_leads_itself() -> None:
    """What was asked of another says nothing of our own rounds."""
    core = follower(1, epoch=5, leader_id=2)
    ask(core, timeout_ms=100_000)
    assert [read.asked for read in core.state.reads] == [1]
    core.handle(TimeoutReached(), core.state.role_state.fetch_deadline_ms)  # type: ignore[union-attr]
    for pre_vote in (True, False):
        answer_vote(core, 3, granted=True, pre_vote=pre_vote)
    assert core.role is Role.LEADER
    log = core.state.log
    core.handle(Flushed(log.end_offset, log.log_version), core.state.now_ms)
    fetch = fetch_request(epoch=core.epoch, offset=log.end_offset, last_epoch=core.epoch, replica_id=3)
    actions = core.handle(RequestReceived(71, fetch, 18), core.state.now_ms)
    for _ in range(2):
        actions += answer_begin(core, 3)
    assert [(read.request, read.offset) for read in only(actions, PassReadBarrier)] == [(1, core.high_watermark)]


def test_an_offset_beside_an_error_is_no_answer() -> None:
    core = follower(1, 1)
    ask(core)
    outstanding = outstanding_to(core, lane_to(2))
    response = ReadBarrierResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, offset=1, leader_epoch=1)
    actions = core.handle(ResponseReceived(outstanding.correlation_id, response), core.state.now_ms)

    assert only(actions, PassReadBarrier) == []
    assert is_asked_again(core, 100)
