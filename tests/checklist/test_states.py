"""Checklist section 12: the classes of states (QuorumStateTest, LeaderStateTest, CandidateStateTest, ...)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kraftlib.consensus.actions import AdvanceHighWatermark, PersistElection, SubmitControl
from kraftlib.consensus.events import Flushed, RecordsSubmitted, ResignRequested, ResponseReceived, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Follower, Leader, Role
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.transitions import (
    become_candidate,
    become_follower,
    become_leader,
    become_prospective,
    become_resigned,
    become_unattached,
    maybe_follow,
)
from kraftlib.consensus.voters import VoterSet
from kraftlib.errors import InvariantError
from kraftlib.records.batch import encode_batch
from kraftlib.records.control import encode_control_batch
from kraftlib.records.control_messages import KRaftVersionRecord
from kraftlib.types import METADATA_TOPIC, ElectionState, Endpoint, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlib.wire.messages.vote import VoteResponse
from tests.consensus.build import (
    LISTENER,
    answer_vote,
    ask,
    fetch_request,
    fetch_response,
    flush,
    follower,
    leader,
    outstanding_to,
    partition_of,
    pending_requests,
    place,
    replica,
    reply,
    requests,
    tell,
    vote_request,
    voter_set,
)

PLACES = {LISTENER: place(3)}
DISK = UUID(int=1_001)


# --- QuorumStateTest: what may follow what ---------------------------------------------------------------------------


def unattached() -> Replica:
    """In epoch 5, without a leader or a vote."""
    return replica(1, election=ElectionState(epoch=5))


def prospective() -> Replica:
    """Asking in advance, in epoch 5."""
    core = unattached()
    become_prospective(core.state, "test")
    return core


def candidate() -> Replica:
    """Standing in epoch 5."""
    return replica(1, election=ElectionState(epoch=5, voted_key=ReplicaKey(1)))


def elected() -> Replica:
    """Standing in epoch 5, with a majority."""
    core = candidate()
    core.state.role_state.tally.record(2, True)  # type: ignore[union-attr]
    return core


def following() -> Replica:
    """Following 2 in epoch 5."""
    return follower(1, epoch=5, leader_id=2)


def leading() -> Replica:
    """Leading epoch 5."""
    return leader(1, election=ElectionState(epoch=4))


def resigned() -> Replica:
    """Having led epoch 5."""
    return replica(1, election=ElectionState(epoch=5, leader_id=1))


OWN = ReplicaKey(1)
Act = Callable[[ReplicaState], object]
UNATTACHED_6: Act = lambda state: become_unattached(state, 6, "test")  # noqa: E731
BECOME_LEADER: Act = lambda state: become_leader(state)  # noqa: E731 - looked up when called, as a planted change must be
FOLLOWER_6: Act = lambda state: become_follower(state, 6, 3, PLACES, "test")  # noqa: E731

LEGAL: list[tuple[str, Callable[[], Replica], Act, Role, ElectionState, str]] = [
    # from -> to, what is stored then, what became of the election timer
    ("unattached -> unattached", unattached, UNATTACHED_6, Role.UNATTACHED, ElectionState(epoch=6), "kept"),
    (
        "unattached -> prospective",
        unattached,
        lambda state: become_prospective(state, "test"),
        Role.PROSPECTIVE,
        ElectionState(epoch=5),
        "new",
    ),
    ("unattached -> follower", unattached, FOLLOWER_6, Role.FOLLOWER, ElectionState(epoch=6, leader_id=3), "gone"),
    ("prospective -> unattached", prospective, UNATTACHED_6, Role.UNATTACHED, ElectionState(epoch=6), "kept"),
    (
        "prospective -> candidate",
        prospective,
        lambda state: become_candidate(state, "test"),
        Role.CANDIDATE,
        ElectionState(epoch=6, voted_key=OWN),
        "new",
    ),
    (
        "prospective -> follower",
        prospective,
        lambda state: become_follower(state, 5, 3, PLACES, "test"),
        Role.FOLLOWER,
        ElectionState(epoch=5, leader_id=3),
        "gone",
    ),
    ("candidate -> unattached", candidate, UNATTACHED_6, Role.UNATTACHED, ElectionState(epoch=6), "kept"),
    (
        "candidate -> prospective",
        candidate,
        lambda state: become_prospective(state, "test"),
        Role.PROSPECTIVE,
        ElectionState(epoch=5, voted_key=OWN),
        "new",
    ),
    (
        "candidate -> follower",
        candidate,
        lambda state: become_follower(state, 5, 3, PLACES, "test"),
        Role.FOLLOWER,
        ElectionState(epoch=5, leader_id=3, voted_key=OWN),
        "gone",
    ),
    ("candidate -> leader", elected, become_leader, Role.LEADER, ElectionState(epoch=5, leader_id=1), "gone"),
    ("leader -> unattached", leading, UNATTACHED_6, Role.UNATTACHED, ElectionState(epoch=6), "new"),
    ("leader -> follower", leading, FOLLOWER_6, Role.FOLLOWER, ElectionState(epoch=6, leader_id=3), "gone"),
    (
        "leader -> resigned",
        leading,
        lambda state: become_resigned(state, "test"),
        Role.RESIGNED,
        ElectionState(epoch=5, leader_id=1),
        "new",
    ),
    ("follower -> unattached", following, UNATTACHED_6, Role.UNATTACHED, ElectionState(epoch=6), "new"),
    ("follower -> follower", following, FOLLOWER_6, Role.FOLLOWER, ElectionState(epoch=6, leader_id=3), "gone"),
    (
        "follower -> prospective",
        following,
        lambda state: become_prospective(state, "test"),
        Role.PROSPECTIVE,
        ElectionState(epoch=5, leader_id=2),
        "new",
    ),
    ("resigned -> unattached", resigned, UNATTACHED_6, Role.UNATTACHED, ElectionState(epoch=6), "kept"),
    ("resigned -> follower", resigned, FOLLOWER_6, Role.FOLLOWER, ElectionState(epoch=6, leader_id=3), "gone"),
]


@pytest.mark.parametrize(
    ("make", "act", "role", "stored", "timer"), [row[1:] for row in LEGAL], ids=[r[0] for r in LEGAL]
)
def test_a_change_of_role_stores_the_election_and_keeps_the_commits(
    make: Callable[[], Replica], act: Act, role: Role, stored: ElectionState, timer: str
) -> None:
    """QuorumStateTest, every legal transition: what is stored, which timers go on, and the high watermark stays.

    It is unknown to a new leader only.
    """
    core = make()
    state = core.state
    state.high_watermark = 1
    before = getattr(state.role_state, "election_deadline_ms", None)
    state.now_ms += 100
    actions: Any = act(state)
    after = getattr(state.role_state, "election_deadline_ms", None)

    assert (core.role, state.persisted, state.election) == (role, stored, stored)
    written = [action.election for action in actions if isinstance(action, PersistElection)]
    assert written in ([], [stored])
    assert core.high_watermark == (None if role is Role.LEADER else 1)
    if timer == "kept":
        assert after == before
    elif timer == "new":
        assert state.now_ms + 1_000 <= (after or 0) < state.now_ms + 2_000
    else:
        assert after is None


def test_a_vote_is_added_within_an_epoch() -> None:
    """QuorumStateTest, every legal transition: unattached -> voted, of the same epoch, with a fresh timer."""
    core = unattached()
    core.state.now_ms += 900
    ask(core, vote_request(epoch=5, last=(9, 1)), version=2)

    assert core.state.persisted == ElectionState(epoch=5, voted_key=ReplicaKey(2))
    assert core.state.role_state.election_deadline_ms >= core.state.now_ms + 1_000  # type: ignore[union-attr]


ILLEGAL: list[tuple[str, Callable[[], Replica], Act]] = [
    ("leader -> leader", leading, BECOME_LEADER),
    ("leader -> candidate", leading, lambda state: become_candidate(state, "test")),
    ("leader -> prospective", leading, lambda state: become_prospective(state, "test")),
    ("leader -> follower of its epoch", leading, lambda state: become_follower(state, 5, 3, PLACES, "test")),
    ("leader -> unattached in its epoch", leading, lambda state: become_unattached(state, 5, "test")),
    ("follower -> leader", following, BECOME_LEADER),
    ("follower -> candidate", following, lambda state: become_candidate(state, "test")),
    ("follower -> resigned", following, lambda state: become_resigned(state, "test")),
    ("follower -> unattached in its epoch", following, lambda state: become_unattached(state, 5, "test")),
    ("unattached -> leader", unattached, BECOME_LEADER),
    ("unattached -> candidate", unattached, lambda state: become_candidate(state, "test")),
    ("unattached -> resigned", unattached, lambda state: become_resigned(state, "test")),
    ("unattached -> unattached in its epoch", unattached, lambda state: become_unattached(state, 5, "test")),
    ("prospective -> leader", prospective, BECOME_LEADER),
    ("prospective -> resigned", prospective, lambda state: become_resigned(state, "test")),
    ("candidate -> leader without majority", candidate, BECOME_LEADER),
    ("candidate -> candidate", candidate, lambda state: become_candidate(state, "test")),
    ("candidate -> resigned", candidate, lambda state: become_resigned(state, "test")),
    ("resigned -> leader", resigned, BECOME_LEADER),
    ("resigned -> candidate", resigned, lambda state: become_candidate(state, "test")),
    ("resigned -> follower of its epoch", resigned, lambda state: become_follower(state, 5, 3, PLACES, "test")),
    ("smaller epoch, unattached", following, lambda state: become_unattached(state, 4, "test")),
    ("smaller epoch, follower", following, lambda state: become_follower(state, 4, 3, PLACES, "test")),
    ("self as leader", unattached, lambda state: become_follower(state, 6, 1, PLACES, "test")),
    ("different leader in the epoch", following, lambda state: become_follower(state, 5, 3, PLACES, "test")),
    ("no endpoints", unattached, lambda state: become_follower(state, 6, 3, {}, "test")),
    ("observer -> prospective", lambda: replica(1, own_id=9), lambda state: become_prospective(state, "test")),
    ("observer -> candidate", lambda: replica(1, own_id=9), lambda state: become_candidate(state, "test")),
    ("observer -> leader", lambda: replica(1, own_id=9), BECOME_LEADER),
]


@pytest.mark.parametrize(("make", "act"), [row[1:] for row in ILLEGAL], ids=[row[0] for row in ILLEGAL])
def test_a_change_of_role_that_the_protocol_forbids_stops_the_replica(make: Callable[[], Replica], act: Act) -> None:
    """QuorumStateTest, every illegal transition throws."""
    core = make()
    before = core.state.persisted
    with pytest.raises(InvariantError):
        act(core.state)

    assert core.state.persisted == before


@pytest.mark.parametrize("epoch", [5, 6])
@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_vote_that_asks_in_our_own_name_is_not_given(pre_vote: bool, epoch: int) -> None:
    """QuorumStateTest, self as vote: somebody else runs with our id; no vote is written."""
    core = unattached()
    request = vote_request(epoch=epoch, replica_id=1, last=(9, 1), pre_vote=pre_vote)
    answer = partition_of(ask(core, request, version=2))

    assert (answer.error_code, answer.vote_granted) == (ErrorCode.NONE, False)
    assert core.state.persisted == ElectionState(epoch=epoch)
    assert core.state.refused == {"our own id": 1}


def test_more_endpoints_of_the_leader_are_taken_over_and_fewer_are_not() -> None:
    """QuorumStateTest, same-epoch more endpoints allowed."""
    core = following()
    more = {LISTENER: Endpoint("moved", 7), "OTHER": Endpoint("moved", 8)}
    maybe_follow(core.state, 5, 2, more, "test")
    assert core.leader_endpoints == more
    maybe_follow(core.state, 5, 2, {LISTENER: place(2)}, "test")

    assert core.leader_endpoints == more


def test_a_leader_without_endpoints_is_remembered_and_not_followed() -> None:
    """QuorumStateTest, missing endpoints: unattached."""
    core = replica(1, election=ElectionState(epoch=5, leader_id=9))

    assert (core.role, core.state.leader_id) == (Role.UNATTACHED, 9)


# --- LeaderStateTest -------------------------------------------------------------------------------------------------


def leading_from(start: int, *voters: int | ReplicaKey) -> Replica:
    """A leader, replica 1, of an epoch that starts at that offset."""
    members = voter_set(*voters)
    directory_id = DISK if isinstance(voters[0], ReplicaKey) else None
    core = replica(*([1] * start), voters=members, directory_id=directory_id)
    core.handle(TimeoutReached(), core.state.role_state.election_deadline_ms)  # type: ignore[union-attr]
    for pre_vote in (True, False):
        for voter in list(members)[1 : members.majority]:
            answer_vote(core, voter.key.id, granted=True, pre_vote=pre_vote)
    assert core.role is Role.LEADER
    assert isinstance(core.state.role_state, Leader)
    assert core.state.role_state.epoch_start_offset == start
    return core


def own_end(core: Replica, end: int) -> None:
    """The leader has records up to there, all of them flushed."""
    at = core.state.log.end_offset
    batch = encode_batch([b"x"] * (end - at), timestamp_ms=0, base_offset=at, epoch=core.epoch)
    core.handle(RecordsSubmitted((batch,), core.epoch), core.state.now_ms)
    flush(core)


def fetch_at(core: Replica, replica_id: int, offset: int, *, directory_id: UUID | None = None) -> list[Any]:
    """A voter has everything below that offset."""
    role = core.state.role_state
    assert isinstance(role, Leader)
    last_epoch = core.epoch if offset > role.epoch_start_offset else 1
    more = {} if directory_id is None else {"replica_directory_id": directory_id}
    request = fetch_request(epoch=core.epoch, offset=offset, last_epoch=last_epoch, replica_id=replica_id, **more)
    return tell(core, request, version=18, request_id=1_000 + core.state.log.end_offset * 10 + replica_id)


def change_voters(core: Replica, *voters: int) -> None:
    """A Voters record is appended, and flushed."""
    end = core.state.log.end_offset
    batch = encode_control_batch([voter_set(*voters).to_record()], timestamp_ms=0, base_offset=end, epoch=core.epoch)
    core.handle(RecordsSubmitted((batch,), core.epoch), core.state.now_ms)
    flush(core)


def test_the_high_watermark_is_what_a_majority_has_beyond_the_start_of_the_epoch() -> None:
    """LeaderStateTest: start 10, own end 15; followers at 10, 10 -> unknown; at 15 -> 15; own 20 -> 15; at 20 -> 20."""
    core = leading_from(10, 1, 2, 3)
    own_end(core, 15)
    fetch_at(core, 2, 10)
    fetch_at(core, 3, 10)
    assert core.high_watermark is None
    assert AdvanceHighWatermark(15) in fetch_at(core, 3, 15)
    own_end(core, 20)
    assert core.high_watermark == 15

    assert AdvanceHighWatermark(20) in fetch_at(core, 2, 20)


def test_a_new_voter_may_raise_the_high_watermark_and_never_lowers_it() -> None:
    """LeaderStateTest: 10 -> 15 by a voter that has 15 already; one that has nothing changes nothing."""
    core = leading_from(5, 1, 2)
    own_end(core, 15)
    fetch_at(core, 3, 15)
    fetch_at(core, 2, 10)
    assert core.high_watermark == 10
    change_voters(core, 1, 2, 3)
    assert core.high_watermark == 15
    change_voters(core, 1, 2, 3, 4)

    assert core.high_watermark == 15


def test_a_removed_follower_leaves_the_high_watermark_until_the_rest_passes_it() -> None:
    """LeaderStateTest: 15; of leader and one follower at 10 it is 10, which changes nothing; 16 at 16."""
    core = leading_from(5, 1, 2, 3)
    own_end(core, 15)
    fetch_at(core, 2, 10)
    fetch_at(core, 3, 15)
    assert core.high_watermark == 15
    change_voters(core, 1, 2)
    own_end(core, 18)
    fetch_at(core, 2, 14)
    assert core.high_watermark == 15
    fetch_at(core, 2, 16)

    assert core.high_watermark == 16


def test_a_removed_leader_counts_the_others_only() -> None:
    """LeaderStateTest: the smaller of the two others."""
    core = leading_from(5, 1, 2, 3)
    own_end(core, 15)
    fetch_at(core, 2, 10)
    fetch_at(core, 3, 12)
    assert core.high_watermark == 12
    change_voters(core, 2, 3)
    fetch_at(core, 2, 16)
    assert core.high_watermark == 12
    fetch_at(core, 3, 14)

    assert core.high_watermark == 14


def test_our_own_end_goes_nowhere_but_forward() -> None:
    """LeaderStateTest, non-monotonic local end: an older flush changes nothing, a batch that does not continue the log
    stops the replica.
    """
    core = leading_from(5, 1, 2, 3)
    own_end(core, 15)
    core.handle(Flushed(7, core.state.log.log_version), core.state.now_ms)
    assert core.state.log.flushed_offset == 15
    batch = encode_batch([b"x"], timestamp_ms=0, base_offset=12, epoch=core.epoch)
    with pytest.raises(InvariantError):
        core.handle(RecordsSubmitted((batch,), core.epoch), core.state.now_ms)


def survives(core: Replica, *fetchers: int, voters: tuple[int, ...] | None = None) -> bool:
    """Whether these Fetches are enough for another period of leadership."""
    flush(core)
    start = core.state.now_ms
    if voters is not None:
        change_voters(core, *voters)
    for number in fetchers:
        core.state.now_ms += 1
        fetch_at(core, number, core.state.log.end_offset - 1)
    core.handle(TimeoutReached(), start + 3_000)
    return core.role is Role.LEADER


@pytest.mark.parametrize(
    ("members", "voters", "fetchers", "leads"),
    [
        ((1, 2, 3, 4, 5), None, (2, 3), True),
        ((1, 2, 3, 4, 5), None, (2, 2), False),
        ((1, 2, 3, 4, 5), None, (2, 9), False),
        ((1, 2, 3), (1, 2, 3, 4), (2, 4), True),
        ((1, 2, 3), (1, 2, 3, 4), (2,), False),
        ((1, 2, 3), (2, 3), (2, 3), True),
        ((1, 2, 3), (2, 3), (2,), False),
        ((1,), None, (), True),
    ],
    ids=["five", "one twice", "an observer", "added", "added, too few", "leader removed", "removed, too few", "alone"],
)
def test_check_quorum_counts_the_voters_of_now(
    members: tuple[int, ...], voters: tuple[int, ...] | None, fetchers: tuple[int, ...], leads: bool
) -> None:
    """LeaderStateTest, check quorum: with 5, after an add, after the leader's own removal, with 1."""
    core = replica(1, voters=voter_set(1)) if members == (1,) else leading_from(1, *members)

    assert survives(core, *fetchers, voters=voters) is leads


