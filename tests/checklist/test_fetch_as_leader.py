"""Checklist section 3: Fetch as leader, and the propagation of the high watermark (section 11)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib.consensus.actions import AdvanceHighWatermark, SendRecords, SendResponse
from kraftlib.consensus.events import Flushed, RecordsSubmitted, RequestReceived, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.records.batch import encode_batch
from kraftlib.types import LeaderAndEpoch
from kraftlib.wire import frames
from kraftlib.wire.apis import ErrorCode
from tests.consensus.build import (
    ask,
    begin_request,
    fetch_request,
    fetch_response,
    flush,
    follower,
    leader,
    partition_of,
    replica,
    reply,
    tell,
    voter_set,
)


def answers(actions: list[Any], request_id: int = 77) -> list[Any]:
    """The answers to one request."""
    return [
        action
        for action in actions
        if isinstance(action, SendResponse | SendRecords) and action.request_id == request_id
    ]


def append(core: Replica, count: int = 1) -> list[Any]:
    """Records of the application reach a leader."""
    end = core.state.log.end_offset
    batch = encode_batch([b"x"] * count, timestamp_ms=0, base_offset=end, epoch=core.epoch)
    return core.handle(RecordsSubmitted((batch,), core.epoch), core.state.now_ms)


def fetch_at_end(core: Replica, replica_id: int = 2, request_id: int = 77, **more: Any) -> list[Any]:
    """A Fetch of a replica that has everything."""
    log = core.state.log
    request = fetch_request(
        epoch=core.epoch, offset=log.end_offset, last_epoch=log.last_epoch, replica_id=replica_id, **more
    )
    return tell(core, request, version=more.pop("version", 18), request_id=request_id)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"offset": -5}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"max_wait_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"epoch": 1, "last_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
    ],
    ids=["offset", "last epoch", "last epoch above the epoch", "wait", "newer epoch", "older epoch"],
)
def test_an_impossible_fetch_is_told_so(changes: dict[str, int], error: ErrorCode) -> None:
    """testInvalidFetchRequest: a newer epoch is UNKNOWN_LEADER_EPOCH and not taken over."""
    core = leader(1)
    assert core.epoch == 2
    fields = {"epoch": 2, "offset": 1, "last_epoch": 1} | changes
    partition = partition_of(ask(core, fetch_request(**fields), version=18))

    assert (partition.error_code, partition.high_watermark, partition.records) == (error, -1, b"")
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 2)
    assert (core.epoch, core.role) == (2, Role.LEADER)


@pytest.mark.parametrize("version", [13, 14, 15, 16, 17, 18])
def test_who_fetches_is_known_in_every_version_and_counts(version: int) -> None:
    """testLeaderStateUpdateWithDifferentFetchRequestVersions: ReplicaId below 15, ReplicaState from there on."""
    core = leader()
    flush(core)
    request = fetch_request(epoch=1, offset=1, last_epoch=1, replica_id=2)
    if version < 15:
        request = attrs.evolve(request, replica_id=2, replica_state=type(request.replica_state)())
    head = frames.decode_request(
        frames.encode_request(request, version=version, correlation_id=1, client_id="raft-client-2")
    )
    core.handle(RequestReceived(77, head.message, head.api_version), core.state.now_ms)

    assert core.high_watermark == 1


def test_a_held_fetch_is_answered_empty_after_its_wait() -> None:
    """testPurgatoryFetchTimeout, ThresholdPurgatoryTest."""
    core = leader(1)
    flush(core)
    start = core.state.now_ms
    assert answers(fetch_at_end(core, replica_id=-1, max_wait_ms=500)) == []
    assert answers(core.handle(TimeoutReached(), start + 499)) == []
    (answer,) = answers(core.handle(TimeoutReached(), start + 500))

    assert isinstance(answer, SendResponse)
    assert (partition_of(answer.response).error_code, partition_of(answer.response).records) == (0, b"")


def test_an_append_answers_a_held_fetch_with_the_records() -> None:
    """testPurgatoryFetchSatisfiedByWrite."""
    core = leader(1)
    end = core.state.log.end_offset
    fetch_at_end(core)
    (answer,) = answers(append(core, 2))

    assert isinstance(answer, SendRecords)
    assert answer.start_offset == end


def test_a_leader_that_follows_another_answers_with_the_new_epoch_and_leader() -> None:
    """testPurgatoryFetchCompletedByFollowerTransition."""
    core = leader(1)
    fetch_at_end(core)
    (answer,) = answers(tell(core, begin_request(epoch=5, leader_id=3), request_id=78))
    partition = partition_of(answer.response)

    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (3, 5)
    assert [place.node_id for place in answer.response.node_endpoints] == [3]


def test_a_log_that_diverges_is_told_at_once() -> None:
    """testLeaderImmediatelySendsDivergingEpoch: epochs 1, 3, 5; Fetch(6, epoch 2) diverges at (1, 3)."""
    core = leader(1, 1, 1, 3, 3, 3, 5, 5, 5)
    request = fetch_request(epoch=core.epoch, offset=6, last_epoch=2, max_wait_ms=500)
    (answer,) = answers(tell(core, request, version=18))
    named = partition_of(answer.response).diverging_epoch

    assert (named.epoch, named.end_offset) == (1, 3)


def test_the_offset_of_a_follower_may_go_back_and_the_high_watermark_does_not() -> None:
    """testDescribeQuorumNonMonotonicFollowerFetch."""
    core = leader()
    flush(core)
    append(core, 10)
    flush(core)
    fetch_at_end(core)
    assert core.high_watermark == 11
    request = fetch_request(epoch=1, offset=9, last_epoch=1)
    tell(core, request, version=18, request_id=78)

    (row, _) = core.status().voter_progress
    assert (row.end_offset, core.high_watermark) == (9, 11)


def test_the_high_watermark_is_unknown_after_the_election_and_then_follows_the_fetches() -> None:
    """testListenerCommitCallbackAfterLeaderWrite: commits are announced as it moves."""
    core = leader()
    assert core.high_watermark is None
    flush(core)
    assert AdvanceHighWatermark(1) in fetch_at_end(core)
    append(core, 2)
    flush(core)
    assert core.high_watermark == 1

    assert AdvanceHighWatermark(3) in fetch_at_end(core, request_id=78)


def test_a_sole_voter_commits_what_it_has_flushed() -> None:
    """testLeaderAppendSingleMemberQuorum: 1 after the election, 4 after three records, in two batches."""
    core = replica(voters=voter_set(1))
    log = core.state.log
    assert core.handle(Flushed(1, log.log_version), 0) == [AdvanceHighWatermark(1)]
    actions = append(core, 3)
    assert core.high_watermark == 1

    assert core.handle(Flushed(4, log.log_version), 0) == [AdvanceHighWatermark(4)]
    (batch,) = actions[0].batches
    assert (batch.is_control, batch.base_offset, batch.last_offset) == (False, 1, 3)


# --- the high watermark travels (KIP-1166) ---------------------------------------------------------------------------


def committed_leader() -> Replica:
    """A leader whose first record is committed."""
    core = leader()
    flush(core)
    fetch_at_end(core, request_id=70)
    assert core.high_watermark == 1
    return core


def test_a_fetch_that_knows_an_older_high_watermark_is_answered_soon() -> None:
    """HW propagation, Fetch v18 with an old HW: at once in Kafka; ours waits 2 ms for records to go with the news."""
    core = committed_leader()
    assert answers(fetch_at_end(core, 3, high_watermark=0)) == []
    (answer,) = answers(core.handle(TimeoutReached(), core.state.now_ms + 2))

    assert partition_of(answer.response).high_watermark == 1


def test_a_held_fetch_is_answered_when_the_high_watermark_moves() -> None:
    """HW propagation, a parked Fetch completes."""
    core = committed_leader()
    append(core)
    flush(core)
    assert answers(fetch_at_end(core, 9, high_watermark=1)) == []
    tell(core, fetch_request(epoch=1, offset=2, last_epoch=1), version=18, request_id=78)
    assert core.high_watermark == 2
    (answer,) = answers(core.handle(TimeoutReached(), core.state.now_ms + 2))

    assert partition_of(answer.response).high_watermark == 2


def test_a_fetch_that_does_not_say_what_it_knows_is_held() -> None:
    """HW propagation, v17 is not answered at once: the field's default is larger than any high watermark."""
    core = committed_leader()
    start = core.state.now_ms
    request = fetch_request(epoch=1, offset=1, last_epoch=1, replica_id=3)
    tell(core, request, version=17)

    assert answers(core.handle(TimeoutReached(), start + 100)) == []
    assert answers(core.handle(TimeoutReached(), start + 500))


def test_a_follower_is_no_leader_however_it_is_asked() -> None:
    """NOT_LEADER_OR_FOLLOWER with the leader, and no wait."""
    core = follower(1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=1))
    answer = ask(core, fetch_request(epoch=5, offset=1, last_epoch=1, replica_id=3), version=18)

    assert partition_of(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [(place.node_id, place.port) for place in answer.node_endpoints] == [(2, 9002)]
    assert core.leader_and_epoch == LeaderAndEpoch(2, 5)
