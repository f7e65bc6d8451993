"""A replica's own membership (KIP-853, UpdateRaftVoter; KIP-1186)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftlib.consensus.actions import PersistElection
from kraftlib.consensus.events import Failure, RequestFailed, ShutdownRequested, TimeoutReached
from kraftlib.consensus.joining import (
    SILENT_PERIODS,
    join_deadline_ms,
    maybe_join,
    maybe_update_voter,
    update_deadline_ms,
)
from kraftlib.consensus.log_view import LogView
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Role
from kraftlib.consensus.state import Amnesia
from kraftlib.consensus.transitions import updated_voters
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.types import BOOTSTRAP_SNAPSHOT, METADATA_TOPIC, ZERO_UUID, ElectionState, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.raft_voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from tests.consensus.build import (
    LISTENER,
    end_request,
    fetch_response,
    follower,
    outstanding_to,
    place,
    replica,
    reply,
    requests,
    tell,
    voter_set,
)


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
    """Let the Fetch to the leader fail, and only the pause after it remain."""
    number = outstanding_to(core, 2).correlation_id
    core.handle(RequestFailed(number, Failure.MALFORMED), core.state.now_ms + 1_900)
    core.state.connections.succeeded(2)


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
    "why",
    [{"own": key(4), "auto_join": False}, {"own": key(4), "kraft_version": 0}, {"own": ReplicaKey(4)}],
    ids=["not asked to", "static quorum", "no directory id"],
)
def test_an_observer_stays_one_unless_it_is_told_to_join(why: dict[str, Any]) -> None:
    """Adding a voter changes every majority: it is an operator's decision."""
    core = observer(key(1), key(2), **why)
    assert after_the_period(core, AddRaftVoterRequest) == []

    core = observer(key(1), key(2), **why)
    assert maybe_join(core.state, due(core)) == []
    assert join_deadline_ms(core.state, due(core)) is None


OLD_DISK = key(4, disk=7_000)


def described(
    core: Replica, fetched_ms: int, *, disk: UUID = OLD_DISK.directory_id or ZERO_UUID, epoch: int = 5, error: int = 0
) -> list[Any]:
    """Let a period end, and the leader say when the voter 4 fetched last; return what is asked then."""
    (_,) = after_the_period(core, DescribeQuorumRequest)
    rows = [(2, key(2).directory_id, core.state.now_ms), (4, disk, fetched_ms)]
    partition = DescribeQuorumResponse.PartitionData(
        error_code=error,
        leader_id=2,
        leader_epoch=epoch,
        current_voters=tuple(
            DescribeQuorumResponse.ReplicaState(replica_id=number, replica_directory_id=on, last_fetch_timestamp=at)
            for number, on, at in rows
        ),
    )
    topic = DescribeQuorumResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    actions = reply(core, 2, DescribeQuorumResponse(error_message="", topics=(topic,)))
    if not requests(actions, FetchRequest):  # after an error it pauses
        core.handle(TimeoutReached(), core.state.now_ms + 50)
    reply(core, 2, fetch_response(epoch=5, leader_id=2))
    core.state.now_ms += core.state.config.fetch_timeout_ms - 100
    return actions


@pytest.mark.parametrize("fetched_ms", [1_700_000_000_000, -1], ids=["long ago", "never"])
@pytest.mark.parametrize("disk", [OLD_DISK.directory_id, ZERO_UUID], ids=["this disk", "not said"])
def test_a_lost_disk_of_our_own_is_removed_first_once_it_is_known_to_be_silent(fetched_ms: int, disk: UUID) -> None:
    """Never both keys of one id at once."""
    core = observer(key(1), key(2), OLD_DISK, own=key(4))
    for _ in range(1 + SILENT_PERIODS):
        assert not requests(described(core, fetched_ms, disk=disk), RemoveRaftVoterRequest)
    (request,) = after_the_period(core, RemoveRaftVoterRequest)

    assert (request.voter_id, request.voter_directory_id) == (4, UUID(int=7_004))
    reply(core, 2, RemoveRaftVoterResponse(error_code=7, error_message="try again"))
    reply(core, 2, fetch_response(epoch=5, leader_id=2))
    core.state.now_ms += core.state.config.fetch_timeout_ms - 100
    assert not requests(described(core, fetched_ms, disk=disk), RemoveRaftVoterRequest), "it is looked at anew"