def test_the_begin_timer_starts_expired_and_then_runs_half_a_fetch_timeout() -> None:
    """LeaderStateTest, begin timer."""
    core = leader(1)
    role = core.state.role_state
    assert isinstance(role, Leader)
    assert [request.destination for request in pending_requests(core)] == [2, 3]

    assert role.begin_epoch_due_ms == core.state.now_ms + 1_000
    assert isinstance(outstanding_to(core, 2).request, BeginQuorumEpochRequest)


def test_successors_are_ordered_by_offset_and_then_by_id() -> None:
    """LeaderStateTest, successor order."""
    core = leading_from(5, 1, 2, 3, 4, 5)
    own_end(core, 15)
    for voter_id, offset in ((4, 12), (3, 12), (5, 15)):
        fetch_at(core, voter_id, offset)
    core.handle(ResignRequested(core.epoch), core.state.now_ms)

    assert [key.id for key in core.state.role_state.preferred] == [5, 3, 4, 2]  # type: ignore[union-attr]


def test_what_is_known_of_a_voter_is_kept_when_its_disk_becomes_known() -> None:
    """LeaderStateTest, keys move from "no directory id" to one: when a static quorum becomes dynamic, nobody starts
    anew, and nobody is seen twice.
    """
    core = replica(1, voters=voter_set(1, 2, 3), directory_id=DISK)
    core.handle(TimeoutReached(), core.state.role_state.election_deadline_ms)  # type: ignore[union-attr]
    for pre_vote in (True, False):
        answer_vote(core, 2, granted=True, pre_vote=pre_vote)
    flush(core)
    disk = UUID(int=1_002)
    fetch_at(core, 2, 2, directory_id=disk)
    role = core.state.role_state
    assert isinstance(role, Leader)
    known = [ReplicaKey(number, UUID(int=1_000 + number)) for number in (1, 2, 3)]
    records = [KRaftVersionRecord(kraft_version=1), voter_set(*known).to_record()]
    batch = encode_control_batch(records, timestamp_ms=0, base_offset=2, epoch=core.epoch)
    core.handle(RecordsSubmitted((batch,), core.epoch), core.state.now_ms)

    assert (role.progress[2].key, role.progress[2].end_offset) == (known[1], 2)
    assert role.observers == {}
    flush(core)
    fetch_at(core, 2, 4, directory_id=disk)
    assert core.high_watermark == 4


