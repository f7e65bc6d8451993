"""Each condition of the election priority by itself: who is told, who is believed, and to whom it is handed when."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftlib.config import PRIORITY_MAX
from kraftlib.consensus.actions import SendRequest, SendResponse
from kraftlib.consensus.events import (
    Failure,
    PeerIdentified,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    TimeoutReached,
)
from kraftlib.consensus.extensions.priority import handle_priority_failed, lane_to, next_leader, next_leader_deadline_ms
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Leader, PreferredVoter, Role, Transfer, VoterChange
from kraftlib.consensus.state import HandOver
from kraftlib.types import ZERO_UUID, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest, ElectionPriorityResponse
from tests.consensus.build import (
    CLUSTER,
    as_leader,
    begin_request,
    fetch_request,
    flush,
    follower,
    leader,
    outstanding_to,
    place,
    tell,
)
from tests.consensus.build import voter_set as voters_of

DISK, OTHER_DISK = UUID(int=7), UUID(int=8)
TAKEOVER_MS, FETCH_TIMEOUT_MS = 400, 2_000


# --- the voter's side ------------------------------------------------------------------------------------------------


def wanted(*, has_fetched: bool = True, **settings: Any) -> tuple[Replica, Follower]:
    """A voter with a priority that follows 2, at 0 ms."""
    core = follower(1, 1, **{"election_priority": 80, **settings})
    role = core.state.role_state
    assert isinstance(role, Follower)
    role.has_fetched = has_fetched
    return core, role


def questions(actions: list[Any]) -> list[ElectionPriorityRequest]:
    return [
        action.request
        for action in actions
        if isinstance(action, SendRequest) and isinstance(action.request, ElectionPriorityRequest)
    ]


def test_a_question_says_who_asks_and_of_which_disk() -> None:
    for directory_id in (DISK, None):
        core, _ = wanted(directory_id=directory_id)
        (asked,) = questions(core.handle(TimeoutReached(), 0))
        assert (asked.cluster_id, asked.voter_directory_id) == (CLUSTER, directory_id or ZERO_UUID)


@pytest.mark.parametrize("lacking", [{"has_fetched": False}, {"election_priority": 0}])
def test_a_voter_with_nothing_to_tell_tells_nothing(lacking: dict[str, Any]) -> None:
    core, _ = wanted(**lacking)
    assert questions(core.handle(TimeoutReached(), 50)) == []


def test_whoever_may_not_stand_tells_nobody() -> None:
    observer, _ = wanted(own_id=9)
    assert questions(observer.handle(TimeoutReached(), 0)) == []


def test_a_leader_of_whom_it_is_not_known_where_it_is_cannot_be_told() -> None:
    core, role = wanted()
    role.leader_endpoints = {"ANOTHER": next(iter(role.leader_endpoints.values()))}
    assert questions(core.handle(TimeoutReached(), 0)) == []


def test_a_leader_that_is_being_told_is_not_told_twice() -> None:
    core, _ = wanted()
    assert len(questions(core.handle(TimeoutReached(), 0))) == 1
    assert questions(core.handle(TimeoutReached(), 1)) == []


def test_an_answer_ends_the_row_of_failures() -> None:
    core, role = wanted()
    core.handle(TimeoutReached(), 0)
    lane = lane_to(2)
    core.handle(RequestFailed(outstanding_to(core, lane).correlation_id, Failure.DISCONNECTED), 0)
    assert (core.state.connections.failures(lane), role.told_priority) == (1, False)
    core.handle(TimeoutReached(), 100)
    core.handle(
        ResponseReceived(outstanding_to(core, lane).correlation_id, ElectionPriorityResponse(error_code=0)), 100
    )
    assert (core.state.connections.failures(lane), role.told_priority) == (0, True)


def test_a_leader_that_knows_no_such_question_is_not_asked_it_again_but_the_next_one_is() -> None:
    core, role = wanted()
    core.handle(TimeoutReached(), 0)
    core.handle(RequestFailed(outstanding_to(core, lane_to(2)).correlation_id, Failure.UNSUPPORTED_VERSION), 1)
    assert role.told_priority
    assert not core.state.connections.is_backing_off(lane_to(2), 1)
    tell(core, begin_request(epoch=2, leader_id=3))
    next_role = core.state.role_state
    assert isinstance(next_role, Follower)
    assert not next_role.told_priority


def test_who_follows_nobody_any_more_only_waits_when_nobody_understood() -> None:
    core, _ = wanted()
    core.handle(TimeoutReached(), 0)
    outstanding = outstanding_to(core, lane_to(2))
    leading = leader(1)
    assert handle_priority_failed(leading.state, outstanding, Failure.UNSUPPORTED_VERSION) == []
    assert leading.state.connections.is_backing_off(lane_to(2), leading.state.now_ms)


# --- the leader's side -----------------------------------------------------------------------------------------------


def leading(**settings: Any) -> tuple[Replica, Leader]:
    """A leader of five with a committed epoch, whose voters 2 and 3 have everything at 0 ms of its time."""
    core = leader(1, voters=voters_of(1, 2, 3), priority_takeover_ms=TAKEOVER_MS, **settings)
    flush(core)
    for voter_id in (2, 3):
        log = core.state.log
        request = fetch_request(epoch=core.epoch, offset=log.end_offset, last_epoch=log.last_epoch, replica_id=voter_id)
        core.handle(RequestReceived(50 + voter_id, request, 18), core.state.now_ms)
    role = as_leader(core)
    assert core.high_watermark == core.state.log.end_offset
    return core, role


def told(core: Replica, *, voter_id: int = 3, priority: int = 50, directory_id: UUID = ZERO_UUID, **more: Any) -> int:
    request = ElectionPriorityRequest(
        cluster_id=more.get("cluster_id", CLUSTER), leader_epoch=core.epoch, voter_id=voter_id,
        voter_directory_id=directory_id, priority=priority,
    )  # fmt: skip
    actions = core.handle(RequestReceived(70, request, 0), core.state.now_ms)
    (answer,) = [action for action in actions if isinstance(action, SendResponse) and action.request_id == 70]
    return int(answer.response.error_code)


def rivals(role: Leader, due_ms: int, **priorities: int) -> None:
    """Note rivals, given as v2=50."""
    role.preferred_voters = {
        int(name[1:]): PreferredVoter(priority=priority, due_ms=due_ms) for name, priority in priorities.items()
    }


def test_the_greatest_priority_is_believed_and_waits_its_time() -> None:
    core, role = leading()
    assert told(core, priority=PRIORITY_MAX) == ErrorCode.NONE
    assert role.preferred_voters == {3: PreferredVoter(priority=PRIORITY_MAX, due_ms=core.state.now_ms + TAKEOVER_MS)}


def test_a_voter_is_known_by_its_disk() -> None:
    """One that has lost it is nobody to hand the leadership to."""
    keys = voters_of(ReplicaKey(1), ReplicaKey(2), ReplicaKey(3, DISK))
    for directory_id, error in (
        (DISK, ErrorCode.NONE), (OTHER_DISK, ErrorCode.VOTER_NOT_FOUND), (ZERO_UUID, ErrorCode.VOTER_NOT_FOUND),
    ):  # fmt: skip
        core = leader(1, voters=keys)
        assert told(core, directory_id=directory_id) == error


def test_the_first_thing_that_is_wrong_is_said() -> None:
    core, _ = leading()
    assert told(core, cluster_id="another", priority=0) == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert told(core, cluster_id="another", voter_id=9) == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_nothing_is_handed_over_where_nobody_is_wanted() -> None:
    core, role = leading()
    assert next_leader(core.state, role) is None


def test_the_most_wanted_one_is_taken_if_it_is_ready_and_else_the_next() -> None:
    core, role = leading()
    state = core.state
    timeout_ms = state.now_ms + state.config.request_timeout_ms
    rivals(role, state.now_ms, v2=50, v3=80)
    assert next_leader(state, role) == Transfer(target_id=3, deadline_ms=timeout_ms)
    core, role = leading()
    rivals(role, core.state.now_ms, v2=50, v3=80)
    role.progress[3].end_offset -= 1
    assert next_leader(core.state, role) == Transfer(target_id=2, deadline_ms=timeout_ms)
    core, role = leading()
    rivals(role, core.state.now_ms, v2=50, v3=50)
    assert next_leader(core.state, role) == Transfer(target_id=2, deadline_ms=timeout_ms), "of equals, the lower id"


def test_a_voter_that_is_no_voter_any_more_is_passed_over() -> None:
    core, role = leading()
    rivals(role, core.state.now_ms, v2=50, v3=80)
    del role.progress[3]
    transfer = next_leader(core.state, role)
    assert transfer is not None
    assert transfer.target_id == 2


def test_nothing_is_handed_over_before_the_own_epoch_is_proved_or_amid_a_change() -> None:
    core, role = leading()
    state = core.state
    rivals(role, state.now_ms, v3=80)
    change = VoterChange(request_id=1, request=None, voter_id=9, deadline_ms=10**6)
    role.change = change
    assert next_leader(state, role) is None
    role.change = None
    proved, state.high_watermark = state.high_watermark, None
    assert next_leader(state, role) is None
    state.high_watermark = proved
    assert next_leader(state, role) is not None


def test_nothing_is_handed_over_before_its_time() -> None:
    core, role = leading()
    rivals(role, core.state.now_ms + 1, v3=80)
    assert next_leader(core.state, role) is None
    rivals(role, core.state.now_ms, v3=80)
    assert next_leader(core.state, role) is not None


@pytest.mark.parametrize(("silent_ms", "is_alive"), [(FETCH_TIMEOUT_MS - 1, True), (FETCH_TIMEOUT_MS, False)])
def test_one_that_is_silent_for_the_fetch_timeout_may_be_dead(silent_ms: int, is_alive: bool) -> None:
    core, role = leading(fetch_timeout_ms=FETCH_TIMEOUT_MS)
    rivals(role, core.state.now_ms, v3=80)
    core.state.now_ms += silent_ms
    assert (next_leader(core.state, role) is not None) == is_alive


def test_one_that_has_never_fetched_is_handed_nothing() -> None:
    core, role = leading()
    rivals(role, core.state.now_ms, v3=80)
    role.progress[3].last_fetch_ms = None
    assert next_leader(core.state, role) is None


def test_one_that_lacks_what_the_leader_has_not_flushed_yet_is_not_ready() -> None:
    core, role = leading()
    rivals(role, core.state.now_ms, v3=80)
    core.state.log.end_offset += 1
    assert next_leader(core.state, role) is None


def test_a_leader_wakes_up_for_the_next_voter_that_it_may_hand_over_to() -> None:
    core, role = leading(election_priority=20)
    state, now_ms = core.state, core.state.now_ms
    rivals(role, now_ms + 30, v2=50)
    role.preferred_voters[3] = PreferredVoter(priority=60, due_ms=now_ms + 40)
    assert next_leader_deadline_ms(state, role) == now_ms + 30
    role.preferred_voters[2].due_ms = now_ms
    assert next_leader_deadline_ms(state, role) == now_ms + 40, "what is due already waits for something else"
    role.preferred_voters[3].priority = 20
    assert next_leader_deadline_ms(state, role) is None, "who is wanted as much is not waited for"


def test_a_leader_wakes_up_to_yield_again() -> None:
    """In a quiet hour nothing else would wake it before."""
    core, role = leading()
    state = core.state
    core.handle(PeerIdentified(place(3), is_controller=True), state.now_ms)
    assert core.role is Role.RESIGNED
    core, role = leading()
    state = core.state
    state.controllers = frozenset({place(3)})
    state.hand_overs[3] = HandOver(state.now_ms, 1)
    assert next_leader(state, role) is None
    assert next_leader_deadline_ms(state, role) == state.now_ms + 2 * TAKEOVER_MS


def test_who_is_handed_the_leadership_has_everything_and_is_named_first() -> None:
    core, _ = leading()
    began = core.state.now_ms
    told(core, voter_id=3, priority=50)
    core.handle(TimeoutReached(), began + TAKEOVER_MS)
    assert core.role is Role.RESIGNED
    assert core.leader_and_epoch == LeaderAndEpoch(None, core.epoch)


def test_of_those_that_have_as_much_a_leader_that_leaves_names_the_most_wanted_first() -> None:
    core, _ = leading()
    told(core, voter_id=3, priority=50)
    core.handle(ResignRequested(core.epoch), core.state.now_ms)
    assert [key.id for key in core.state.role_state.preferred] == [3, 2]  # type: ignore[union-attr]