def test_a_voter_of_our_id_that_lives_is_never_removed() -> None:
    """This replica was given a wrong id; its operator is told."""
    core = observer(key(1), key(2), OLD_DISK, own=key(4))
    for period in range(12):
        described(core, 1_700_000_000_000 + period // SILENT_PERIODS)  # now and then it is slow

    assert core.state.refused == {"our id is in use": 3}
    assert after_the_period(core, RemoveRaftVoterRequest) == []


@pytest.mark.parametrize("wrong", [{"epoch": 4}, {"error": 6}, {"disk": UUID(int=1)}])
def test_only_what_the_leader_says_of_that_very_voter_counts(wrong: dict[str, Any]) -> None:
    core = observer(key(1), key(2), OLD_DISK, own=key(4))
    for _ in range(2 * SILENT_PERIODS):
        described(core, 1, **wrong)
        core.state.connections.succeeded(2)

    assert after_the_period(core, RemoveRaftVoterRequest) == []


@pytest.mark.parametrize("error", [0, 7, 126])
def test_after_an_answer_the_next_period_decides(error: int) -> None:
    """It fetches on meanwhile: REQUEST_TIMED_OUT may only mean that it is not caught up yet."""
    core = observer(key(1), key(2), own=key(4))
    after_the_period(core, AddRaftVoterRequest)
    actions = reply(core, 2, AddRaftVoterResponse(error_code=error, error_message=None))

    assert len(requests(actions, FetchRequest)) == 1
    assert core.state.refused == {}


def test_a_period_begins_with_the_answer_however_late_that_is() -> None:
    """Else a leader that takes longer than a period for its answer is asked again before it is asked for the log."""
    core = observer(key(1), key(2), own=key(4))
    after_the_period(core, AddRaftVoterRequest)
    core.state.now_ms += 1_900
    reply(core, 2, AddRaftVoterResponse(error_code=7, error_message=None))

    role = core.state.role_state
    assert isinstance(role, Follower)
    assert role.update_due_ms == core.state.now_ms + core.state.config.fetch_timeout_ms


def test_a_refusal_is_said_once_and_not_repeated_at_once() -> None:
    """An operator has to do something."""
    core = observer(key(1), key(2), own=key(4))
    after_the_period(core, AddRaftVoterRequest)
    actions = reply(core, 2, AddRaftVoterResponse(error_code=35, error_message="no"))

    assert core.state.refused == {"not allowed to join": 1}
    assert requests(actions, AddRaftVoterRequest) == []


def test_a_follower_of_a_static_quorum_says_once_what_it_is() -> None:
    """One period after it began to follow; captured from 4.3.1."""
    core = follower(1, epoch=5, leader_id=2, directory_id=UUID(int=1_001))
    number = outstanding_to(core, 2).correlation_id
    core.handle(RequestFailed(number, Failure.MALFORMED), 1_990)
    core.state.connections.succeeded(2)
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
    core.state.connections.succeeded(2)
    core.state.role_state.fetch_deadline_ms = 9_000  # type: ignore[union-attr]
    core.handle(TimeoutReached(), 2_050)
    number = outstanding_to(core, 2).correlation_id
    actions = core.handle(RequestFailed(number, Failure.UNSUPPORTED_VERSION), 2_060)

    assert core.state.role_state.updated_voter  # type: ignore[union-attr]
    assert core.state.role_state.fetch_deadline_ms == 2_060 + 2_000  # type: ignore[union-attr]
    assert requests(actions, FetchRequest)


# --- field by field --------------------------------------------------------------------------------------------------


def due(core: Replica) -> Follower:
    """Let a period be over at this very moment, with a leader that may be asked."""
    state, role = core.state, core.state.role_state
    assert isinstance(role, Follower)
    if not state.connections.is_ready(2, state.now_ms):
        state.connections.forget()
        state.now_ms += 1_000
    role.update_due_ms = state.now_ms
    role.fetch_deadline_ms = state.now_ms + 2_000
    return role


def static_follower(**more: Any) -> Replica:
    """A voter of a static quorum that follows 2, and has something to tell it now."""
    core = follower(1, epoch=5, leader_id=2, directory_id=UUID(int=1_001), **more)
    due(core)
    return core


def test_who_we_are_is_told_when_it_is_due_and_again_after_a_period() -> None:
    core = static_follower()
    state, role = core.state, due(core)
    role.update_due_ms = state.now_ms + 1
    assert maybe_update_voter(state, role) == []
    role.update_due_ms = state.now_ms
    assert update_deadline_ms(state, role) == state.now_ms
    (sent,) = maybe_update_voter(state, role)
    request = sent.request  # type: ignore[union-attr]
    assert (request.voter_id, request.voter_directory_id, request.current_leader_epoch) == (1, UUID(int=1_001), 5)
    assert [(one.name, one.port) for one in request.listeners] == [(LISTENER, 9001)]
    assert role.update_due_ms == state.now_ms + state.config.fetch_timeout_ms
    assert update_deadline_ms(state, role) is None, "an answer must come first"


def test_nothing_is_told_by_who_has_told_it_or_nobody_to_whom() -> None:
    core = static_follower()
    role = due(core)
    role.updated_voter = True
    assert maybe_update_voter(core.state, role) == []
    assert update_deadline_ms(core.state, role) is None

    core = static_follower()
    role = due(core)
    role.leader_endpoints = {}
    assert maybe_update_voter(core.state, role) == []
    assert role.update_due_ms == core.state.now_ms, "as soon as it is known where"
    assert update_deadline_ms(core.state, role) is None, "no time tells where"

    core = static_follower()
    role = due(core)
    core.state.connections.back_off(2, core.state.now_ms + 10)
    assert maybe_update_voter(core.state, role) == []
    assert update_deadline_ms(core.state, role) is None

    core = follower(1, epoch=5, leader_id=2)
    role = due(core)
    assert core.state.key.directory_id is None
    assert maybe_update_voter(core.state, role) == []
    assert update_deadline_ms(core.state, role) is None

    core = static_follower()
    role = due(core)
    core.state.amnesia = Amnesia()
    assert maybe_update_voter(core.state, role) == []
    assert update_deadline_ms(core.state, role) is None, (
        "its vote must come back first, and is not waited for in a loop"
    )

    core = static_follower(voters=voter_set(2, 3))
    role = due(core)
    assert maybe_update_voter(core.state, role) == [], "an observer has nothing to say"
    assert update_deadline_ms(core.state, role) is None


def test_a_dynamic_quorum_is_told_what_its_voter_set_does_not_say() -> None:
    core = observer(key(1), key(2), own=key(1))
    state, role = core.state, due(core)
    assert updated_voters(state) != state.voters
    assert [type(sent.request) for sent in maybe_update_voter(state, role)] == [UpdateRaftVoterRequest]  # type: ignore[union-attr]

    state.log.voters.add(1, updated_voters(state))
    role = due(core)
    assert maybe_update_voter(state, role) == []
    assert role.update_due_ms == state.now_ms + state.config.fetch_timeout_ms, "and looked at again after a period"


def test_a_static_quorum_is_told_even_what_it_knows() -> None:
    """Its leader keeps the table for the day of the upgrade."""
    core = static_follower()
    core.state.log.voters.add(1, updated_voters(core.state))
    assert updated_voters(core.state) == core.state.voters
    assert len(maybe_update_voter(core.state, due(core))) == 1


def told(core: Replica, **current: Any) -> list[Any]:
    """Tell the leader, let it answer who leads, and return what is done then."""
    (sent,) = maybe_update_voter(core.state, due(core))
    assert sent is not None
    current = {"leader_id": 2, "leader_epoch": 5, "host": "localhost", "port": 9002, **current}
    error = current.pop("error", 0)
    answer = UpdateRaftVoterResponse(error_code=error, current_leader=UpdateRaftVoterResponse.CurrentLeader(**current))
    return reply(core, 2, answer)


def test_the_answer_is_a_sign_of_life_and_says_once_for_all_in_a_static_quorum() -> None:
    core = static_follower()
    core.state.now_ms += 7
    told(core)
    role = core.state.role_state
    assert isinstance(role, Follower)
    assert role.updated_voter
    assert role.fetch_deadline_ms == core.state.now_ms + core.state.config.fetch_timeout_ms

    core = observer(key(1), key(2), own=key(1))
    told(core)
    assert not core.state.role_state.updated_voter  # type: ignore[union-attr]


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION])
def test_an_answer_that_comes_after_the_good_bye_is_no_sign_of_life(error: ErrorCode) -> None:
    """It was on its way: the successor must not wait for a fetch timeout because of it."""
    core = static_follower()
    role = due(core)
    assert requests(core.handle(TimeoutReached(), core.state.now_ms), UpdateRaftVoterRequest)
    tell(core, end_request(epoch=core.epoch, leader_id=2, candidates=(3, 1)))
    deadline_ms = role.fetch_deadline_ms
    current = UpdateRaftVoterResponse.CurrentLeader(leader_id=2, leader_epoch=core.epoch)
    answer = UpdateRaftVoterResponse(error_code=error, current_leader=current)
    reply(core, 2, answer, now_ms=core.state.now_ms + 1)

    assert core.state.role_state is role
    assert role.fetch_deadline_ms == deadline_ms


