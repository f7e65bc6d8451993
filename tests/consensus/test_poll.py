"""What a replica owes in its role, and until when it may sleep."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlib.consensus.actions import ShutdownComplete
from kraftlib.consensus.events import (
    ConnectionLost,
    Failure,
    PeerIdentified,
    RequestFailed,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    TimeoutReached,
    TransferRequested,
)
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.types import METADATA_TOPIC, ElectionState, ReplicaKey
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlib.wire.messages.fetch import FetchRequest
from tests.consensus.build import (
    fetch_request,
    flush,
    follower,
    leader,
    outstanding_to,
    partition_of,
    pending_requests,
    place,
    replica,
    requests,
    tell,
    voter_set,
)


@pytest.mark.parametrize("seed_epochs", [(), (1,), (1, 1, 2)])
def test_an_unattached_voter_stands_after_one_to_two_election_timeouts(seed_epochs: tuple[int, ...]) -> None:
    """Random, so that voters do not stand together."""
    core = replica(*seed_epochs)
    deadline = core.state.role_state.election_deadline_ms  # type: ignore[union-attr]

    assert 1_000 <= deadline < 2_000
    core.handle(TimeoutReached(), deadline - 1)
    assert core.role is Role.UNATTACHED
    core.handle(TimeoutReached(), deadline)
    assert core.role is Role.PROSPECTIVE


def test_an_unattached_replica_asks_one_server_at_a_time() -> None:
    """And pauses between answers that help nobody (Kafka's peers ask thousands of times a second)."""
    core = replica(1)
    assert len(pending_requests(core)) == 1
    (outstanding,) = pending_requests(core)

    assert isinstance(outstanding.request, FetchRequest)
    assert core.handle(TimeoutReached(), 5) == []


def test_a_leader_that_leaves_over_an_old_broken_connection_says_so_again_at_once() -> None:
    """Else that voter refuses the successor, who stands before the pause is over."""
    core = leader(1)
    core.handle(ResignRequested(core.epoch), core.state.now_ms)
    for refused in (False, True):
        lost = outstanding_to(core, 3)
        core.handle(RequestFailed(lost.correlation_id, Failure.DISCONNECTED), core.state.now_ms)
        actions = core.handle(ConnectionLost(3, refused=refused), core.state.now_ms)
        assert len(requests(actions, EndQuorumEpochRequest)) == (0 if refused else 1)


def test_a_leader_that_leaves_does_not_say_so_as_fast_as_its_connections_are_closed() -> None:
    """A proxy whose voter is down accepts each connection and closes it, hundreds of times in a millisecond."""
    core = leader(1)
    core.handle(ResignRequested(core.epoch), core.state.now_ms)
    began_ms, asked = core.state.now_ms, 0
    while core.role is Role.RESIGNED:
        for sent in pending_requests(core):
            asked += sent.destination == 3
            core.handle(RequestFailed(sent.correlation_id, Failure.DISCONNECTED), core.state.now_ms)
            core.handle(ConnectionLost(sent.destination, refused=False), core.state.now_ms)
            assert asked < 20, f"told {asked} times within {core.state.now_ms - began_ms} ms"
        if not pending_requests(core):
            core.handle(TimeoutReached(), core.deadline_ms() or 0)

    assert asked > 2, "it is told again, after ever longer pauses"


@pytest.mark.parametrize(
    "core",
    [
        replica(1),
        follower(1, epoch=5, leader_id=2),
        leader(1),
        replica(1, election=ElectionState(epoch=5, leader_id=1)),
    ],
    ids=["unattached", "follower", "leader", "resigned"],
)
def test_a_replica_sleeps_until_it_has_something_to_do(core: object) -> None:
    """A poll right after a poll does nothing, and the deadline lies ahead (invariant I20)."""
    now_ms = core.state.now_ms  # type: ignore[attr-defined]
    core.handle(TimeoutReached(), now_ms)  # type: ignore[attr-defined]

    assert core.handle(TimeoutReached(), now_ms) == []  # type: ignore[attr-defined]
    assert core.deadline_ms() > now_ms  # type: ignore[attr-defined]


def test_a_leader_does_not_wait_for_voters_that_left_after_they_heard_it_leaves() -> None:
    """All three stopped at once: both followers acknowledge the end of the epoch, then they are gone as well."""
    core = leader(1)
    core.handle(ShutdownRequested(5_000), core.state.now_ms)
    for voter_id in (2, 3):
        outstanding = outstanding_to(core, voter_id)
        response = EndQuorumEpochResponse(topics=(end_of_epoch(leader_id=1, epoch=core.epoch),))
        core.handle(ResponseReceived(outstanding.correlation_id, response), core.state.now_ms)
    assert not pending_requests(core)

    for voter_id in (2, 3):
        core.handle(ConnectionLost(voter_id, refused=False), core.state.now_ms)
    shut_down_without_answers(core, [])


def shut_down_without_answers(core: Replica, actions: list[Any]) -> None:
    """Let every request fail at once, and every timer run out, until the core says that it may be closed."""
    for _ in range(50):
        if ShutdownComplete() in actions:
            break
        asked = pending_requests(core)
        now_ms = core.state.now_ms if asked else core.deadline_ms()
        assert now_ms is not None
        event = RequestFailed(asked[0].correlation_id, Failure.DISCONNECTED) if asked else TimeoutReached()
        actions = core.handle(event, now_ms)
    assert ShutdownComplete() in actions
    assert core.state.now_ms < 3_000


def end_of_epoch(*, leader_id: int, epoch: int) -> EndQuorumEpochResponse.TopicData:
    partition = EndQuorumEpochResponse.PartitionData(leader_id=leader_id, leader_epoch=epoch)
    return EndQuorumEpochResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))