# --- the other roles -------------------------------------------------------------------------------------------------


def test_an_answer_to_a_binding_vote_is_final() -> None:
    """CandidateStateTest, no changing of answers: who has answered is not asked again; a second answer is nobody's."""
    core = replica(1, voters=voter_set(1, 2, 3, 4, 5), election=ElectionState(epoch=5, voted_key=OWN))
    number = outstanding_to(core, 2).correlation_id
    answer_vote(core, 2, granted=False, pre_vote=False)
    partition = VoteResponse.PartitionData(leader_id=-1, leader_epoch=5, vote_granted=True)
    again = VoteResponse(topics=(VoteResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),))
    core.handle(ResponseReceived(number, again), core.state.now_ms)

    tally = core.state.role_state.tally  # type: ignore[union-attr]
    assert (tally.granted, tally.rejected) == ({1}, {2})
    assert 2 not in [request.destination for request in pending_requests(core)]


def test_a_candidate_votes_for_itself_and_strangers_do_not_count() -> None:
    """CandidateStateTest, no own rejection, no votes of non-voters, idempotent."""
    core = candidate()
    tally = core.state.role_state.tally  # type: ignore[union-attr]
    for _ in range(2):
        tally.record(9, True)
        tally.record(3, False)

    assert (tally.granted, tally.rejected, tally.won) == ({1}, {3}, False)