def test_a_leader_that_does_not_know_the_question_is_not_asked_it_again() -> None:
    core = static_follower()
    told(core, error=35, leader_id=-1, leader_epoch=-1, host="", port=0)
    assert core.state.role_state.updated_voter  # type: ignore[union-attr]
    assert core.epoch == 5


def test_who_does_not_know_the_question_may_know_a_newer_leader() -> None:
    core = static_follower(voters=voter_set(0, 1, 2))
    told(core, error=35, leader_id=0, leader_epoch=6, host="elsewhere", port=1)
    assert (core.epoch, core.leader_and_epoch.leader_id) == (6, 0)


@pytest.mark.parametrize("port", [1, 65535])
def test_the_answer_may_name_a_newer_leader_and_its_place(port: int) -> None:
    core = static_follower(voters=voter_set(0, 1, 2))
    actions = told(core, error=6, leader_id=0, leader_epoch=6, host="elsewhere", port=port)
    assert isinstance(actions[0], PersistElection)
    assert actions[0].election.leader_id == 0
    role = core.state.role_state
    assert isinstance(role, Follower)
    assert (core.epoch, role.leader_id) == (6, 0)
    assert [(one.host, one.port) for one in core.leader_endpoints.values()] == [("elsewhere", port)]
    assert not role.updated_voter, "the new leader has not heard of us"


