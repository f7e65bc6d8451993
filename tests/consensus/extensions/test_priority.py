"""The voter that is wanted as leader becomes it; and what its priority may never do."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import attrs
import pytest

from kraftlib.consensus.actions import SendRequest, SendResponse
from kraftlib.consensus.events import (
    ConnectionLost,
    DiskSpaceChanged,
    Failure,
    PeerIdentified,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    TimeoutReached,
)
from kraftlib.consensus.extensions.priority import lane_to
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.types import ZERO_UUID
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest, ElectionPriorityResponse
from tests.consensus.build import (
    answer_vote,
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


def fetched(core: Replica, voter_id: int, *, now_ms: int, request_id: int = 50, max_bytes: int = 1 << 20) -> list[Any]:
    """A voter fetches at the log end, so it has everything; for one byte, if its disk is full."""
    log = core.state.log
    request = fetch_request(epoch=core.epoch, offset=log.end_offset, last_epoch=log.last_epoch, replica_id=voter_id)
    request = attrs.evolve(request, max_bytes=max_bytes)
    return core.handle(RequestReceived(request_id, request, 18), now_ms)


def told(core: Replica, voter_id: int, priority: int, *, epoch: int | None = None, cluster_id: str = "cluster") -> int:
    """A voter says how much it is wanted; return the error code of the answer."""
    request = ElectionPriorityRequest(
        cluster_id=cluster_id,
        leader_epoch=core.epoch if epoch is None else epoch,
        voter_id=voter_id,
        voter_directory_id=ZERO_UUID,
        priority=priority,
    )
    actions = core.handle(RequestReceived(70, request, 0), core.state.now_ms)
    (answer,) = [action for action in actions if isinstance(action, SendResponse) and action.request_id == 70]
    return int(answer.response.error_code)


def proven_leader(**settings: Any) -> Replica:
    """A leader of three with a committed epoch, everybody caught up at 0 ms of its own time."""
    core = leader(priority_takeover_ms=400, **settings)
    flush(core)
    for voter_id in (2, 3):
        fetched(core, voter_id, now_ms=core.state.now_ms, request_id=50 + voter_id)
    assert core.high_watermark is not None
    return core


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
    ],
)
def test_what_cannot_be_is_refused(priority: int, voter_id: int, more: dict[str, Any], error: ErrorCode) -> None:
    core = proven_leader()
    assert told(core, voter_id, priority, **more) == error
    assert core.state.role_state.preferred_voters == {}  # type: ignore[union-attr]


def test_a_replica_that_does_not_lead_takes_no_note() -> None:
    assert told(follower(1, 1), 3, 50) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def wanted_follower(**settings: Any) -> Replica:
    """A voter with a priority whose leader, 2, has answered its first Fetch."""
    core = follower(1, 1, **{"election_priority": 80, **settings})
    core.state.role_state.has_fetched = True  # type: ignore[union-attr]
    return core


def question(actions: list[Any]) -> list[ElectionPriorityRequest]:
    return [
        action.request
        for action in actions
        if isinstance(action, SendRequest) and isinstance(action.request, ElectionPriorityRequest)
    ]


def test_a_voter_whose_disk_is_full_does_not_ask_to_lead() -> None:
    core = wanted_follower()
    core.handle(DiskSpaceChanged(True), core.state.now_ms)
    assert question(core.handle(TimeoutReached(), core.state.now_ms + 10)) == []

    assert len(question(core.handle(DiskSpaceChanged(False), core.state.now_ms))) == 1


def test_a_voter_tells_its_leader_once() -> None:
    core = wanted_follower()
    (asked,) = question(core.handle(TimeoutReached(), 0))
    assert (asked.leader_epoch, asked.voter_id, asked.priority) == (1, 1, 80)
    outstanding = outstanding_to(core, lane_to(2))

    actions = core.handle(ResponseReceived(outstanding.correlation_id, ElectionPriorityResponse(error_code=0)), 1)

    assert question(actions) == question(core.handle(TimeoutReached(), 500)) == []


@pytest.mark.parametrize("settings", [{"election_priority": 0}, {"private_apis": False}])
def test_who_is_not_wanted_or_may_not_say_so_is_silent(settings: dict[str, Any]) -> None:
    assert question(wanted_follower(**settings).handle(TimeoutReached(), 0)) == []


def test_a_leader_that_is_none_of_ours_is_left_alone() -> None:
    core = wanted_follower()
    core.handle(TimeoutReached(), 0)
    correlation_id = outstanding_to(core, lane_to(2)).correlation_id
    core.handle(RequestFailed(correlation_id, Failure.UNSUPPORTED_VERSION), 1)

    assert question(core.handle(TimeoutReached(), 1_000)) == []


@pytest.mark.parametrize("ending", [Failure.DISCONNECTED, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_leader_that_has_taken_no_note_is_told_again(ending: Any) -> None:
    core = wanted_follower()
    core.handle(TimeoutReached(), 0)
    correlation_id = outstanding_to(core, lane_to(2)).correlation_id
    failed = isinstance(ending, Failure)
    event: Any = RequestFailed(correlation_id, ending) if failed else None
    core.handle(event or ResponseReceived(correlation_id, ElectionPriorityResponse(error_code=ending)), 1)

    assert len(question(core.handle(TimeoutReached(), 200))) == 1


def test_one_that_was_handed_the_leadership_is_wanted_less_until_it_leads() -> None:
    core = wanted_follower(priority_takeover_ms=1_000)
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
