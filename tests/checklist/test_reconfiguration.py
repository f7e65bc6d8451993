"""Checklist section 10: reconfiguration, as Kafka's KafkaRaftClientReconfigTest pins it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import SendRecords, SendRequest, SendResponse, SubmitControl, WriteSnapshotChunk
from kraftlib.consensus.events import Failure, RequestFailed, ResignRequested, TimeoutReached
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.consensus.voters import VoterSet
from kraftlib.records.control import decode_control_batch, encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from kraftlib.types import ZERO_UUID, Endpoint, LeaderAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.raft_voters import (
    AddRaftVoterResponse,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from tests.consensus.build import (
    LISTENER,
    answer_vote,
    begin_request,
    fetch_request,
    fetch_response,
    flush,
    follower,
    leader,
    outstanding_to,
    partition_of,
    pending_requests,
    place,
    replica,
    reply,
    requests,
    tell,
    voter_set,
)
from tests.consensus.test_voter_changes import (
    add_request,
    answers,
    append_submitted,
    dynamic_leader,
    dynamic_log,
    fetch,
    key,
    remove_request,
    supports,
    update_request,
)

DONE, TIMED_OUT = [ErrorCode.NONE], [ErrorCode.REQUEST_TIMED_OUT]


def submits(actions: list[Any]) -> bool:
    """Whether control records are written."""
    return any(isinstance(action, SubmitControl) for action in actions)


def commit(core: Replica, *voters: int, request_id: int = 90) -> list[Any]:
    """Our flush, and Fetches of these voters at the end."""
    actions = flush(core)
    for number, voter_id in enumerate(voters):
        actions += fetch(core, voter_id, request_id + number)
    return actions + core.handle(TimeoutReached(), core.state.now_ms)


# --- the first voters ------------------------------------------------------------------------------------------------


def test_the_first_leader_writes_what_its_bootstrap_checkpoint_says() -> None:
    """testLeaderWritesBootstrapRecords: one batch of LeaderChange, KRaftVersion, Voters."""
    core = replica(log=dynamic_log(1, 2, 3), directory_id=key(1).directory_id)
    core.handle(TimeoutReached(), core.state.role_state.election_deadline_ms)  # type: ignore[union-attr]
    answer_vote(core, 2, granted=True, pre_vote=True)
    actions = answer_vote(core, 2, granted=True, pre_vote=False)
    (batch,) = next(action.batches for action in actions if hasattr(action, "batches"))
    controls = [control for _, control in decode_control_batch(batch)]

    assert [type(control) for control in controls] == [LeaderChangeMessage, KRaftVersionRecord, VotersRecord]
    assert controls[1] == KRaftVersionRecord(kraft_version=1)
    written = VoterSet.from_record(controls[2])  # type: ignore[arg-type]
    assert [voter.key for voter in written] == [key(1), key(2), key(3)]


def test_a_static_quorum_writes_no_voters() -> None:
    """testLeaderDoesNotBootstrapRecordsWithKraftVersion0."""
    core = leader()

    assert core.state.log.end_offset == 1
    assert core.state.log.voters.latest_offset is None


def test_the_bootstrap_checkpoint_is_never_the_answer_to_a_fetch() -> None:
    """testBootstrapCheckpointIsNotReturnedOnFetch: Fetch(0) gets records."""
    core = dynamic_leader(committed=False)
    request = fetch_request(epoch=1, offset=0, last_epoch=0, replica_id=3, replica_directory_id=key(3).directory_id)
    actions = tell(core, request, version=18)

    assert [action.start_offset for action in actions if isinstance(action, SendRecords)] == [0]


def test_a_follower_does_not_ask_for_the_leaders_bootstrap_checkpoint() -> None:
    """testFollowerDoesNotRequestLeaderBootstrapSnapshot: an answer with (0, 0) begins no download."""
    core = follower(1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, snapshot=(0, 0)))
    actions = core.handle(TimeoutReached(), core.state.now_ms + 100)
    asked = [*requests(actions, FetchRequest), outstanding_to(core, 2)]

    assert {type(request.request) for request in asked} == {FetchRequest}
    assert not [action for action in actions if isinstance(action, WriteSnapshotChunk)]


def test_a_node_learns_from_uncommitted_records_that_it_votes() -> None:
    """testFollowerReadsKRaftBootstrapRecords."""
    core = follower(epoch=5, leader_id=2, own_id=3, log=LogView.build(), bootstrap_servers=(place(2),))
    assert core.role is Role.UNATTACHED
    (asked,) = pending_requests(core)
    reply(core, asked.destination, fetch_response(epoch=5, leader_id=2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert not core.is_voter
    records = [LeaderChangeMessage(leader_id=2), KRaftVersionRecord(kraft_version=1), voter_set(2, 3).to_record()]
    batch = encode_control_batch(records, timestamp_ms=0, base_offset=0, epoch=5)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, records=bytes(batch.data), high_watermark=-1))

    assert (core.is_voter, core.kraft_version, core.high_watermark) == (True, 1, None)


# --- adding ----------------------------------------------------------------------------------------------------------


def test_a_voter_is_added_once_it_answers_and_is_caught_up() -> None:
    """testAddVoter: it counts from the append on, and NONE comes with the commit."""
    core = dynamic_leader()
    probe = tell(core, add_request())
    (sent,) = [action for action in probe if isinstance(action, SendRequest)]
    assert isinstance(sent.request, ApiVersionsRequest)
    assert (sent.destination, sent.endpoint) == (4, place(4))
    actions = append_submitted(core, reply(core, 4, supports(0, 1)))
    assert key(4) in core.voters
    actions += flush(core) + fetch(core, 2, 61)
    assert answers(actions) == []

    assert answers(commit(core, 4)) == DONE


# --- what cannot be --------------------------------------------------------------------------------------------------


def a_follower() -> Replica:
    """One that leads nobody."""
    return follower(1, epoch=5, leader_id=2)


def sole_voter() -> Replica:
    """The only voter of a dynamic quorum, with everything committed."""
    core = replica(log=dynamic_log(1), directory_id=key(1).directory_id)
    flush(core)
    return core


def on(request: Any, disk: UUID) -> Any:
    """The same, of another disk."""
    return attrs.evolve(request, voter_directory_id=disk)


ADD, REMOVE, UPDATE = add_request(), remove_request(3), update_request(2, 7, epoch=1)
OTHER_DISK = UUID(int=5_555)

IMPOSSIBLE: dict[str, tuple[Callable[[], Replica], Any, ErrorCode]] = {
    "testAddVoterInvalidClusterId": (dynamic_leader, ADD, ErrorCode.INCONSISTENT_CLUSTER_ID),
    "testAddVoterToNotLeader": (a_follower, ADD, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "testAddVoterWithMissingDefaultListener": (dynamic_leader, add_request(name="OTHER"), ErrorCode.INVALID_REQUEST),
    "testAddVoterWithMissingDirectoryId": (dynamic_leader, on(ADD, ZERO_UUID), ErrorCode.INVALID_REQUEST),
    "testAddVoterWithExistingVoter": (dynamic_leader, add_request(2), ErrorCode.DUPLICATE_VOTER),
    "that voter on another disk": (dynamic_leader, on(add_request(2), OTHER_DISK), ErrorCode.DUPLICATE_VOTER),
    "testRemoveVoterInvalidClusterId": (dynamic_leader, REMOVE, ErrorCode.INCONSISTENT_CLUSTER_ID),
    "testRemoveVoterToNotLeader": (a_follower, REMOVE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "testRemoveVoterWithNoneVoter": (dynamic_leader, on(REMOVE, OTHER_DISK), ErrorCode.VOTER_NOT_FOUND),
    "testRemoveVoterWithNoneVoterId": (dynamic_leader, remove_request(9), ErrorCode.VOTER_NOT_FOUND),
    "testRemoveVoterToEmptyVoterSet": (sole_voter, remove_request(1), ErrorCode.VOTER_NOT_FOUND),
    "testUpdateVoterOldEpoch": (dynamic_leader, update_request(2, 7, epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
    "testUpdateVoterNewEpoch": (dynamic_leader, update_request(2, 7, epoch=2), ErrorCode.UNKNOWN_LEADER_EPOCH),
    "testUpdateVoterToNotLeader": (a_follower, update_request(2, 7, epoch=5), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "testUpdateVoterInvalidClusterId": (dynamic_leader, UPDATE, ErrorCode.INCONSISTENT_CLUSTER_ID),
    "testUpdateVoterWithNoneVoter": (dynamic_leader, on(UPDATE, OTHER_DISK), ErrorCode.VOTER_NOT_FOUND),
    "testUpdateVoterWithNoneVoterId": (dynamic_leader, update_request(9, 7, epoch=1), ErrorCode.VOTER_NOT_FOUND),
}


@pytest.mark.parametrize(("make", "request_", "error"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_change_that_cannot_be_is_refused_at_once(
    make: Callable[[], Replica], request_: Any, error: ErrorCode
) -> None:
    """Nobody is asked, nothing is written; whoever wants an update is told who leads."""
    core = make()
    if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
        request_ = attrs.evolve(request_, cluster_id="other")
    actions = tell(core, request_)
    (sent,) = [action for action in actions if isinstance(action, SendResponse)]

    assert sent.response.error_code == error
    assert not submits(actions)
    assert not requests(actions, ApiVersionsRequest)
    if isinstance(request_, UpdateRaftVoterRequest):
        named = sent.response.current_leader
        assert (named.leader_id, named.leader_epoch) == (core.state.leader_id, core.epoch)


def with_pending_add() -> Replica:
    """A leader that is adding voter 4."""
    core = dynamic_leader()
    tell(core, add_request(), request_id=50)
    return core


def with_pending_remove() -> Replica:
    """A leader that is removing voter 3."""
    core = dynamic_leader()
    append_submitted(core, tell(core, remove_request(3), request_id=50))
    return core


def not_committed() -> Replica:
    """A leader that has committed nothing in its epoch."""
    return dynamic_leader(committed=False)


IN_THE_WAY: dict[str, tuple[Callable[[], Replica], Any]] = {
    "testAddVoterWithPendingAddVoter": (with_pending_add, add_request(5)),
    "testAddVoterWithPendingRemoveVoter": (with_pending_remove, ADD),
    "testAddVoterWithoutFencedPreviousLeaders": (not_committed, ADD),
    "testRemoveVoterWithPendingAddVoter": (with_pending_add, REMOVE),
    "testRemoveVoterWithPendingRemoveVoter": (with_pending_remove, remove_request(2)),
    "testRemoveVoterWithoutFencedPreviousLeaders": (not_committed, REMOVE),
    "testUpdateVoterWithPendingAddVoter": (with_pending_add, UPDATE),
    "testUpdateVoterWithoutFencedPreviousLeaders": (not_committed, UPDATE),
}


@pytest.mark.parametrize(("make", "request_"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_changes_come_one_by_one_and_after_a_commit_of_the_own_epoch(make: Any, request_: Any) -> None:
    """REQUEST_TIMED_OUT, that is, try again."""
    actions = tell(make(), request_)

    assert answers(actions) == TIMED_OUT
    assert not submits(actions)


def test_a_voter_that_does_not_answer_is_not_added() -> None:
    """testAddVoterWithApiVersionsFromIncorrectNode: nobody there, or somebody else; nothing is written.

    Nor does it keep others from being changed.
    """
    core = with_pending_add()
    number = outstanding_to(core, 4).correlation_id
    actions = core.handle(RequestFailed(number, Failure.DISCONNECTED), core.state.now_ms)

    assert answers(actions, 50) == TIMED_OUT
    assert not submits(actions)
    assert submits(tell(core, remove_request(3)))


@pytest.mark.parametrize("response", [supports(0, 0), supports(2, 3), ApiVersionsResponse()])
def test_a_voter_that_cannot_do_the_finalized_version_is_not_added(response: ApiVersionsResponse) -> None:
    """testAddVoterInvalidFeatureVersion."""
    core = with_pending_add()

    assert answers(reply(core, 4, response), 50) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (add_request(), ErrorCode.UNSUPPORTED_VERSION),
        (remove_request(3), ErrorCode.UNSUPPORTED_VERSION),
        (update_request(2, 7, epoch=1), ErrorCode.NONE),
    ],
    ids=["testAddVoterWithKraftVersion0", "testRemoveVoterWithKraftVersion0", "testUpdateVoterWithKraftVersion0"],
)
def test_a_static_quorum_does_not_change_and_only_remembers(request_: Any, error: ErrorCode) -> None:
    """testAddVoterWithKraftVersion0, testRemoveVoterWithKraftVersion0, testUpdateVoterWithKraftVersion0 [4.1]."""
    core = leader()
    flush(core)
    tell(core, fetch_request(epoch=1, offset=1, last_epoch=1), version=18, request_id=50)
    actions = tell(core, request_)

    assert answers(actions) == [error]
    assert not submits(actions)


def test_an_add_that_is_not_committed_in_time_is_answered_and_stays() -> None:
    """testAddVoterTimeout: REQUEST_TIMED_OUT, **yet the voter stays in the set**."""
    core = with_pending_add()
    append_submitted(core, reply(core, 4, supports(0, 1)))
    flush(core)
    start = core.state.now_ms
    for at_ms in (start + 900, start + 1_999):
        core.handle(TimeoutReached(), at_ms)
    assert core.role is Role.LEADER

    assert answers(core.handle(TimeoutReached(), start + 2_000), 50) == TIMED_OUT
    assert key(4) in core.voters


@pytest.mark.parametrize("kind", ["testAddVoterFailsWhenLosingLeadership", "testRemoveVoterFailsWhenLosingLeadership"])
def test_a_change_is_answered_when_its_leader_loses_leadership(kind: str) -> None:
    """NOT_LEADER_OR_FOLLOWER; what was appended stays until it is truncated."""
    if "Add" in kind:
        core = with_pending_add()
        append_submitted(core, reply(core, 4, supports(0, 1)))
    else:
        core = with_pending_remove()
    changed = core.voters.ids
    actions = tell(core, begin_request(epoch=5, leader_id=2), request_id=91)
    assert answers(actions, 50) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    (response,) = [a.response for a in actions if isinstance(a, SendResponse) and a.request_id == 50]
    assert isinstance(response, AddRaftVoterResponse if "Add" in kind else RemoveRaftVoterResponse)
    assert core.voters.ids == changed
    core.state.log.truncate(3)
    assert core.voters.ids == (1, 2, 3)


# --- removing --------------------------------------------------------------------------------------------------------


def test_a_voter_is_out_at_the_append_and_that_is_said_at_the_commit() -> None:
    """testRemoveVoter."""
    core = dynamic_leader()
    actions = append_submitted(core, tell(core, remove_request(3)))
    assert (answers(actions), core.voters.ids) == ([], (1, 2))

    assert answers(commit(core, 2)) == DONE


def test_a_leader_that_removes_itself_leads_until_the_others_have_it() -> None:
    """testRemoveVoterIsLeader: then NONE, EndQuorumEpoch to them, and later it is an unattached observer."""
    core = dynamic_leader()
    fetch(core, 3, 59)
    append_submitted(core, tell(core, remove_request(1)))
    flush(core)
    assert answers(fetch(core, 2, 60)) == []
    assert (core.role, core.is_voter) == (Role.LEADER, False)
    actions = fetch(core, 3, 61) + core.handle(TimeoutReached(), core.state.now_ms)
    assert answers(actions) == DONE
    assert [request.destination for request in requests(actions, EndQuorumEpochRequest)] == [2, 3]
    core.handle(TimeoutReached(), core.state.now_ms + 2_000)
    assert (core.role, core.is_voter, core.epoch) == (Role.UNATTACHED, False, 2)


def test_a_leader_that_is_being_removed_may_still_resign() -> None:
    """testRemoveVoterIsLeader: resign() is still allowed."""
    core = dynamic_leader()
    fetch(core, 3, 59)
    append_submitted(core, tell(core, remove_request(1)))
    core.handle(ResignRequested(core.epoch), core.state.now_ms)

    assert core.role is Role.RESIGNED


def test_a_remove_that_is_not_committed_in_time_is_answered_and_stays() -> None:
    """testRemoveVoterTimedOut."""
    core = with_pending_remove()
    flush(core)
    start = core.state.now_ms

    assert answers(core.handle(TimeoutReached(), start + 2_000), 50) == TIMED_OUT
    assert core.voters.ids == (1, 2)


# --- updating --------------------------------------------------------------------------------------------------------


def test_an_update_is_answered_without_waiting_for_its_commit() -> None:
    """testUpdateVoter: and one batch of Voters is written."""
    core = dynamic_leader()
    actions = tell(core, update_request(2, 7, epoch=1))
    assert answers(actions) == DONE
    append_submitted(core, actions)
    voter = core.voters.get(2)

    assert voter is not None
    assert voter.endpoints[LISTENER] == Endpoint("moved", 7)
    assert core.high_watermark is not None
    assert core.high_watermark < core.state.log.end_offset


# --- the voter's side of an update -----------------------------------------------------------------------------------


def moved_voter(*, endpoint: Endpoint | None = None) -> Replica:
    """A voter of a dynamic quorum that follows leader 2 and runs at `endpoint`."""
    log = LogView.build()
    voters = voter_set(key(1), key(2), key(3))
    current = VoterSet.of(attrs.evolve(voter, max_kraft_version=1) for voter in voters)
    records = [KRaftVersionRecord(kraft_version=1), current.to_record()]
    log.append([encode_control_batch(records, timestamp_ms=0, base_offset=0, epoch=1)])
    log.flushed(2, log.log_version)
    core = follower(log=log, epoch=5, leader_id=2, directory_id=key(1).directory_id)
    core.state.endpoints = {LISTENER: endpoint or place(1)}
    return core


def fetch_until(core: Replica, end_ms: int) -> list[Any]:
    """Let a follower fetch, each answer empty and after half a second; return all that it sends."""
    sent: list[Any] = []
    for now_ms in range(500, end_ms + 1, 500):
        for outstanding in pending_requests(core):
            if isinstance(outstanding.request, FetchRequest):
                sent += reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=2), now_ms=now_ms)
    return [action for action in sent if isinstance(action, SendRequest)]


def test_a_voter_that_moved_tells_the_leader_once_a_period_is_over() -> None:
    """testFollowerSendsUpdateVoter: one UpdateRaftVoter, then Fetch again."""
    core = moved_voter(endpoint=Endpoint("moved", 7))
    sent = fetch_until(core, 2_500)
    updates = [request for request in sent if isinstance(request.request, UpdateRaftVoterRequest)]
    assert len(updates) == 1
    request = updates[0].request
    assert [(row.name, row.host, row.port) for row in request.listeners] == [(LISTENER, "moved", 7)]
    assert (request.voter_id, request.current_leader_epoch) == (1, 5)
    current = UpdateRaftVoterResponse.CurrentLeader(leader_id=2, leader_epoch=5, host="localhost", port=9002)
    actions = reply(core, 2, UpdateRaftVoterResponse(current_leader=current))

    assert requests(actions, FetchRequest)


def test_a_voter_that_stands_in_the_set_as_it_runs_says_nothing() -> None:
    """testFollowerSendsUpdateVoterWhenDifferent: and an expired period is no busy loop."""
    core = moved_voter()
    sent = fetch_until(core, 20_000)

    assert not [request for request in sent if isinstance(request.request, UpdateRaftVoterRequest)]
    assert len(sent) == 40


def test_a_newer_leader_in_the_answer_to_an_update_is_followed() -> None:
    """testUpdateVoterResponseCausesEpochChange."""
    core = moved_voter(endpoint=Endpoint("moved", 7))
    fetch_until(core, 2_500)
    where = place(3)
    current = UpdateRaftVoterResponse.CurrentLeader(leader_id=3, leader_epoch=6, host=where.host, port=where.port)
    reply(core, 2, UpdateRaftVoterResponse(error_code=ErrorCode.FENCED_LEADER_EPOCH, current_leader=current))

    assert core.leader_and_epoch == LeaderAndEpoch(3, 6)


def test_the_voters_of_a_new_leader_are_those_of_its_log_committed_or_not() -> None:
    """testAddVoterFailsWhenLosingLeadership: the record that stayed counts for the next election."""
    core = with_pending_add()
    append_submitted(core, reply(core, 4, supports(0, 1)))
    tell(core, begin_request(epoch=5, leader_id=2), request_id=91)
    core.handle(TimeoutReached(), core.state.now_ms + 2_000)
    asked = sorted(request.destination for request in pending_requests(core))

    assert (core.role, asked) == (Role.PROSPECTIVE, [2, 3, 4])
    assert partition_of(outstanding_to(core, 4).request).voter_directory_id == key(4).directory_id