def test_the_last_voter_to_leave_does_not_wait_for_those_that_are_gone() -> None:
    """Nobody is there to take over: three refused connections each say so. Kafka waits out its five seconds."""
    core = leader(1)
    shut_down_without_answers(core, core.handle(ShutdownRequested(5_000), core.state.now_ms))


def test_a_leader_whose_disk_hangs_resigns() -> None:
    """Its followers hear from it and would keep it for ever (scenario S10); any progress gives it more time."""
    core = leader(1)
    start = core.state.now_ms
    for now_ms in (start + 1_000, start + 1_900):
        for replica_id in (2, 3):
            request = fetch_request(epoch=core.epoch, offset=2, last_epoch=2, replica_id=replica_id)
            tell(core, request, version=18, now_ms=now_ms, request_id=now_ms + replica_id)
    assert core.role is Role.LEADER
    core.handle(TimeoutReached(), start + 2_000)
    assert core.role is Role.RESIGNED


def test_leadership_goes_to_the_voter_that_is_named_once_it_has_everything() -> None:
    """Nothing is appended meanwhile, so that it can catch up; it is the first successor."""
    core = leader(1)
    flush(core)
    core.handle(TransferRequested(core.epoch, 3, 1_000), core.state.now_ms)
    assert (core.role, core.wants_records) == (Role.LEADER, False)
    request = fetch_request(epoch=core.epoch, offset=2, last_epoch=2, replica_id=3)
    actions = tell(core, request, version=18)
    sent = requests(actions, EndQuorumEpochRequest)

    assert core.role is Role.RESIGNED
    successors = {tuple(row.candidate_id for row in partition_of(one.request).preferred_candidates) for one in sent}
    assert successors <= {(3, 2)}


def test_a_transfer_that_takes_too_long_is_given_up() -> None:
    """And records are taken again."""
    core = leader(1)
    flush(core)
    core.handle(TransferRequested(core.epoch, 3, 1_000), core.state.now_ms)
    assert core.deadline_ms() <= core.state.now_ms + 1_000  # type: ignore[operator]
    core.handle(TimeoutReached(), core.state.now_ms + 1_000)

    assert (core.role, core.wants_records) == (Role.LEADER, True)


def test_a_leader_without_a_controller_yields_to_a_voter_that_has_one_and_everything() -> None:
    """Not before its epoch is proved: what earlier epochs left open is committed then."""
    core = leader(1, yield_to=(3,), election_timeout_ms=500)
    flush(core)
    behind = fetch_request(epoch=core.epoch, offset=1, last_epoch=1, replica_id=3)
    tell(core, behind, version=18)
    assert core.role is Role.LEADER
    caught_up = fetch_request(epoch=core.epoch, offset=2, last_epoch=2, replica_id=3)
    sent = requests(tell(core, caught_up, version=18), EndQuorumEpochRequest)

    assert core.role is Role.RESIGNED
    assert core.high_watermark == 2
    assert {tuple(row.candidate_id for row in partition_of(one.request).preferred_candidates) for one in sent} == {
        (3, 2)
    }


def test_it_does_not_yield_to_others() -> None:
    """Replica 2 has everything and no controller, so we go on."""
    core = leader(1, yield_to=(3,), election_timeout_ms=500)
    flush(core)
    tell(core, fetch_request(epoch=core.epoch, offset=2, last_epoch=2, replica_id=2), version=18)

    assert (core.role, core.high_watermark) == (Role.LEADER, 2)


