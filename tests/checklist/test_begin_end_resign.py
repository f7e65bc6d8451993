"""Checklist section 2: BeginQuorumEpoch, EndQuorumEpoch and resigning."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import AnnounceLeader, PersistElection, SendResponse
from kraftlib.consensus.events import ResignRequested, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.types import ElectionState, Endpoint, LeaderAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from tests.consensus.build import (
    LISTENER,
    answer_vote,
    ask,
    begin_request,
    end_request,
    fetch_request,
    flush,
    follower,
    leader,
    partition_of,
    replica,
    reply,
    requests,
    tell,
    told_of,
    voter_set,
)


def fetch(core: Replica, replica_id: int, request_id: int = 60, *, at_ms: int | None = None, offset: int = -1) -> Any:
    """A Fetch at the end of the leader's log."""
    log = core.state.log
    wanted = log.end_offset if offset < 0 else offset
    request = fetch_request(epoch=core.epoch, offset=wanted, last_epoch=log.last_epoch, replica_id=replica_id)
    return tell(core, request, version=18, request_id=request_id, now_ms=at_ms)


# --- BeginQuorumEpoch ------------------------------------------------------------------------------------------------


def test_more_endpoints_of_the_same_leader_replace_those_that_are_known() -> None:
    """testHandleBeginQuorumRequestMoreEndpoints; QuorumStateTest, same-epoch more endpoints allowed: fewer are not."""
    core = follower(1, epoch=5, leader_id=2)
    kind = BeginQuorumEpochRequest.LeaderEndpoint
    places = (kind(name=LISTENER, host="moved", port=7), kind(name="OTHER", host="moved", port=8))
    answer = partition_of(ask(core, begin_request(epoch=5, leader_id=2, leader_endpoints=places)))

    assert (answer.error_code, answer.leader_id) == (0, 2)
    ask(core, begin_request(epoch=5, leader_id=2), request_id=78)
    assert core.leader_endpoints == {LISTENER: Endpoint("moved", 7), "OTHER": Endpoint("moved", 8)}


def test_an_answer_to_begin_of_a_newer_epoch_takes_a_leader_or_a_resigned_one_there() -> None:
    """testHandleBeginQuorumResponse."""
    led = leader(1)
    answer = told_of(BeginQuorumEpochResponse, 3, epoch=led.epoch + 1, error=ErrorCode.FENCED_LEADER_EPOCH)
    reply(led, 2, answer)
    assert led.leader_and_epoch == LeaderAndEpoch(3, 3)

    resigned = replica(1, election=ElectionState(epoch=5, leader_id=1))
    answer = told_of(EndQuorumEpochResponse, 3, epoch=6, error=ErrorCode.FENCED_LEADER_EPOCH)
    reply(resigned, 2, answer)
    assert resigned.leader_and_epoch == LeaderAndEpoch(3, 6)


# --- resigning -------------------------------------------------------------------------------------------------------


def test_end_is_repeated_only_to_those_that_did_not_acknowledge_it() -> None:
    """testEndQuorumEpochRetriesWhileResigned: after the request timeout."""
    core = leader(1)
    core.handle(ResignRequested(core.epoch), core.state.now_ms)
    core.state.role_state.election_deadline_ms += 60_000  # type: ignore[union-attr]
    reply(core, 2, told_of(EndQuorumEpochResponse, 1, epoch=core.epoch))
    start = core.state.now_ms
    assert not requests(core.handle(TimeoutReached(), start + 1_999), EndQuorumEpochRequest)
    actions = core.handle(TimeoutReached(), start + 2_000) + core.handle(TimeoutReached(), start + 2_100)

    assert [request.destination for request in requests(actions, EndQuorumEpochRequest)] == [3]


def test_a_leader_that_resigned_serves_nobody_and_leaves_the_epoch_in_time() -> None:
    """testElectionTimeoutAfterUserInitiatedResign: acknowledged by all, it says nothing more; then nobody leads E+1."""
    core = leader(1)
    epoch = core.epoch
    core.handle(ResignRequested(epoch), core.state.now_ms)
    for voter_id in (2, 3):
        actions = reply(core, voter_id, told_of(EndQuorumEpochResponse, 1, epoch=epoch))
        assert not requests(actions, EndQuorumEpochRequest)
    (sent,) = [action for action in fetch(core, 2) if isinstance(action, SendResponse)]
    partition = partition_of(sent.response)
    assert (partition.error_code, partition.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
    actions = core.handle(TimeoutReached(), core.state.role_state.election_deadline_ms)  # type: ignore[union-attr]

    assert AnnounceLeader(LeaderAndEpoch(None, epoch + 1)) in actions
    assert core.leader_and_epoch == LeaderAndEpoch(None, epoch + 1)


NOT_OURS_TO_RESIGN = {
    "testResignInOlderEpochIgnored": (leader(1), 1),
    "testCannotResignWithLargerEpochThanCurrentEpoch": (leader(1), 9),
    "testCannotResignIfNotLeader": (follower(1, epoch=5, leader_id=2), 5),
    "testCannotResignIfObserver": (follower(1, epoch=5, leader_id=2, own_id=9), 5),
}


@pytest.mark.parametrize(("core", "epoch"), NOT_OURS_TO_RESIGN.values(), ids=NOT_OURS_TO_RESIGN)
def test_only_the_leader_of_an_epoch_resigns_it(core: Replica, epoch: int) -> None:
    """The core ignores what the client refuses."""
    before = core.role, core.epoch

    assert not requests(core.handle(ResignRequested(epoch), core.state.now_ms), EndQuorumEpochRequest)
    assert (core.role, core.epoch) == before


# --- EndQuorumEpoch --------------------------------------------------------------------------------------------------


def test_an_unattached_replica_learns_its_leader_by_its_farewell_and_stands_at_once() -> None:
    """testEndQuorumStartsNewElectionImmediatelyIfFollowerUnattached."""
    core = replica(1, election=ElectionState(epoch=5))
    actions = tell(core, end_request(epoch=5, leader_id=2, candidates=(1, 3)))

    assert PersistElection(ElectionState(epoch=5, leader_id=2), 0) in actions
    assert core.role is Role.PROSPECTIVE


def test_successors_are_named_by_how_far_they_are() -> None:
    """testEndQuorumEpochSentBasedOnFetchOffset, LeaderStateTest, successor order: by offset and then by id."""
    core = replica(1, 1, 1, voters=voter_set(1, 2, 3, 4, 5))
    core.handle(TimeoutReached(), core.state.role_state.election_deadline_ms)  # type: ignore[union-attr]
    for pre_vote in (True, False):
        for voter_id in (2, 3):
            answer_vote(core, voter_id, granted=True, pre_vote=pre_vote)
    flush(core)
    for voter_id, offset in ((5, 3), (3, 4)):
        request = fetch_request(
            epoch=core.epoch, offset=offset, last_epoch=1 if offset == 3 else 2, replica_id=voter_id
        )
        tell(core, request, version=18, request_id=voter_id)
    actions = core.handle(ResignRequested(core.epoch), core.state.now_ms + 2_500)
    (first, *_) = requests(actions, EndQuorumEpochRequest)

    assert [row.candidate_id for row in partition_of(first.request).preferred_candidates] == [3, 5, 2, 4]


# --- check quorum ----------------------------------------------------------------------------------------------------
