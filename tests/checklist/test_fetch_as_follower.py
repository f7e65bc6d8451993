"""Checklist section 4: Fetch as follower and observer; and KafkaRaftClientFetchTest of section 11."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.config import RaftConfig
from kraftlib.consensus.actions import AppendToLog, FlushLog, SendRequest
from kraftlib.consensus.events import Failure, RequestFailed, ResponseReceived, TimeoutReached
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.types import ElectionState, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.fetch import FetchResponse
from tests.consensus.build import (
    CLUSTER,
    LISTENER,
    begin_request,
    fetch_response,
    flush,
    follower,
    outstanding_to,
    partition_of,
    pending_requests,
    place,
    reply,
    tell,
    vote_request,
)

SERVERS = tuple(place(number) for number in (2, 3, 4))


def batch(offset: int, epoch: int, count: int = 1) -> Batch:
    """A stamped batch."""
    return encode_batch([b"x"] * count, timestamp_ms=0, base_offset=offset, epoch=epoch)


def data(*batches: Batch) -> bytes:
    """Their bytes, back to back."""
    return b"".join(bytes(one.data) for one in batches)


def observer(*, own_id: int = 9, directory: bool = True) -> Replica:
    """A new observer that knows bootstrap servers and nothing else."""
    core = Replica(
        RaftConfig(node_id=own_id, bootstrap_servers=SERVERS),
        key=ReplicaKey(own_id),
        cluster_id=CLUSTER,
        log=LogView.build(),
        election=None,
        random=random.Random(3),
        endpoints={LISTENER: place(own_id)},
    )
    core.start(0)
    return core


def asked(core: Replica) -> list[Any]:
    """What a core waits for."""
    return pending_requests(core)


def answer(core: Replica, response: FetchResponse, *, now_ms: int | None = None) -> list[Any]:
    """Answer the one request that is outstanding."""
    (outstanding,) = asked(core)
    return core.handle(ResponseReceived(outstanding.correlation_id, response), now_ms or core.state.now_ms)


def fail(core: Replica, now_ms: int) -> list[Any]:
    """Lose the one request that is outstanding with its connection."""
    (outstanding,) = asked(core)
    return core.handle(RequestFailed(outstanding.correlation_id, Failure.DISCONNECTED), now_ms)


# --- following -------------------------------------------------------------------------------------------------------


def test_an_observer_appends_as_a_voter_does() -> None:
    """testObserverReplication: a Kafka broker does not flush there; ours always does, as Kafka's controllers."""
    core = follower(epoch=5, leader_id=2, own_id=9)
    actions = reply(core, 2, fetch_response(epoch=5, leader_id=2, records=data(batch(0, 5))))

    assert [type(action) for action in actions] == [AppendToLog, FlushLog]
    assert core.state.log.end_offset == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda core: core.handle(TimeoutReached(), 2_000),
        lambda core: tell(core, begin_request(epoch=6, leader_id=3)),
        lambda core: tell(core, vote_request(epoch=6, last=(9, 5)), version=2),
    ],
    ids=[
        "testFetchResponseIgnoredAfterBecomingCandidate",
        "testFetchResponseIgnoredAfterBecomingFollowerOfDifferentLeader",
        "testFetchResponseIgnoredAfterBecomingUnattached",
    ],
)
def test_records_that_come_late_are_not_appended(change: Any) -> None:
    core = follower(1, epoch=5, leader_id=2)
    number = outstanding_to(core, 2).correlation_id
    change(core)
    late = fetch_response(epoch=5, leader_id=2, records=data(batch(1, 5)), high_watermark=2)

    assert not [
        action
        for action in core.handle(ResponseReceived(number, late), core.state.now_ms)
        if isinstance(action, AppendToLog)
    ]
    assert (core.state.log.end_offset, core.high_watermark) == (1, None)


# --- observers and discovery -----------------------------------------------------------------------------------------


def test_a_new_observer_asks_a_bootstrap_server_and_follows_whom_it_names() -> None:
    """testInitializeObserverNoPreviousState, testObserverDiscoversLeaderWithUnknownVoters: Fetch(epoch 0, offset 0);
    FENCED with the leader.
    """
    core = observer()
    (first,) = asked(core)
    assert first.destination in (-2, -3, -4)
    assert first.endpoint in SERVERS
    partition = partition_of(first.request)
    assert (partition.current_leader_epoch, partition.fetch_offset, partition.last_fetched_epoch) == (0, 0, 0)
    answer(core, fetch_response(epoch=5, leader_id=2, error=ErrorCode.FENCED_LEADER_EPOCH))

    assert core.leader_and_epoch == LeaderAndEpoch(2, 5)
    assert [(request.destination, request.endpoint) for request in asked(core)] == [(2, place(2))]


