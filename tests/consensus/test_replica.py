"""The door: every event and every message has its handler, and nothing a peer sends stops a replica."""

from __future__ import annotations

import random
import typing
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.config import RaftConfig
from kraftlib.consensus import replica as replica_module
from kraftlib.consensus.actions import AdvanceHighWatermark, RefuseReadBarrier, SendRequest, SendResponse
from kraftlib.consensus.events import (
    Event,
    Failure,
    Flushed,
    PeerIdentified,
    ReadBarrierRequested,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    ShutdownRequested,
    TimeoutReached,
    TransferRequested,
)
from kraftlib.consensus.extensions.read_index import lane_to
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.requests import send
from kraftlib.consensus.roles import Follower, Role, Transfer, VoterChange
from kraftlib.errors import ConfigError, InvariantError
from kraftlib.types import ZERO_UUID, ElectionState, OffsetAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.envelope import EnvelopeRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, UpdateRaftVoterRequest
from tests.consensus.build import (
    CLUSTER,
    LISTENER,
    as_leader,
    begin_request,
    end_request,
    fetch_request,
    fetch_response,
    flush,
    follower,
    leader,
    log_view,
    outstanding_to,
    park,
    pending_requests,
    place,
    replica,
    tell,
    vote_request,
    voter_set,
)


def test_every_event_has_a_handler() -> None:
    """The union and the table are one list."""
    assert set(replica_module.EVENTS) == {typing.get_origin(member) or member for member in typing.get_args(Event)}


def test_a_request_that_is_not_ours_closes_the_connection() -> None:
    """And is counted."""
    core = replica()

    assert core.handle(RequestReceived(1, EnvelopeRequest(), 0), 0) == [SendResponse(1, None)]
    assert core.state.refused == {"foreign request": 1}


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    """By its correlation id."""
    core = follower(1, epoch=5, leader_id=2)
    response = fetch_response(epoch=5, leader_id=2, diverging=(0, 0))

    assert core.handle(ResponseReceived(12_345, response), 0) == []
    assert core.state.log.end_offset == 1


def test_time_does_not_run_backwards() -> None:
    """An event with an older time is handled at the newest known."""
    core = follower(1, epoch=5, leader_id=2, now_ms=1_000)
    core.handle(TimeoutReached(), 10)

    assert core.state.now_ms == 1_000


epochs = st.integers(-2, 12)
ids = st.integers(-1, 5)
offsets = st.integers(-2, 8)
messages = st.one_of(
    st.builds(
        lambda epoch, who, last, pre: vote_request(epoch=epoch, replica_id=who, last=last, pre_vote=pre),
        epochs, ids, st.tuples(offsets, epochs), st.booleans(),
    ),
    st.builds(lambda epoch, who: begin_request(epoch=epoch, leader_id=who), epochs, st.integers(-1, 5)),
    st.builds(
        lambda epoch, who, row: end_request(epoch=epoch, leader_id=who, candidates=tuple(row)),
        epochs, ids, st.lists(ids, max_size=4),
    ),
    st.builds(
        lambda epoch, offset, last, who: fetch_request(epoch=epoch, offset=offset, last_epoch=last, replica_id=who),
        epochs, offsets, epochs, ids,
    ),
)  # fmt: skip
answers = st.builds(
    lambda epoch, who, high, diverging, snapshot, error, records: fetch_response(
        epoch=epoch, leader_id=who, high_watermark=high, diverging=diverging, snapshot=snapshot, error=error,
        records=records,
    ),
    epochs, ids, offsets, st.none() | st.tuples(offsets, epochs), st.none() | st.tuples(offsets, epochs),
    st.sampled_from([0, 0, 0, 6, 8, 42, 74, 75, 125, -1, 999]), st.binary(max_size=80),
)  # fmt: skip


@pytest.mark.parametrize("role", ["leader", "follower", "resigned", "unattached"])
@given(st.lists(st.one_of(messages, answers, st.integers(0, 3_000)), max_size=12))
def test_nothing_that_a_peer_sends_stops_a_replica_or_lowers_its_epoch(role: str, script: list[object]) -> None:
    """Hostile values in every field, in any order, with answers to whatever is outstanding (scenario L17)."""
    core = {
        "leader": lambda: leader(1, 1, election=ElectionState(epoch=4)),
        "follower": lambda: follower(1, 1, epoch=5, leader_id=2),
        "resigned": lambda: replica(1, 1, election=ElectionState(epoch=5, leader_id=1)),
        "unattached": lambda: replica(1, 1, election=ElectionState(epoch=5)),
    }[role]()
    now_ms = core.state.now_ms
    for number, step in enumerate(script):
        epoch, committed = core.epoch, core.state.committed_offset
        if isinstance(step, int):
            now_ms += step
            core.handle(TimeoutReached(), now_ms)
        elif type(step).__name__.endswith("Request"):
            core.handle(RequestReceived(number, step, 1), now_ms)
        else:
            for outstanding in pending_requests(core):
                if type(outstanding.request).__name__ == "FetchRequest":
                    core.handle(ResponseReceived(outstanding.correlation_id, step), now_ms)
        assert core.epoch >= epoch
        assert core.state.committed_offset >= committed
        assert core.state.log.end_offset >= core.state.committed_offset


