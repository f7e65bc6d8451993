"""The voter that is wanted as leader becomes it; and what its priority may never do."""

from __future__ import annotations

import itertools
import statistics
from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.config import PRIORITY_MAX
from kraftlib.consensus.actions import SendRequest, SendResponse
from kraftlib.consensus.events import (
    ConnectionLost,
    DiskSpaceChanged,
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
from kraftlib.consensus.roles import Follower, Heard, Leader, PreferredVoter, Role, Transfer, VoterChange
from kraftlib.consensus.state import HandOver
from kraftlib.types import ZERO_UUID, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest, ElectionPriorityResponse
from tests.consensus.build import (
    CLUSTER,
    answer_vote,
    as_leader,
    begin_request,
    end_request,
    fetch_request,
    flush,
    follower,
    leader,
    outstanding_to,
    place,
    replica,
    tell,
)
from tests.consensus.build import voter_set as voters_of

DISK, OTHER_DISK = UUID(int=7), UUID(int=8)
TAKEOVER_MS, FETCH_TIMEOUT_MS = 400, 2_000


def fetched(core: Replica, voter_id: int, *, now_ms: int, request_id: int = 50, max_bytes: int = 1 << 20) -> list[Any]:
    """A voter fetches at the log end, so it has everything; for one byte, if its disk is full."""
    log = core.state.log
    request = fetch_request(epoch=core.epoch, offset=log.end_offset, last_epoch=log.last_epoch, replica_id=voter_id)
    request = attrs.evolve(request, max_bytes=max_bytes)
    return core.handle(RequestReceived(request_id, request, 18), now_ms)


def told(core: Replica, voter_id: int = 3, priority: int = 50, *, epoch: int | None = None, **more: Any) -> int:
    """A voter says how much it is wanted; return the error code of the answer."""
    request = ElectionPriorityRequest(
        cluster_id=more.get("cluster_id", CLUSTER),
        leader_epoch=core.epoch if epoch is None else epoch,
        voter_id=voter_id,
        voter_directory_id=more.get("directory_id", ZERO_UUID),
        priority=priority,
    )
    actions = core.handle(RequestReceived(70, request, 0), core.state.now_ms)
    (answer,) = [action for action in actions if isinstance(action, SendResponse) and action.request_id == 70]
    return int(answer.response.error_code)


def proven_leader(**settings: Any) -> Replica:
    """A leader of three with a committed epoch, everybody caught up at 0 ms of its own time."""
    core = leader(priority_takeover_ms=TAKEOVER_MS, **settings)
    flush(core)
    for voter_id in (2, 3):
        fetched(core, voter_id, now_ms=core.state.now_ms, request_id=50 + voter_id)
    assert core.high_watermark is not None
    return core


def leading(**settings: Any) -> tuple[Replica, Leader]:
    """The same, and its role."""
    core = proven_leader(**settings)
    return core, as_leader(core)


def rivals(role: Leader, due_ms: int, **priorities: int) -> None:
    """Note rivals, given as v2=50."""
    role.preferred_voters = {
        int(name[1:]): PreferredVoter(priority=priority, due_ms=due_ms) for name, priority in priorities.items()
    }


def wanted(*, has_fetched: bool = True, **settings: Any) -> tuple[Replica, Follower]:
    """A voter with a priority that follows 2, at 0 ms."""
    core = follower(1, 1, **{"election_priority": 80, **settings})
    role = core.state.role_state
    assert isinstance(role, Follower)
    role.heard = Heard.ANSWER if has_fetched else Heard.NOTHING
    return core, role


def questions(actions: list[Any]) -> list[ElectionPriorityRequest]:
    return [
        action.request
        for action in actions
        if isinstance(action, SendRequest) and isinstance(action.request, ElectionPriorityRequest)
    ]


def test_leadership_goes_to_the_voter_that_is_wanted_and_has_everything() -> None:
    core = proven_leader()
    began = core.state.now_ms
    assert told(core, 3, 50) == told(core, 2, 20) == ErrorCode.NONE
    core.handle(TimeoutReached(), began + 399)
    assert core.role is Role.LEADER

    deadline = core.deadline_ms()
    assert deadline is not None
    assert deadline <= began + 400
    core.handle(TimeoutReached(), began + 400)

    assert core.role is Role.RESIGNED
    assert core.leader_and_epoch == LeaderAndEpoch(None, core.epoch)
    assert [key.id for key in core.state.role_state.preferred] == [3, 2]  # type: ignore[union-attr]


@pytest.mark.parametrize("own", [50, 80])
def test_a_leader_that_is_wanted_as_much_stays(own: int) -> None:
    core = proven_leader(election_priority=own)
    began = core.state.now_ms
    told(core, 3, 50)
    for step in range(1, 20):
        fetched(core, 2, now_ms=began + step * 100, request_id=1_000 + 2 * step)
        fetched(core, 3, now_ms=began + step * 100, request_id=1_001 + 2 * step)

    assert core.role is Role.LEADER


def all_fetch(core: Replica, step: int, **max_bytes: int) -> list[Any]:
    """Both others fetch once more, 100 ms later."""
    now_ms = core.state.now_ms + 100
    actions: list[Any] = []
    for voter_id in (2, 3):
        more = max_bytes.get(f"of_{voter_id}", 1 << 20)
        actions += fetched(core, voter_id, now_ms=now_ms, request_id=1_000 + 2 * step + voter_id % 2, max_bytes=more)
    return actions


def test_a_leader_with_a_full_disk_hands_over_to_a_voter_with_space() -> None:
    """After the fetch timeout: by then each voter has told of its own disk."""
    core = proven_leader(fetch_timeout_ms=2_000)
    core.handle(DiskSpaceChanged(True), core.state.now_ms)
    for step in range(19):
        all_fetch(core, step)
    assert core.role is Role.LEADER
    for step in range(19, 22):
        if core.role is Role.LEADER:
            all_fetch(core, step)

    assert core.role is Role.RESIGNED
    assert [key.id for key in core.state.role_state.preferred] == [2, 3]  # type: ignore[union-attr]


def test_a_leader_with_a_full_disk_stays_where_the_voters_with_space_are_no_majority() -> None:
    """Another leader could commit nothing either: the quorum would only change leaders, and wait as before."""
    core = proven_leader(fetch_timeout_ms=2_000)
    core.handle(DiskSpaceChanged(True), core.state.now_ms)
    for step in range(50):
        all_fetch(core, step, of_2=1)
    assert core.role is Role.LEADER

    for step in range(50, 53):
        if core.role is Role.LEADER:
            all_fetch(core, step)
    assert core.role is Role.RESIGNED, "there is space on a majority"


def test_a_voter_that_died_with_space_on_its_disk_does_not_count() -> None:
    core = proven_leader(fetch_timeout_ms=2_000)
    core.handle(DiskSpaceChanged(True), core.state.now_ms)
    began = core.state.now_ms
    for step in range(1, 30):
        fetched(core, 2, now_ms=began + step * 100, request_id=1_000 + step)

    assert core.role is Role.LEADER


def test_a_leader_with_a_full_disk_stays_where_nobody_can_replace_it() -> None:
    core = proven_leader(fetch_timeout_ms=2_000)
    core.handle(DiskSpaceChanged(True), core.state.now_ms)
    for step in range(50):
        all_fetch(core, step, of_2=1, of_3=1)
    assert core.role is Role.LEADER

    core.handle(DiskSpaceChanged(False), core.state.now_ms)
    for step in range(50, 100):
        all_fetch(core, step)
    assert core.role is Role.LEADER, "and once there is space again there is no reason to leave"


def test_nobody_hands_over_to_a_voter_with_a_full_disk() -> None:
    core = proven_leader(fetch_timeout_ms=2_000)
    told(core, 3, 50)
    for step in range(50):
        all_fetch(core, step, of_3=1)
    assert core.role is Role.LEADER


def test_a_leader_that_is_elected_again_with_a_full_disk_hands_over_ever_more_rarely() -> None:
    core = proven_leader(fetch_timeout_ms=600)
    core.handle(DiskSpaceChanged(True), core.state.now_ms)
    times = []
    for _ in range(7):
        for step in itertools.count():
            if core.role is not Role.LEADER:
                break
            all_fetch(core, step)
        times.append(core.state.now_ms)
        lead_again(core)
    pauses = [after - before for before, after in itertools.pairwise(times)]

    assert pauses[-1] > 4 * pauses[0]


def test_who_lags_or_is_silent_is_not_handed_anything() -> None:
    core = proven_leader(fetch_timeout_ms=2_000)
    began = core.state.now_ms
    told(core, 3, 50)
    for step in range(1, 30):
        fetched(core, 2, now_ms=began + step * 100, request_id=1_000 + step)

    # Voter 3 had everything when it fetched last, 2.9 s ago.
    assert core.role is not Role.RESIGNED


def lead_again(core: Replica) -> None:
    """Let the election that followed a hand-over end with this replica as leader of a proven epoch once more."""
    while core.role is not Role.PROSPECTIVE:
        core.handle(TimeoutReached(), core.deadline_ms() or 0)
    for pre_vote in (True, False):
        answer_vote(core, 2, granted=True, pre_vote=pre_vote)
    assert core.role is Role.LEADER
    flush(core)
    for voter_id in (2, 3):
        fetched(core, voter_id, now_ms=core.state.now_ms, request_id=50 + voter_id)


def hand_over(core: Replica) -> int:
    """Let both voters fetch until leadership is handed over; return when."""
    number = 1_000
    while core.role is Role.LEADER:
        now_ms = core.state.now_ms + 100
        for voter_id in (2, 3):
            number += 1
            if core.role is Role.LEADER:
                fetched(core, voter_id, now_ms=now_ms, request_id=number)
    assert core.state.role_state.preferred[0].id == 3  # type: ignore[union-attr]
    return core.state.now_ms


@pytest.mark.parametrize("why", ["priority", "yield_to"])
def test_a_voter_that_is_handed_the_leadership_in_vain_is_handed_it_ever_more_rarely(why: str) -> None:
    """It may follow from two voters that yield to each other, or from one whom nobody can reach."""
    core = proven_leader()
    if why == "yield_to":
        core.handle(PeerIdentified(place(3), is_controller=True), core.state.now_ms)
    times = []
    for _ in range(10):
        if why == "priority":
            told(core, 3, 50)
        times.append(hand_over(core))
        lead_again(core)

    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    least = [400 << number for number in range(1, 10)]
    assert all(pause >= wanted for pause, wanted in zip(pauses, least, strict=True)), pauses
    assert pauses[-1] <= least[-1] + 3_000


def test_a_voter_that_has_led_for_long_is_handed_the_leadership_as_the_first_time() -> None:
    core = proven_leader()
    core.handle(PeerIdentified(place(3), is_controller=True), core.state.now_ms)
    for _ in range(5):
        hand_over(core)
        lead_again(core)
    last = hand_over(core)
    tell(core, begin_request(epoch=core.epoch + 1, leader_id=3))
    core.handle(TimeoutReached(), last + 2 * ((400 << 6) + 3_000))
    lead_again(core)
    times = [hand_over(core)]
    lead_again(core)
    times.append(hand_over(core))
    assert 400 << 1 <= times[1] - times[0] < 400 << 4


def test_a_priority_fades_until_its_voter_has_led_and_committed_something() -> None:
    core = leader(election_priority=10)
    assert core.state.setbacks == 1, "it was elected, and may not be able to commit anything"
    flush(core)
    fetched(core, 2, now_ms=core.state.now_ms)
    assert core.high_watermark is not None
    assert core.state.setbacks == 0


@pytest.mark.parametrize(
    ("priority", "voter_id", "more", "error"),
    [
        (0, 3, {}, ErrorCode.INVALID_REQUEST),
        (101, 3, {}, ErrorCode.INVALID_REQUEST),
        (-5, 3, {}, ErrorCode.INVALID_REQUEST),
        (50, 9, {}, ErrorCode.VOTER_NOT_FOUND),
        (50, 3, {"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        (50, 3, {"epoch": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (50, 3, {"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (0, 3, {"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (50, 9, {"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_what_cannot_be_is_refused(priority: int, voter_id: int, more: dict[str, Any], error: ErrorCode) -> None:
    core = proven_leader()
    assert told(core, voter_id, priority, **more) == error
    assert core.state.role_state.preferred_voters == {}  # type: ignore[union-attr]


def test_a_replica_that_does_not_lead_takes_no_note() -> None:
    assert told(follower(1, 1), 3, 50) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_voter_whose_disk_is_full_does_not_ask_to_lead() -> None:
    core, _ = wanted()
    core.handle(DiskSpaceChanged(True), core.state.now_ms)
    assert questions(core.handle(TimeoutReached(), core.state.now_ms + 10)) == []

    assert len(questions(core.handle(DiskSpaceChanged(False), core.state.now_ms))) == 1


def test_a_voter_tells_its_leader_once() -> None:
    core, _ = wanted()
    (asked,) = questions(core.handle(TimeoutReached(), 0))
    assert (asked.leader_epoch, asked.voter_id, asked.priority) == (1, 1, 80)
    assert questions(core.handle(TimeoutReached(), 0)) == [], "it is being told"
    outstanding = outstanding_to(core, lane_to(2))

    actions = core.handle(ResponseReceived(outstanding.correlation_id, ElectionPriorityResponse(error_code=0)), 1)

    assert questions(actions) == questions(core.handle(TimeoutReached(), 500)) == []


@pytest.mark.parametrize(
    "settings", [{"election_priority": 0}, {"private_apis": False}, {"has_fetched": False}, {"own_id": 9}]
)
def test_who_is_not_wanted_or_may_not_say_so_is_silent(settings: dict[str, Any]) -> None:
    assert questions(wanted(**settings)[0].handle(TimeoutReached(), 0)) == []


@pytest.mark.parametrize("ending", [Failure.DISCONNECTED, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_leader_that_has_taken_no_note_is_told_again(ending: Any) -> None:
    core, _ = wanted()
    core.handle(TimeoutReached(), 0)
    correlation_id = outstanding_to(core, lane_to(2)).correlation_id
    failed = isinstance(ending, Failure)
    event: Any = RequestFailed(correlation_id, ending) if failed else None
    core.handle(event or ResponseReceived(correlation_id, ElectionPriorityResponse(error_code=ending)), 1)

    assert len(questions(core.handle(TimeoutReached(), 200))) == 1


def test_one_that_was_handed_the_leadership_is_wanted_less_until_it_leads() -> None:
    core, _ = wanted(priority_takeover_ms=1_000)
    tell(core, end_request(epoch=1, candidates=(1, 3)))
    assert core.state.setbacks >= 1


def test_a_priority_fades_and_never_keeps_from_standing() -> None:
    """Half of it each time; the timer is never longer than without one, nor shorter than an election timeout."""
    spread = {}
    for setbacks in (0, 1, 5, 50):
        core = replica(election_priority=100)
        core.state.setbacks = setbacks
        times = [core.state.random_election_deadline_ms() for _ in range(400)]
        assert min(times) >= 1_000
        assert max(times) < 2_000
        spread[setbacks] = statistics.mean(times)
    assert spread[0] < spread[1] < spread[5] <= spread[50] + 30


def test_when_a_leader_dies_the_wanted_one_stands_first() -> None:
    deadlines = {}
    for own_id, priority in ((1, 0), (3, 100)):
        core = follower(1, 1, own_id=own_id, leader_id=2, election_priority=priority)
        core.handle(ConnectionLost(2, refused=False), 0)
        core.handle(ConnectionLost(2, refused=True), 0)
        deadlines[own_id] = core.state.role_state.fetch_deadline_ms  # type: ignore[union-attr]

    # Without priorities voter 3 would wait for a slot of 20 ms, behind voter 1.
    assert deadlines[3] <= 5


def test_a_controller_that_died_in_a_quiet_hour_is_not_yielded_to() -> None:
    core = proven_leader(fetch_timeout_ms=2_000)
    fetched(core, 2, now_ms=core.state.now_ms + 2_000)
    core.handle(PeerIdentified(place(3), is_controller=True), core.state.now_ms)
    assert core.role is Role.LEADER
    fetched(core, 3, now_ms=core.state.now_ms)
    assert core.role is Role.RESIGNED


def test_a_question_says_who_asks_and_of_which_disk() -> None:
    for directory_id in (DISK, None):
        core, _ = wanted(directory_id=directory_id)
        (asked,) = questions(core.handle(TimeoutReached(), 0))
        assert (asked.cluster_id, asked.voter_directory_id) == (CLUSTER, directory_id or ZERO_UUID)


def test_a_leader_of_whom_it_is_not_known_where_it_is_cannot_be_told() -> None:
    core, role = wanted()
    role.leader_endpoints = {"ANOTHER": next(iter(role.leader_endpoints.values()))}
    assert questions(core.handle(TimeoutReached(), 0)) == []


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
    assert questions(core.handle(TimeoutReached(), 1_000)) == []
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


def test_of_those_that_have_as_much_a_leader_that_leaves_names_the_most_wanted_first() -> None:
    core, _ = leading()
    told(core, voter_id=3, priority=50)
    core.handle(ResignRequested(core.epoch), core.state.now_ms)
    assert [key.id for key in core.state.role_state.preferred] == [3, 2]  # type: ignore[union-attr]