def test_a_follower_knows_its_leader_its_timer_and_what_is_committed() -> None:
    """FollowerStateTest: the timer is restarted by each answer, the high watermark never falls."""
    core = following()
    role = core.state.role_state
    assert isinstance(role, Follower)
    assert (role.leader_id, role.leader_endpoints, role.fetch_deadline_ms) == (2, {LISTENER: place(2)}, 2_000)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=1), now_ms=700)
    assert (role.fetch_deadline_ms, core.high_watermark) == (2_700, 1)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, high_watermark=0), now_ms=800)

    assert (role.fetch_deadline_ms, core.high_watermark) == (2_800, 1)


@pytest.mark.parametrize(
    ("voted", "disk", "granted"),
    [
        (None, 1, True),
        (ReplicaKey(2), 1, True),
        (ReplicaKey(2, UUID(int=1)), 1, True),
        (ReplicaKey(2, UUID(int=1)), 2, False),
        (ReplicaKey(2, UUID(int=1)), 0, False),
        (ReplicaKey(3), 1, False),
    ],
)
def test_an_unattached_voter_votes_by_key(voted: ReplicaKey | None, disk: int, granted: bool) -> None:
    """UnattachedStateTest, UnattachedStateWithVoteTest: with and without directory ids."""
    core = replica(1, election=ElectionState(epoch=5, voted_key=voted))
    request = vote_request(epoch=5, replica_id=2, last=(9, 1), replica_directory_id=UUID(int=disk))

    assert partition_of(ask(core, request, version=2)).vote_granted is granted
    assert 1_000 <= core.state.role_state.election_deadline_ms < 2_000  # type: ignore[union-attr]


