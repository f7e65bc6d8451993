"""A replica's own membership: reconfiguration.md sections 6 and 8."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftlib.consensus.events import Failure, RequestFailed, TimeoutReached
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.types import BOOTSTRAP_SNAPSHOT, ElectionState, ReplicaKey
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from tests.consensus.build import follower, outstanding_to, replica, reply, requests, voter_set


def key(replica_id: int, disk: int = 1_000) -> ReplicaKey:
    """A replica with a disk."""
    return ReplicaKey(replica_id, UUID(int=disk + replica_id))


def observer(*voters: ReplicaKey, own: ReplicaKey, auto_join: bool = True, kraft_version: int = 1) -> Replica:
    """A follower of 2 in a dynamic quorum, at the end of its first period, with nothing outstanding to the leader."""
    log = LogView.build(snapshots=(BOOTSTRAP_SNAPSHOT,))
    controls = (KRaftVersionRecord(kraft_version=kraft_version), voter_set(*voters).to_record())
    log.observe_snapshot(BOOTSTRAP_SNAPSHOT, controls)
    election = ElectionState(epoch=5, leader_id=2)
    core = replica(log=log, own_id=own.id, directory_id=own.directory_id, election=election, auto_join=auto_join)
    fail_fetch(core)
    return core


def fail_fetch(core: Replica) -> None:
    """Let the Fetch to the leader fail."""
    number = outstanding_to(core, 2).correlation_id
    core.handle(RequestFailed(number, Failure.MALFORMED), core.state.now_ms + 1_900)


def after_the_period(core: Replica, kind: type) -> list[Any]:
    """What of this kind is sent when the period is over."""
    return [one.request for one in requests(core.handle(TimeoutReached(), core.state.now_ms + 150), kind)]


def test_an_observer_adds_itself_when_it_may() -> None:
    """With its own endpoints, and without waiting for the commit."""
    core = observer(key(1), key(2), own=key(4))
    (request,) = after_the_period(core, AddRaftVoterRequest)

    assert (request.voter_id, request.voter_directory_id, request.ack_when_committed) == (4, UUID(int=1_004), False)
    assert [place.port for place in request.listeners] == [9004]


@pytest.mark.parametrize(
    "core",
    [
        observer(key(1), key(2), own=key(4), auto_join=False),
        observer(key(1), key(2), own=key(4), kraft_version=0),
    ],
    ids=["not asked to", "static quorum"],
)
def test_an_observer_stays_one_unless_it_is_told_to_join(core: Replica) -> None:
    """Adding a voter changes every majority: it is an operator's decision."""
    assert after_the_period(core, AddRaftVoterRequest) == []


def test_a_lost_disk_of_our_own_is_removed_first() -> None:
    """Never both keys of one id at once."""
    core = observer(key(1), key(2), key(4, disk=7_000), own=key(4))
    (request,) = after_the_period(core, RemoveRaftVoterRequest)

    assert (request.voter_id, request.voter_directory_id) == (4, UUID(int=7_004))


@pytest.mark.parametrize("error", [0, 7, 126])
def test_after_an_answer_the_next_period_decides(error: int) -> None:
    """It fetches on meanwhile: REQUEST_TIMED_OUT may only mean that it is not caught up yet."""
    core = observer(key(1), key(2), own=key(4))
    after_the_period(core, AddRaftVoterRequest)
    actions = reply(core, 2, AddRaftVoterResponse(error_code=error, error_message=None))

    assert len(requests(actions, FetchRequest)) == 1
    assert core.state.refused == {}


def test_a_refusal_is_said_once_and_not_repeated_at_once() -> None:
    """An operator has to do something."""
    core = observer(key(1), key(2), key(4, disk=7_000), own=key(4))
    after_the_period(core, RemoveRaftVoterRequest)
    actions = reply(core, 2, RemoveRaftVoterResponse(error_code=35, error_message="no"))

    assert core.state.refused == {"not allowed to join": 1}
    assert requests(actions, RemoveRaftVoterRequest) == []


def test_a_follower_of_a_static_quorum_says_once_what_it_is() -> None:
    """One period after it began to follow; captured from 4.3.1."""
    core = follower(1, epoch=5, leader_id=2, directory_id=UUID(int=1_001))
    number = outstanding_to(core, 2).correlation_id
    core.handle(RequestFailed(number, Failure.MALFORMED), 1_990)
    core.state.role_state.fetch_deadline_ms = 9_000  # type: ignore[union-attr]
    actions = core.handle(TimeoutReached(), 2_050)
    sent = requests(actions, UpdateRaftVoterRequest)
    assert [request.destination for request in sent] == [2]
    current = UpdateRaftVoterResponse.CurrentLeader(leader_id=2, leader_epoch=5, host="localhost", port=9002)
    reply(core, 2, UpdateRaftVoterResponse(current_leader=current))

    assert core.state.role_state.updated_voter  # type: ignore[union-attr]


def test_a_leader_that_keeps_no_such_table_is_told_once() -> None:
    """Before 4.1 there was none."""
    core = follower(1, epoch=5, leader_id=2, directory_id=UUID(int=1_001))
    core.handle(RequestFailed(outstanding_to(core, 2).correlation_id, Failure.MALFORMED), 1_990)
    core.state.role_state.fetch_deadline_ms = 9_000  # type: ignore[union-attr]
    core.handle(TimeoutReached(), 2_050)
    number = outstanding_to(core, 2).correlation_id
    actions = core.handle(RequestFailed(number, Failure.UNSUPPORTED_VERSION), 2_060)

    assert core.state.role_state.updated_voter  # type: ignore[union-attr]
    assert core.state.role_state.fetch_deadline_ms == 2_060 + 2_000  # type: ignore[union-attr]
    assert requests(actions, FetchRequest)