DISK = UUID(int=7)


def unstarted(log: LogView, **more: Any) -> Replica:
    return Replica(
        RaftConfig(node_id=1), key=more.pop("key", ReplicaKey(1)), cluster_id=CLUSTER, log=log, election=None,
        random=random.Random(7), endpoints={"controller": place(1)}, **more,
    )  # fmt: skip


def fail(core: Replica, destination: int, failure: Failure) -> list[Any]:
    return core.handle(RequestFailed(outstanding_to(core, destination).correlation_id, failure), core.state.now_ms)


def test_a_replica_starts_once_and_needs_a_directory_id_that_is_one() -> None:
    core = unstarted(log_view(voters=voter_set(1, 2, 3)))
    core.start(5)
    assert core.state.now_ms == 5
    with pytest.raises(InvariantError, match="once"):
        core.start(5)
    with pytest.raises(ConfigError, match="all zero"):
        unstarted(log_view(voters=voter_set(1, 2, 3)), key=ReplicaKey(1, ZERO_UUID))


def test_what_a_snapshot_or_the_start_of_the_log_covers_was_committed() -> None:
    """Nothing of it may be truncated, though nobody has said how far commits go."""
    snapshots = (OffsetAndEpoch(offset=2, epoch=1), OffsetAndEpoch(offset=4, epoch=1))
    for start, kept, committed in ((0, (), 0), (2, snapshots[:1], 2), (2, snapshots, 4), (3, (), 3)):
        log = log_view(1, 1, 1, start=start, snapshots=kept, voters=voter_set(1, 2, 3))
        assert unstarted(log).state.committed_offset == committed


def test_listeners_are_known_by_their_upper_case_names() -> None:
    assert unstarted(log_view(voters=voter_set(1, 2, 3))).state.endpoints == {LISTENER: place(1)}


def test_it_names_its_leader_and_where_that_is_reached() -> None:
    core = follower(1, epoch=5, leader_id=2)
    assert (core.role, core.epoch, core.is_voter, core.key) == (Role.FOLLOWER, 5, True, ReplicaKey(1))
    assert core.leader_endpoints == {LISTENER: place(2)}
    assert not follower(1, own_id=9).is_voter


@pytest.mark.parametrize("failure", Failure)
def test_a_fetch_that_fails_is_not_sent_again_at_once_whatever_the_reason(failure: Failure) -> None:
    core = follower(1, epoch=5, leader_id=2)
    core.handle(TimeoutReached(), 0)
    assert fail(core, 2, failure) == []
    assert core.state.connections.failures(2) == 1


def test_a_failure_that_nobody_waits_for_is_dropped() -> None:
    core = follower(1, epoch=5, leader_id=2)
    assert core.handle(RequestFailed(12_345, Failure.DISCONNECTED), 0) == []


def test_a_question_of_readers_that_fails_is_asked_again_unless_it_is_not_known() -> None:
    for failure, refused in ((Failure.DISCONNECTED, []), (Failure.UNSUPPORTED_VERSION, [7])):
        core = follower(1, epoch=5, leader_id=2)
        core.handle(ReadBarrierRequested(7, 5_000), 0)
        actions = fail(core, lane_to(2), failure)
        assert [action.request for action in actions if isinstance(action, RefuseReadBarrier)] == refused


def test_a_new_voter_that_does_not_answer_ends_its_addition() -> None:
    core = leader(1)
    flush(core)
    role = as_leader(core)
    change = VoterChange(request_id=5, request=AddRaftVoterRequest(voter_id=9), voter_id=9, deadline_ms=10**6)
    role.change = change
    send(core.state, 9, place(9), ApiVersionsRequest())
    (answer,) = fail(core, 9, Failure.DISCONNECTED)
    assert (answer.request_id, answer.response.error_code) == (5, ErrorCode.REQUEST_TIMED_OUT)
    assert role.change is None