@pytest.mark.parametrize(("host", "port"), [("", 9003), ("elsewhere", 0), ("elsewhere", 65536)])
def test_a_place_that_cannot_be_is_no_place(host: str, port: int) -> None:
    """The leader's own entry in the voter set is used then."""
    core = static_follower()
    told(core, error=6, leader_id=3, leader_epoch=6, host=host, port=port)

    assert core.epoch == 6
    assert [(one.host, one.port) for one in core.leader_endpoints.values()] in ([], [("localhost", place(3).port)])


def test_an_answer_of_a_newer_epoch_without_a_leader_ends_the_following() -> None:
    core = static_follower()
    told(core, error=6, leader_id=-1, leader_epoch=6, host="", port=0)

    assert (core.role, core.epoch, core.leader_and_epoch.leader_id) == (Role.UNATTACHED, 6, None)


def test_joining_waits_for_its_time_its_leader_and_its_turn() -> None:
    core = observer(key(1), key(2), own=key(4))
    state, role = core.state, due(core)
    role.update_due_ms = state.now_ms + 1
    assert maybe_join(state, role) == []
    assert join_deadline_ms(state, role) == state.now_ms + 1
    role.update_due_ms = state.now_ms
    known, role.leader_endpoints = role.leader_endpoints, {}
    assert maybe_join(state, role) == []
    role.leader_endpoints = known
    state.connections.back_off(2, state.now_ms + 10)
    assert maybe_join(state, role) == []
    assert join_deadline_ms(state, role) is None
    state.now_ms += 10
    assert len(maybe_join(state, role)) == 1
    assert role.update_due_ms == state.now_ms + state.config.fetch_timeout_ms
    assert join_deadline_ms(state, role) is None


def test_nobody_joins_who_is_there_or_about_to_go() -> None:
    voter = observer(key(1), key(2), own=key(1))
    assert maybe_join(voter.state, due(voter)) == []
    assert join_deadline_ms(voter.state, due(voter)) is None

    leaving = observer(key(1), key(2), own=key(4))
    leaving.handle(ShutdownRequested(60_000), leaving.state.now_ms)
    assert maybe_join(leaving.state, due(leaving)) == []
    assert join_deadline_ms(leaving.state, due(leaving)) is None


def test_an_answer_ends_a_row_of_failures() -> None:
    core = observer(key(1), key(2), own=key(4))
    role = due(core)
    (_,) = maybe_join(core.state, role)
    core.state.connections.failed(2, core.state.now_ms - 500, 1)
    assert core.state.connections.failures(2) > 0
    reply(core, 2, AddRaftVoterResponse(error_code=0, error_message=None))

    assert core.state.connections.failures(2) == 0


def test_after_a_failure_the_leader_is_asked_for_the_log_first() -> None:
    """A question that is never answered in time would be due again after each pause, and nothing would be fetched."""
    core = observer(key(1), key(2), own=key(4))
    (_,) = after_the_period(core, AddRaftVoterRequest)
    number = outstanding_to(core, 2).correlation_id
    core.handle(RequestFailed(number, Failure.DISCONNECTED), core.state.now_ms + 5_000)
    actions = core.handle(TimeoutReached(), core.state.now_ms + 1_000)

    assert requests(actions, AddRaftVoterRequest) == []
    assert [request.destination for request in requests(actions, FetchRequest)] == [2]
    reply(core, 2, fetch_response(epoch=5, leader_id=2))
    assert len(after_the_period(core, AddRaftVoterRequest)) == 1


def test_nobody_waits_for_a_time_at_which_nothing_may_be_sent() -> None:
    core = observer(key(1), key(2), own=key(4))
    role = due(core)
    core.state.connections.failed(2, core.state.now_ms - 500, 1)

    assert maybe_join(core.state, role) == []
    assert join_deadline_ms(core.state, role) is None
