"""Rules for the rarer combinations: of roles, of a role and a shutdown, of ids and disks."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib.consensus.actions import AppendToLog
from kraftlib.consensus.events import Failure, RequestFailed, ShutdownRequested, TimeoutReached
from kraftlib.consensus.fetch_leader import follow_voters
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Candidate, Prospective, Resigned, Role
from kraftlib.consensus.voters import VoterSet
from kraftlib.records.control import decode_control_batch, encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from kraftlib.types import Endpoint, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse
from tests.consensus import test_kraft_version as upgrading
from tests.consensus.build import (
    LISTENER,
    LONG,
    SHORT,
    answer_vote,
    as_leader,
    ask,
    begin_request,
    end_request,
    fetch_request,
    flush,
    follower,
    in_role,
    leader,
    outstanding_to,
    partition_of,
    pending_requests,
    place,
    reply,
    requests,
    tell,
    told_of,
    vote_request,
    voter_set,
)
from tests.consensus.test_voter_changes import (
    add_request,
    append_one,
    append_submitted,
    dynamic_log,
    fetch,
    key,
    supports,
)

# --- election timers -------------------------------------------------------------------------------------------------


def test_a_candidate_that_learns_of_a_newer_epoch_keeps_the_time_that_was_left() -> None:
    """From Candidate, too: else ever higher epochs would postpone its next try for ever (KIP-996)."""
    core = in_role("candidate")
    role = core.state.role_state
    assert isinstance(role, Candidate)
    deadline_ms = role.election_deadline_ms
    tell(core, vote_request(epoch=6, last=SHORT), version=2, now_ms=deadline_ms - 1)

    assert (core.role, core.epoch) == (Role.UNATTACHED, 6)
    assert core.state.role_state.election_deadline_ms == deadline_ms  # type: ignore[union-attr]


def test_a_prospective_that_grants_a_vote_gives_the_other_its_time() -> None:
    """Granting a binding vote restarts the election timer, not of an Unattached voter only (KIP-595, Vote)."""
    core = in_role("prospective")
    role = core.state.role_state
    assert isinstance(role, Prospective)
    now_ms = role.election_deadline_ms - 1
    answer = ask(core, vote_request(epoch=5, last=LONG), version=2, now_ms=now_ms)

    assert partition_of(answer).vote_granted
    assert core.state.role_state is role
    assert role.election_deadline_ms >= now_ms + core.state.config.election_timeout_ms


# --- the first batch of an epoch -------------------------------------------------------------------------------------


def log_with_voters(voters: VoterSet) -> LogView:
    """A log of kraft.version 1 in which the voters stand, as the first leader has written them."""
    log = LogView.build()
    log.begin_epoch(1, 0)
    controls = (KRaftVersionRecord(kraft_version=1), voters.to_record())
    log.append([encode_control_batch(controls, timestamp_ms=0, base_offset=0, epoch=1)])
    log.flushed(log.end_offset, log.log_version)
    return log


@pytest.mark.parametrize(
    ("changed", "written"),
    [
        ({}, [LeaderChangeMessage]),
        ({"endpoints": {LISTENER: Endpoint("moved", 7)}}, [LeaderChangeMessage, KRaftVersionRecord, VotersRecord]),
        ({"max_kraft_version": 0}, [LeaderChangeMessage, KRaftVersionRecord, VotersRecord]),
    ],
    ids=["up to date", "moved", "older release"],
)
def test_a_new_leader_whose_own_entry_is_out_of_date_writes_it_anew(
    changed: dict[str, Any], written: list[type]
) -> None:
    """Its first batch says where it is reached and what it supports, unless the log does so (KIP-853, VotersRecord)."""
    named = voter_set(key(1), key(2), key(3))
    (own, *others) = named.voters
    current = VoterSet.of([attrs.evolve(own, max_kraft_version=1), *others])
    log = log_with_voters(current.with_voter(attrs.evolve(current.voters[0], **changed)))
    core = follower(epoch=1, log=log, directory_id=key(1).directory_id)
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    answer_vote(core, 2, granted=True, pre_vote=True)
    actions = answer_vote(core, 2, granted=True, pre_vote=False)
    (batch,) = next(action for action in actions if isinstance(action, AppendToLog)).batches

    assert [type(record) for _, record in decode_control_batch(batch)] == written
    assert core.voters == current


# --- shutting down ---------------------------------------------------------------------------------------------------


def fail_all(core: Replica) -> None:
    """Let whoever is being asked be unreachable, once."""
    for correlation_id in [one.correlation_id for one in pending_requests(core)]:
        core.handle(RequestFailed(correlation_id, Failure.DISCONNECTED), core.state.now_ms)


def test_a_resigned_leader_that_shuts_down_says_good_bye_and_nothing_else() -> None:
    """Its election timer does not count any more: it begins no epoch that it will not see."""
    core = leader(1)
    core.handle(ShutdownRequested(60_000), core.state.now_ms)
    role, epoch = core.state.role_state, core.epoch
    assert isinstance(role, Resigned)
    fail_all(core)
    actions = core.handle(TimeoutReached(), role.election_deadline_ms)

    assert core.state.role_state is role
    assert core.epoch == epoch
    assert [action.destination for action in requests(actions, EndQuorumEpochRequest)] == [2, 3]
    assert len(actions) == 2


def test_a_prospective_that_shuts_down_asks_on_until_the_shutdown_ends() -> None:
    """It waits for a leader or the end, whatever its election timer says."""
    core = in_role("prospective")
    role = core.state.role_state
    assert isinstance(role, Prospective)
    core.handle(ShutdownRequested(60_000), core.state.now_ms)
    fail_all(core)
    actions = core.handle(TimeoutReached(), role.election_deadline_ms)

    assert core.state.role_state is role
    assert [action.destination for action in requests(actions, VoteRequest)] == [2, 3]


# --- check quorum ----------------------------------------------------------------------------------------------------


def test_a_leader_outside_a_set_of_one_voter_needs_that_voter() -> None:
    """Check quorum never expires where the leader is the only voter; here the only voter is another."""
    core = leader(1)
    flush(core)
    core.state.log.voters.add(core.state.log.end_offset, voter_set(2))
    role = as_leader(core)
    follow_voters(core.state, role)
    deadline_ms = role.check_quorum_deadline_ms
    core.handle(TimeoutReached(), deadline_ms - 1)
    assert core.state.role_state is role
    assert core.deadline_ms() == deadline_ms
    core.handle(TimeoutReached(), deadline_ms)

    assert core.role is Role.RESIGNED


# --- who asks whether it would win, and knows its leader -------------------------------------------------------------


def doubting_follower(voters: VoterSet | None = None) -> tuple[Replica, Prospective]:
    """A follower of replica 3 in epoch 5 that has not heard from it for too long, and asks for pre-votes."""
    core = follower(1, 1, epoch=5, leader_id=3, voters=voters)
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    role = core.state.role_state
    assert isinstance(role, Prospective)
    assert (role.leader_id, role.leader_endpoints) == (3, {LISTENER: place(3)})
    return core, role


def refuse_pre_vote(core: Replica, voter_id: int, error: ErrorCode = ErrorCode.NONE) -> None:
    """Let a voter refuse since replica 3 leads, and say where that is."""
    reply(core, voter_id, told_of(VoteResponse, 3, epoch=5, error=error))


@pytest.mark.parametrize("make", [begin_request, end_request])
def test_a_prospective_asks_on_when_its_leader_says_what_is_known(make: Any) -> None:
    """Same epoch, same leader, no more endpoints: no transition, hello or good-bye (KIP-853, BeginQuorumEpoch)."""
    core, role = doubting_follower()
    answer = ask(core, make(epoch=5, leader_id=3))

    assert partition_of(answer).error_code == ErrorCode.NONE
    assert core.state.role_state is role
    assert all(isinstance(outstanding_to(core, voter_id).request, VoteRequest) for voter_id in (2, 3))


@pytest.mark.parametrize(
    "error",
    [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER],
    ids=lambda error: error.name,
)
def test_a_prospective_asks_on_when_one_voter_names_the_leader_that_is_known(error: ErrorCode) -> None:
    """Be it in the answer of one that refuses, or beside an error that says who leads (KIP-595, Vote and Fetch)."""
    core, role = doubting_follower()
    refuse_pre_vote(core, 2, error)

    assert core.state.role_state is role
    answer_vote(core, 3, granted=True, pre_vote=True)
    assert (core.role, core.epoch) == (Role.CANDIDATE, 6)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER], ids=lambda error: error.name)
def test_a_pre_vote_is_won_by_a_majority_though_one_voter_still_follows_the_leader(error: ErrorCode) -> None:
    """Three of five, ourselves included; what one of them names is known, and ends nothing (KIP-595, Vote)."""
    core, role = doubting_follower(voter_set(1, 2, 3, 4, 5))
    refuse_pre_vote(core, 2, error)
    answer_vote(core, 4, granted=True, pre_vote=True)
    assert core.state.role_state is role
    answer_vote(core, 5, granted=True, pre_vote=True)

    assert (core.role, core.epoch) == (Role.CANDIDATE, 6)


def test_a_prospective_follows_its_leader_again_when_it_names_more_endpoints_than_known() -> None:
    """The same epoch and leader, but news of where it is (KIP-853, BeginQuorumEpoch)."""
    core, _ = doubting_follower()
    named = {LISTENER: place(3), "EXTERNAL": Endpoint("outside", 7)}
    listeners = tuple(
        BeginQuorumEpochRequest.LeaderEndpoint(name=name, host=where.host, port=where.port)
        for name, where in named.items()
    )
    ask(core, begin_request(epoch=5, leader_id=3, leader_endpoints=listeners))

    assert (core.role, core.leader_and_epoch) == (Role.FOLLOWER, LeaderAndEpoch(3, 5))
    assert core.leader_endpoints == named


def test_a_prospective_that_lost_follows_the_leader_that_it_knew() -> None:
    """In the same epoch, with a fresh fetch timer (KIP-996)."""
    core, _ = doubting_follower()
    refuse_pre_vote(core, 2)
    assert core.role is Role.PROSPECTIVE
    refuse_pre_vote(core, 3)

    assert (core.role, core.leader_and_epoch) == (Role.FOLLOWER, LeaderAndEpoch(3, 5))
    assert core.leader_endpoints == {LISTENER: place(3)}
    deadline_ms = core.state.now_ms + core.state.config.fetch_timeout_ms
    assert core.state.role_state.fetch_deadline_ms == deadline_ms  # type: ignore[union-attr]


# --- whose progress counts -------------------------------------------------------------------------------------------


def fetch_without_disk(core: Replica, replica_id: int) -> None:
    """A Fetch at the end of the log that does not say whose disk it is for."""
    log = core.state.log
    request = fetch_request(epoch=core.epoch, offset=log.end_offset, last_epoch=log.last_epoch, replica_id=replica_id)
    tell(core, request, version=18, request_id=200 + replica_id)


def test_an_observer_without_a_directory_id_lends_a_new_voter_of_its_id_no_progress() -> None:
    """The voter 4 is one disk, and what somebody else of its id has is not there: it must not count as committed."""
    core = leader(log=dynamic_log(1, 2), directory_id=key(1).directory_id)
    flush(core)
    fetch_without_disk(core, 4)
    fetch(core, 4, 50)
    fetch(core, 2, 51)
    had_by_others = core.state.log.end_offset
    assert core.high_watermark == had_by_others
    append_one(core)
    fetch_without_disk(core, 4)
    tell(core, add_request(4))
    append_submitted(core, reply(core, 4, supports(0, 1)))
    flush(core)
    fetch_without_disk(core, 4)

    assert core.voters.ids == (1, 2, 4)
    assert core.high_watermark == had_by_others
    assert {number: progress.end_offset for number, progress in as_leader(core).progress.items()} == {
        2: had_by_others,
        4: had_by_others,
    }
    assert ReplicaKey(4) in as_leader(core).observers


def test_voters_are_as_far_as_they_were_when_the_upgrade_names_their_disks() -> None:
    """They are who they were: kraft.version 1 only says which disk each of them has (KIP-853, UpdateFeatures)."""
    core = upgrading.static_leader(2, 3)
    upgrading.fetch(core, 3)
    before = {number: (row.end_offset, row.last_fetch_ms) for number, row in as_leader(core).progress.items()}
    assert before == dict.fromkeys((2, 3), (core.state.log.end_offset, core.state.now_ms))
    upgrading.append_submitted(core, tell(core, upgrading.upgrade(), version=2))
    role = as_leader(core)

    assert core.kraft_version == 1
    assert {number: row.key for number, row in role.progress.items()} == {
        number: ReplicaKey(number, upgrading.DISKS[number]) for number in (2, 3)
    }
    assert {number: (row.end_offset, row.last_fetch_ms) for number, row in role.progress.items()} == before
    assert role.observers == {}