def test_a_leader_that_keeps_no_table_of_voters_is_told_nothing_more_and_any_other_again() -> None:
    for failure, knows in ((Failure.UNSUPPORTED_VERSION, True), (Failure.DISCONNECTED, False)):
        core = follower(1, epoch=5, leader_id=2, directory_id=DISK)
        core.state.connections.forget()
        send(core.state, 2, place(2), UpdateRaftVoterRequest())
        role = core.state.role_state
        assert isinstance(role, Follower)
        fail(core, 2, failure)
        assert role.updated_voter == knows
        assert core.state.connections.failures(2) == (0 if knows else 1)


def test_controllers_are_those_who_have_said_so_last() -> None:
    core = replica(1, private_apis=True)
    core.handle(PeerIdentified(place(2), is_controller=True), 0)
    core.handle(PeerIdentified(place(3), is_controller=True), 0)
    assert core.state.controllers == {place(2), place(3)}
    core.handle(PeerIdentified(place(2), is_controller=False), 0)
    assert core.state.controllers == {place(3)}


def test_a_flush_counts_at_the_leader_as_its_own_copy_and_at_a_follower_as_its_next_question() -> None:
    core = leader(1)
    park(core, replica_id=2)
    assert core.state.flush_waiting_since_ms is not None
    assert AdvanceHighWatermark(2) in flush(core)
    assert (core.state.log.flushed_offset, core.state.flush_waiting_since_ms) == (2, None)
    behind = follower(1, epoch=5, leader_id=2)
    behind.state.log.end_offset, behind.state.log.flushed_offset = 3, 1
    behind.state.connections.forget()
    (asked,) = behind.handle(Flushed(3, behind.state.log.log_version), 0)
    assert isinstance(asked, SendRequest)
    assert asked.request.topics[0].partitions[0].fetch_offset == 3


def test_a_flush_in_part_has_its_whole_time_again() -> None:
    """The disk gets on: what waits now waits since now."""
    core = leader(1)
    core.state.log.end_offset += 1
    core.handle(TimeoutReached(), core.state.now_ms)
    later = core.state.now_ms + 100
    core.handle(Flushed(2, core.state.log.log_version), later)
    assert core.state.flush_waiting_since_ms == later


def test_leadership_is_handed_to_a_voter_of_the_own_epoch_and_to_nobody_else() -> None:
    core = leader(1)
    flush(core)
    park(core, replica_id=9)
    role, now_ms = as_leader(core), core.state.now_ms
    for epoch, target_id in ((1, 2), (3, 2), (2, 9), (2, 1)):
        core.handle(TransferRequested(epoch=epoch, target_id=target_id, timeout_ms=500), now_ms)
        assert role.transfer is None
    core.handle(TransferRequested(epoch=2, target_id=2, timeout_ms=500), now_ms)
    assert role.transfer == Transfer(target_id=2, deadline_ms=now_ms + 500)
    behind = follower(1, epoch=2, leader_id=2)
    assert behind.handle(TransferRequested(epoch=2, target_id=3, timeout_ms=500), 0) == []


def test_a_shutdown_has_its_time() -> None:
    core = follower(1, own_id=1, epoch=5, leader_id=2)
    core.handle(ShutdownRequested(500), 20)
    assert core.state.shutdown_deadline_ms == 520


def test_what_nobody_waits_for_is_better_gathered() -> None:
    """While the leader's own flush runs, only a voter that waits for records is a reason to append more."""
    core = leader(1)
    assert not core.wants_records
    park(core, replica_id=9)
    assert not core.wants_records
    park(core, replica_id=2, request_id=78)
    assert core.wants_records
    as_leader(core).parked.clear()
    flush(core)
    assert core.wants_records
    assert not follower(1).wants_records


def test_the_clock_of_the_wall_may_be_corrected_at_any_time() -> None:
    core = replica(1)
    core.wall_offset_ms = 77
    assert (core.wall_offset_ms, core.state.wall_clock_ms) == (77, core.state.now_ms + 77)


def test_strictness_is_asked_for() -> None:
    """Without a cluster id a Fetch is served, unless the configuration is strict: then its connection is closed."""
    for strict, cluster_id, is_served in (
        (False, None, True), (True, CLUSTER, True), (True, None, False),
    ):  # fmt: skip
        core = leader(1, strict=strict)
        request = fetch_request(epoch=2, offset=2, last_epoch=2, max_wait_ms=0, cluster_id=cluster_id)
        (answer,) = [action for action in tell(core, request, version=18) if isinstance(action, SendResponse)]
        assert (answer.response is not None) == is_served