def test_a_bootstrap_server_that_fails_is_asked_again_after_a_pause() -> None:
    """testObserverQuorumDiscoveryFailure: UNKNOWN_SERVER_ERROR."""
    core = observer()
    (first,) = asked(core)
    actions = answer(core, FetchResponse(error_code=-1))
    assert first.destination not in [action.destination for action in actions if isinstance(action, SendRequest)]
    seen = set()
    for now_ms in range(1, 200, 5):
        seen |= {request.destination for request in asked(core)}
        if asked(core):
            answer(core, FetchResponse(error_code=-1), now_ms=now_ms)
        core.handle(TimeoutReached(), now_ms)

    assert seen == {-2, -3, -4}
    assert core.role is Role.UNATTACHED


def observing() -> Replica:
    """An observer that follows leader 2 of epoch 5."""
    core = observer()
    answer(core, fetch_response(epoch=5, leader_id=2, error=ErrorCode.FENCED_LEADER_EPOCH))
    return core


def test_an_observer_asks_others_when_the_leader_does_not_answer_again_and_again() -> None:
    """testObserverSendDiscoveryFetchAfterFetchTimeout, testObserverLeaderRediscoveryAfterRequestTimeout: ours asks them
    beside the leader, not instead.
    """
    core = observing()
    core.handle(TimeoutReached(), 2_000)
    core.handle(TimeoutReached(), 2_050)
    core.handle(TimeoutReached(), 4_050)
    for now_ms in range(4_050, 4_200, 10):
        core.handle(TimeoutReached(), now_ms)

    assert core.leader_and_epoch == LeaderAndEpoch(2, 5)
    assert any(request.destination < 0 for request in asked(core))


def test_an_observer_asks_others_when_the_leader_is_gone() -> None:
    """testObserverLeaderRediscoveryAfterBrokerNotAvailableError: the next Fetch goes to another server."""
    core = observing()
    fail(core, 10)
    destinations = []
    for now_ms in range(11, 200, 3):
        for action in core.handle(TimeoutReached(), now_ms):
            if isinstance(action, SendRequest):
                destinations.append(action.destination)
        if len(asked(core)) == 1 and destinations[-1] == 2:
            destinations += [action.destination for action in fail(core, now_ms) if isinstance(action, SendRequest)]

    assert any(destination < 0 for destination in destinations)


def test_a_late_answer_of_the_leader_is_ignored_and_records_sent_twice_do_no_harm() -> None:
    """testObserverHandleRetryFetchtToBootstrapServer."""
    core = observing()
    first = outstanding_to(core, 2).correlation_id
    for now_ms in (2_000, 2_050, 4_050, 4_150):
        core.handle(TimeoutReached(), now_ms)
    records = data(batch(0, 5, 3))
    assert not core.handle(
        ResponseReceived(first, fetch_response(epoch=5, leader_id=2, records=records, high_watermark=3)), 4_150
    )
    assert core.state.log.end_offset == 0
    for outstanding in asked(core):
        answered = fetch_response(epoch=5, leader_id=2, records=records, high_watermark=3)
        core.handle(ResponseReceived(outstanding.correlation_id, answered), 4_160)
        flush(core)

    assert (core.state.log.end_offset, core.high_watermark) == (3, 3)


def test_while_a_retry_is_on_its_way_nothing_else_is_sent_there() -> None:
    """testObserverHandleRetryFetchToLeader."""
    core = observing()
    fail(core, 10)
    actions = core.handle(TimeoutReached(), 60)
    assert [action.destination for action in actions if isinstance(action, SendRequest)] == [2]

    assert core.handle(TimeoutReached(), 500) == []
    assert core.handle(TimeoutReached(), 1_500) == []


def test_an_observer_votes_for_nobody_on_its_own_and_writes_no_vote() -> None:
    """testObserverFetchWithNoLocalId: what is durable of an observer names a leader at most. Ours always has an id."""
    core = observing()

    assert core.state.persisted == ElectionState(epoch=5, leader_id=2)
    assert outstanding_to(core, 2).request.replica_state.replica_id == 9


# --- what a leader may send (KafkaRaftClientFetchTest) ---------------------------------------------------------------


@given(st.binary(max_size=300))
def test_no_bytes_in_the_place_of_records_do_any_harm(records: bytes) -> None:
    """KafkaRaftClientFetchTest, random bytes: the log stays as it is, and the replica goes on."""
    core = follower(1, 1, epoch=5, leader_id=2)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, records=records, high_watermark=2))

    assert core.state.log.end_offset == 2
    assert core.role is Role.FOLLOWER


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_never_appended(position: int, change: int) -> None:
    """KafkaRaftClientFetchTest, corrupted bytes: what is outside the checksum is checked otherwise."""
    core = follower(1, 1, epoch=5, leader_id=2)
    records = bytearray(data(batch(2, 5, 3)))
    records[position % len(records)] ^= change
    reply(core, 2, fetch_response(epoch=5, leader_id=2, records=bytes(records), high_watermark=2))
    log = core.state.log

    # Only the epoch may change unseen by a checksum, and then to one between the last and our own.
    if log.end_offset != 2:
        assert (12 <= position % len(records) < 16, log.end_offset) == (True, 5)
        assert 1 <= log.last_epoch <= 5