def test_a_resigned_leader_is_done_with_who_acknowledged_and_no_stranger_counts() -> None:
    """ResignedStateTest."""
    core = resigned()
    role: Any = core.state.role_state
    assert role.unacknowledged == {2, 3}
    partition = EndQuorumEpochResponse.PartitionData(leader_id=1, leader_epoch=5)
    topics = (EndQuorumEpochResponse.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,)),)
    actions = reply(core, 2, EndQuorumEpochResponse(topics=topics))
    assert role.unacknowledged == {3}
    assert not requests(actions, EndQuorumEpochRequest)
    before = core.state.role_state
    core.handle(ResponseReceived(99_999, EndQuorumEpochResponse(topics=topics)), core.state.now_ms)

    assert core.state.role_state is before
    assert role.unacknowledged == {3}


# --- VoterSetTest, VoterSetHistoryTest, KRaftControlRecordStateMachineTest --------------------------------------------


def dynamic_follower() -> Replica:
    """A follower of 2 whose log ends with the voter set 1, 2, 3."""
    core = follower(epoch=5, leader_id=2, log=None)
    records = [KRaftVersionRecord(kraft_version=1), voter_set(1, 2, 3).to_record()]
    batch = encode_control_batch(records, timestamp_ms=0, base_offset=0, epoch=5)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, records=bytes(batch.data)))
    flush(core)
    return core


