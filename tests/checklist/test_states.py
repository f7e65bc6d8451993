"""Checklist section 12: the classes of states (QuorumStateTest, LeaderStateTest, CandidateStateTest, ...)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import attrs
import pytest

from kraftlib.consensus.actions import PersistElection, SubmitControl
from kraftlib.consensus.events import Flushed, RecordsSubmitted, ResponseReceived, TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Leader, Role
from kraftlib.consensus.state import ReplicaState
from kraftlib.consensus.transitions import (
    become_candidate,
    become_follower,
    become_leader,
    become_prospective,
    become_resigned,
    become_unattached,
)
from kraftlib.errors import InvariantError
from kraftlib.records.batch import encode_batch
from kraftlib.types import ElectionState, LeaderAndEpoch, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftlib.wire.messages.vote import VoteResponse
from tests.consensus.build import (
    LISTENER,
    answer_vote,
    ask,
    fetch_request,
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
    submit,
    submit_controls,
    tell,
    told_of,
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
# The transitions are looked up when called, as a planted change must be.
UNATTACHED_6: Act = lambda state: become_unattached(state, 6, "test")  # noqa: E731
STAND: Act = lambda state: become_candidate(state, "test")  # noqa: E731
ASK: Act = lambda state: become_prospective(state, "test")  # noqa: E731
LEAD: Act = lambda state: become_leader(state)  # noqa: E731
LEAVE: Act = lambda state: become_resigned(state, "test")  # noqa: E731
FOLLOW_5: Act = lambda state: become_follower(state, 5, 3, PLACES, "test")  # noqa: E731
FOLLOW_6: Act = lambda state: become_follower(state, 6, 3, PLACES, "test")  # noqa: E731

AT_5, AT_6, FOLLOWS_6 = ElectionState(epoch=5), ElectionState(epoch=6), ElectionState(epoch=6, leader_id=3)
OWN_VOTE = ElectionState(epoch=5, voted_key=OWN)

LEGAL: dict[str, tuple[Callable[[], Replica], Act, Role, ElectionState, str]] = {
    # from -> to, what is stored then, what became of the election timer
    "unattached -> unattached": (unattached, UNATTACHED_6, Role.UNATTACHED, AT_6, "kept"),
    "unattached -> prospective": (unattached, ASK, Role.PROSPECTIVE, AT_5, "new"),
    "unattached -> follower": (unattached, FOLLOW_6, Role.FOLLOWER, FOLLOWS_6, "gone"),
    "prospective -> unattached": (prospective, UNATTACHED_6, Role.UNATTACHED, AT_6, "kept"),
    "prospective -> candidate": (prospective, STAND, Role.CANDIDATE, attrs.evolve(OWN_VOTE, epoch=6), "new"),
    "prospective -> follower": (prospective, FOLLOW_5, Role.FOLLOWER, attrs.evolve(AT_5, leader_id=3), "gone"),
    "candidate -> unattached": (candidate, UNATTACHED_6, Role.UNATTACHED, AT_6, "kept"),
    "candidate -> prospective": (candidate, ASK, Role.PROSPECTIVE, OWN_VOTE, "new"),
    "candidate -> follower": (candidate, FOLLOW_5, Role.FOLLOWER, attrs.evolve(OWN_VOTE, leader_id=3), "gone"),
    "candidate -> leader": (elected, LEAD, Role.LEADER, attrs.evolve(AT_5, leader_id=1), "gone"),
    "leader -> unattached": (leading, UNATTACHED_6, Role.UNATTACHED, AT_6, "new"),
    "leader -> follower": (leading, FOLLOW_6, Role.FOLLOWER, FOLLOWS_6, "gone"),
    "leader -> resigned": (leading, LEAVE, Role.RESIGNED, attrs.evolve(AT_5, leader_id=1), "new"),
    "follower -> unattached": (following, UNATTACHED_6, Role.UNATTACHED, AT_6, "new"),
    "follower -> follower": (following, FOLLOW_6, Role.FOLLOWER, FOLLOWS_6, "gone"),
    "follower -> prospective": (following, ASK, Role.PROSPECTIVE, attrs.evolve(AT_5, leader_id=2), "new"),
    "resigned -> unattached": (resigned, UNATTACHED_6, Role.UNATTACHED, AT_6, "kept"),
    "resigned -> follower": (resigned, FOLLOW_6, Role.FOLLOWER, FOLLOWS_6, "gone"),
}


@pytest.mark.parametrize(("make", "act", "role", "stored", "timer"), LEGAL.values(), ids=LEGAL)
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


ILLEGAL: dict[str, tuple[Callable[[], Replica], Act]] = {
    "leader -> leader": (leading, LEAD),
    "leader -> candidate": (leading, STAND),
    "leader -> prospective": (leading, ASK),
    "leader -> follower of its epoch": (leading, FOLLOW_5),
    "leader -> unattached in its epoch": (leading, lambda state: become_unattached(state, 5, "test")),
    "follower -> leader": (following, LEAD),
    "follower -> candidate": (following, STAND),
    "follower -> resigned": (following, LEAVE),
    "follower -> unattached in its epoch": (following, lambda state: become_unattached(state, 5, "test")),
    "unattached -> leader": (unattached, LEAD),
    "unattached -> candidate": (unattached, STAND),
    "unattached -> resigned": (unattached, LEAVE),
    "unattached -> unattached in its epoch": (unattached, lambda state: become_unattached(state, 5, "test")),
    "prospective -> leader": (prospective, LEAD),
    "prospective -> resigned": (prospective, LEAVE),
    "candidate -> leader without majority": (candidate, LEAD),
    "candidate -> candidate": (candidate, STAND),
    "candidate -> resigned": (candidate, LEAVE),
    "resigned -> leader": (resigned, LEAD),
    "resigned -> candidate": (resigned, STAND),
    "resigned -> follower of its epoch": (resigned, FOLLOW_5),
    "smaller epoch, unattached": (following, lambda state: become_unattached(state, 4, "test")),
    "smaller epoch, follower": (following, lambda state: become_follower(state, 4, 3, PLACES, "test")),
    "self as leader": (unattached, lambda state: become_follower(state, 6, 1, PLACES, "test")),
    "different leader in the epoch": (following, FOLLOW_5),
    "no endpoints": (unattached, lambda state: become_follower(state, 6, 3, {}, "test")),
    "observer -> prospective": (lambda: replica(1, own_id=9), ASK),
    "observer -> candidate": (lambda: replica(1, own_id=9), STAND),
    "observer -> leader": (lambda: replica(1, own_id=9), LEAD),
}


@pytest.mark.parametrize(("make", "act"), ILLEGAL.values(), ids=ILLEGAL)
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
    submit(core, end - core.state.log.end_offset)
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
    submit_controls(core, voter_set(*voters).to_record())
    flush(core)


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
    """LeaderStateTest, check quorum: with 5, after an add, after the leader's own removal, with 1
    (testLeaderShouldNotResignLeadershipIfOnlyOneVoters).
    """
    core = replica(1, voters=voter_set(1)) if members == (1,) else leading_from(1, *members)

    assert survives(core, *fetchers, voters=voters) is leads


# --- the other roles -------------------------------------------------------------------------------------------------


def test_an_answer_to_a_binding_vote_is_final() -> None:
    """CandidateStateTest, no changing of answers: who has answered is not asked again; a second answer is nobody's."""
    core = replica(1, voters=voter_set(1, 2, 3, 4, 5), election=ElectionState(epoch=5, voted_key=OWN))
    number = outstanding_to(core, 2).correlation_id
    answer_vote(core, 2, granted=False, pre_vote=False)
    again = told_of(VoteResponse, epoch=5, vote_granted=True)
    core.handle(ResponseReceived(number, again), core.state.now_ms)

    tally = core.state.role_state.tally  # type: ignore[union-attr]
    assert (tally.granted, tally.rejected) == ({1}, {2})
    assert 2 not in [request.destination for request in pending_requests(core)]