def test_a_voter_that_says_it_is_a_controller_is_yielded_to_without_being_configured() -> None:
    """And no longer, once something else is reached in its place."""
    core = leader(1, election_timeout_ms=500)
    flush(core)
    for is_controller in (True, False):
        core.handle(PeerIdentified(place(3), is_controller), core.state.now_ms)
        core.handle(PeerIdentified(place(9), True), core.state.now_ms)  # no voter: nobody to yield to
        assert list(core.state.yield_to) == ([3] if is_controller else [])
    core.handle(PeerIdentified(place(3), True), core.state.now_ms)
    tell(core, fetch_request(epoch=core.epoch, offset=2, last_epoch=2, replica_id=3), version=18)

    assert core.role is Role.RESIGNED


def test_an_empty_list_yields_to_nobody() -> None:
    core = leader(1, yield_to=(), election_timeout_ms=500)
    flush(core)
    core.handle(PeerIdentified(place(3), True), core.state.now_ms)
    tell(core, fetch_request(epoch=core.epoch, offset=2, last_epoch=2, replica_id=3), version=18)

    assert core.role is Role.LEADER


def test_whoever_yields_lets_the_others_stand_first() -> None:
    """By one election timeout, as long as all have the same."""
    core = replica(1, yield_to=(2, 3))

    assert 2_000 <= core.state.role_state.election_deadline_ms < 3_000  # type: ignore[union-attr]


@pytest.mark.parametrize(("voted", "before", "epoch"), [(False, Role.PROSPECTIVE, 5), (True, Role.CANDIDATE, 6)])
def test_who_is_no_voter_any_more_stands_no_more(voted: bool, before: Role, epoch: int) -> None:
    """A candidate has voted for itself: it must leave its epoch to be able to follow whoever wins it."""
    core = replica(1, election=ElectionState(epoch=5, voted_key=ReplicaKey(1) if voted else None))
    if not voted:
        core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert core.role is before
    core.state.log.voters.add(1, voter_set(2, 3))
    core.handle(TimeoutReached(), core.state.now_ms)

    assert (core.role, core.epoch, core.leader_and_epoch.leader_id) == (Role.UNATTACHED, epoch, None)


def test_a_follower_that_asks_for_pre_votes_and_is_no_voter_any_more_goes_back_to_its_leader() -> None:
    core = follower(1, epoch=5, leader_id=2)
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert core.role is Role.PROSPECTIVE
    core.state.log.voters.add(1, voter_set(2, 3))
    core.handle(TimeoutReached(), core.state.now_ms)

    assert (core.role, core.leader_and_epoch.leader_id) == (Role.FOLLOWER, 2)


def test_the_only_voter_leads_on_whatever_its_disk_does() -> None:
    """Nobody else could lead instead; and it has nobody to hand over to."""
    core = replica(1, voters=voter_set(1))
    assert core.role is Role.LEADER
    assert core.state.log.flushed_offset < core.state.log.end_offset
    core.handle(TimeoutReached(), core.state.now_ms + 100_000)

    assert core.role is Role.LEADER
    actions = core.handle(ShutdownRequested(5_000), core.state.now_ms)
    assert core.role is Role.LEADER
    assert actions.count(ShutdownComplete()) == 1


def test_a_shutdown_ends_once() -> None:
    core = follower(1, epoch=5, leader_id=2)
    actions = core.handle(ShutdownRequested(5_000), 0)
    for now_ms in (0, 10, 5_000, 6_000):
        actions += core.handle(TimeoutReached(), now_ms)

    assert actions.count(ShutdownComplete()) == 1


def test_a_shutdown_wakes_a_replica_at_its_end() -> None:
    """A leader that nobody succeeds."""
    core = leader(1)
    flush(core)
    core.handle(ShutdownRequested(50), core.state.now_ms)
    ends_ms = core.state.shutdown_deadline_ms
    assert ends_ms is not None
    deadline_ms = core.deadline_ms()

    assert deadline_ms is not None
    assert deadline_ms <= ends_ms
    assert ShutdownComplete() in core.handle(TimeoutReached(), ends_ms)


def test_a_leader_wakes_for_a_disk_that_hangs_and_for_the_end_of_a_transfer() -> None:
    core = leader(1)
    began = core.state.flush_waiting_since_ms
    assert began is not None
    role = core.state.role_state
    role.begin_epoch_due_ms = role.check_quorum_deadline_ms = began + 1_000_000  # type: ignore[union-attr]
    assert (core.deadline_ms() or 0) <= began + core.state.config.fetch_timeout_ms

    core = leader(1)
    flush(core)
    core.handle(TransferRequested(core.epoch, 3, 700), core.state.now_ms)
    role = core.state.role_state
    role.begin_epoch_due_ms = role.check_quorum_deadline_ms = core.state.now_ms + 1_000_000  # type: ignore[union-attr]
    assert (core.deadline_ms() or 0) <= core.state.now_ms + 700