@pytest.mark.parametrize(
    ("voters", "is_taken"),
    [
        ((1, 2, 3, 4), True),
        ((1, 2), True),
        ((1, 2, 4), True),
        ((1, 4, 5), False),
        ((1, 2, 3, 4, 5), False),
        ((), False),
    ],
    ids=["one added", "one removed", "one replaced", "two replaced", "two added", "nobody left"],
)
def test_neighbouring_voter_sets_share_their_majorities(voters: tuple[int, ...], is_taken: bool) -> None:
    """VoterSetHistoryTest, overlapping majority; VoterSetTest, never empty: fatal in Kafka; ours does not append it."""
    core = dynamic_follower()
    batch = encode_control_batch([VoterSet.to_record(voter_set(*voters))], timestamp_ms=0, base_offset=2, epoch=5)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, records=bytes(batch.data)))

    assert core.voters.ids == (voters if is_taken else (1, 2, 3))
    assert core.state.log.end_offset == (3 if is_taken else 2)
    assert core.role is Role.FOLLOWER


def test_changes_within_one_answer_are_judged_one_after_the_other() -> None:
    """VoterSetHistoryTest, overlapping majority: by the set right before each."""
    core = dynamic_follower()
    sets = [(1, 2, 3, 4), (1, 2, 3, 4, 5), (1, 2)]
    batches = [
        encode_control_batch([voter_set(*ids).to_record()], timestamp_ms=0, base_offset=2 + number, epoch=5)
        for number, ids in enumerate(sets)
    ]
    records = b"".join(bytes(batch.data) for batch in batches)
    reply(core, 2, fetch_response(epoch=5, leader_id=2, records=records))

    assert core.voters.ids == (1, 2, 3, 4, 5)