def test_a_resigned_leader_is_done_with_who_acknowledged_and_no_stranger_counts() -> None:
    """ResignedStateTest."""
    core = resigned()
    role: Any = core.state.role_state
    assert role.unacknowledged == {2, 3}
    response = told_of(EndQuorumEpochResponse, 1, epoch=5)
    actions = reply(core, 2, response)
    assert role.unacknowledged == {3}
    assert not requests(actions, EndQuorumEpochRequest)
    before = core.state.role_state
    core.handle(ResponseReceived(99_999, response), core.state.now_ms)

    assert core.state.role_state is before
    assert role.unacknowledged == {3}


# --- VoterSetTest, VoterSetHistoryTest, KRaftControlRecordStateMachineTest --------------------------------------------


def test_a_leader_submits_only_what_changes_something() -> None:
    """VoterSetTest, update: an entry that stands there as it is needs no record."""
    from tests.consensus.test_voter_changes import dynamic_leader, update_request

    core = dynamic_leader()
    request = update_request(2, 7, epoch=1)
    actions = tell(core, request)
    (submitted,) = [action for action in actions if isinstance(action, SubmitControl)]
    submit_controls(core, *submitted.records)
    flush(core)
    fetch_at(core, 3, core.state.log.end_offset, directory_id=UUID(int=1_003))

    assert not [action for action in tell(core, request) if isinstance(action, SubmitControl)]
    assert core.leader_and_epoch == LeaderAndEpoch(1, 1)