def test_the_latest_voters_are_those_of_the_log_the_snapshot_or_the_configuration() -> None:
    """KRaftControlRecordStateMachineTest, static fallback, snapshot then log override, -1 entry, truncation."""
    log = replica(voters=voter_set(1, 2, 3)).state.log
    assert log.voters.latest.ids == (1, 2, 3)
    log.voters.add(-1, voter_set(1, 2))
    assert log.voters.latest.ids == (1, 2)
    log.voters.add(4, voter_set(1, 2, 4))
    log.voters.truncate(4)
    assert log.voters.latest.ids == (1, 2)
    log.voters.truncate(-1)
    assert (log.voters.latest.ids, log.voters.latest_offset) == ((1, 2, 3), None)


def test_a_leader_submits_only_what_changes_something() -> None:
    """VoterSetTest, update: an entry that stands there as it is needs no record."""
    from tests.consensus.test_voter_changes import dynamic_leader, update_request

    core = dynamic_leader()
    request = update_request(2, 7, epoch=1)
    actions = tell(core, request)
    (submitted,) = [action for action in actions if isinstance(action, SubmitControl)]
    end = core.state.log.end_offset
    batch = encode_control_batch(submitted.records, timestamp_ms=0, base_offset=end, epoch=1)
    core.handle(RecordsSubmitted((batch,), 1), core.state.now_ms)
    flush(core)
    fetch_at(core, 3, core.state.log.end_offset, directory_id=UUID(int=1_003))

    assert not [action for action in tell(core, request) if isinstance(action, SubmitControl)]
    assert core.leader_and_epoch == LeaderAndEpoch(1, 1)
