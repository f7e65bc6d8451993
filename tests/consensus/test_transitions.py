"""Which role follows from what was durable (KIP-595, Persistent State)."""

from __future__ import annotations

import uuid

import pytest

from kraftlib.consensus.actions import (
    AcceptAppends,
    AnnounceLeader,
    AppendToLog,
    BeginEpoch,
    FlushLog,
    PersistElection,
    RefuseAppends,
)
from kraftlib.consensus.events import TimeoutReached
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.consensus.transitions import become_follower, become_unattached, maybe_follow
from kraftlib.types import ElectionState, Endpoint, LeaderAndEpoch, ReplicaKey
from tests.consensus.build import (
    LISTENER,
    answer_vote,
    ask,
    follower,
    leader,
    log_view,
    partition_of,
    pending_requests,
    place,
    replica,
    tell,
    vote_request,
    voter_set,
)

TABLE = [
    ("nothing recorded", ElectionState(), Role.UNATTACHED, 0),
    ("epoch behind the log", ElectionState(epoch=1, leader_id=1, voted_key=ReplicaKey(1)), Role.UNATTACHED, 2),
    ("leader is self", ElectionState(epoch=3, leader_id=1), Role.RESIGNED, 3),
    ("vote is self", ElectionState(epoch=3, voted_key=ReplicaKey(1)), Role.CANDIDATE, 3),
    ("leader reachable", ElectionState(epoch=3, leader_id=2, voted_key=ReplicaKey(3)), Role.FOLLOWER, 3),
    ("leader unreachable", ElectionState(epoch=3, leader_id=9, voted_key=ReplicaKey(3)), Role.UNATTACHED, 3),
    ("vote", ElectionState(epoch=3, voted_key=ReplicaKey(3)), Role.UNATTACHED, 3),
    ("epoch only", ElectionState(epoch=3), Role.UNATTACHED, 3),
]


@pytest.mark.parametrize(("election", "role", "epoch"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_first_role_follows_the_table(election: ElectionState, role: Role, epoch: int) -> None:
    """And what is recorded stays recorded, vote included."""
    log = (
        log_view(voters=voter_set(1, 2, 3))
        if election == ElectionState()
        else log_view(1, 2, voters=voter_set(1, 2, 3))
    )
    core = replica(election=election, log=log)

    assert (core.role, core.epoch) == (role, epoch)
    if election.epoch >= log.last_epoch:
        assert core.state.election == election
        assert core.state.persisted == election


def test_an_observer_that_once_voted_for_itself_does_not_stand() -> None:
    """Only a voter of its latest set may (scenario E13)."""
    core = replica(own_id=9, election=ElectionState(epoch=3, voted_key=ReplicaKey(9)))

    assert (core.role, core.epoch) == (Role.UNATTACHED, 3)
    assert core.state.role_state.election_deadline_ms is None  # type: ignore[union-attr]
    assert core.deadline_ms() is not None


@pytest.mark.parametrize(
    "election",
    [None, ElectionState(epoch=4, leader_id=1), ElectionState(epoch=4, leader_id=2), ElectionState(epoch=4)],
    ids=["new", "was leader", "was follower", "knew an epoch"],
)
def test_the_sole_voter_leads_when_it_has_started(election: ElectionState | None) -> None:
    """testInitializeAsLeaderFromStateStoreSingleMemberQuorum of Kafka: in a new epoch, without a timer."""
    core = replica(voters=voter_set(1), election=election)

    assert (core.role, core.epoch) == (Role.LEADER, (election.epoch if election else 0) + 1)


def test_votes_that_were_lost_stay_lost_though_the_log_knows_a_later_epoch() -> None:
    core = replica(5, election=ElectionState(epoch=0, amnesiac=True))

    assert core.state.amnesia is not None
    assert (core.state.election.epoch, core.state.election.amnesiac) == (5, True)


def test_a_restarted_candidate_counts_its_own_vote_again() -> None:
    """It resumes the election of the same epoch, with Vote requests to the others."""
    core = replica(
        election=ElectionState(epoch=3, voted_key=ReplicaKey(1, uuid.UUID(int=5))), directory_id=uuid.UUID(int=5)
    )

    assert core.role is Role.CANDIDATE
    assert len(pending_requests(core)) == 2
    answer_vote(core, 2, granted=True, pre_vote=False)
    assert (core.role, core.epoch) == (Role.LEADER, 3)


def test_a_sole_voter_that_had_begun_an_epoch_leads_it() -> None:
    """It has voted for itself there, and led nobody yet."""
    core = replica(voters=voter_set(1), election=ElectionState(epoch=4, voted_key=ReplicaKey(1)))

    assert (core.role, core.epoch) == (Role.LEADER, 4)


def test_the_sole_voter_of_a_quorum_writes_one_leader_change_of_its_new_epoch() -> None:
    """The log of a restarted sole leader shows the new epoch."""
    core = Replica(
        replica().state.config,
        key=ReplicaKey(1),
        cluster_id="cluster",
        log=log_view(1, voters=voter_set(1)),
        election=ElectionState(epoch=1, leader_id=1),
        random=replica().state.random,
        endpoints=replica().state.endpoints,
    )
    appended = [action for action in core.start(0) if isinstance(action, AppendToLog)]

    assert [(batch.base_offset, batch.epoch, batch.is_control) for batch in appended[0].batches] == [(1, 2, True)]


ENDPOINTS = {LISTENER: place(2)}


def test_a_leader_opens_its_epoch_in_this_order() -> None:
    """Durable vote, epoch checkpoint, first batch, flush; then appends are taken and the listener is told."""
    core = replica(1)
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    answer_vote(core, 2, granted=True, pre_vote=True)
    kinds = [type(action) for action in answer_vote(core, 2, granted=True, pre_vote=False)]

    assert kinds[:6] == [PersistElection, BeginEpoch, AppendToLog, FlushLog, AcceptAppends, AnnounceLeader]


def test_the_remaining_election_time_is_kept_while_epochs_fly_by() -> None:
    """A stream of higher epochs must not postpone our own candidacy for ever."""
    core = replica(1, election=ElectionState(epoch=5))
    deadline = core.state.role_state.election_deadline_ms  # type: ignore[union-attr]
    for epoch in range(6, 20):
        tell(core, vote_request(epoch=epoch, last=(0, 0)), version=2, now_ms=epoch)

    assert core.state.role_state.election_deadline_ms == deadline  # type: ignore[union-attr]


def test_a_leader_that_steps_down_refuses_appends_for_its_old_epoch() -> None:
    """Whoever waits must hear which leadership ended."""
    core = leader(1)
    epoch = core.epoch
    actions = become_unattached(core.state, 9, "test")

    assert RefuseAppends(epoch) in actions
    assert isinstance(actions[0], PersistElection)
    assert actions[-1] == AnnounceLeader(LeaderAndEpoch(None, 9))


@pytest.mark.parametrize(
    ("epoch", "leader_id", "endpoints", "role", "known"),
    [
        (4, 3, ENDPOINTS, Role.FOLLOWER, (2, 5)),
        (5, 2, ENDPOINTS, Role.FOLLOWER, (2, 5)),
        (6, None, {}, Role.UNATTACHED, (None, 6)),
        (6, 3, {LISTENER: place(3)}, Role.FOLLOWER, (3, 6)),
        (6, 3, {}, Role.FOLLOWER, (3, 6)),
        (6, 8, {}, Role.UNATTACHED, (8, 6)),
    ],
    ids=["older", "same", "newer, no leader", "newer leader", "endpoint of the voter set", "leader without endpoint"],
)
def test_what_a_peer_says_of_the_leader_is_taken_over(
    epoch: int, leader_id: int | None, endpoints: dict[str, object], role: Role, known: tuple[int | None, int]
) -> None:
    """A replica takes over what a message says of epoch and leader (KIP-595, Vote and Fetch)."""
    core = follower(1, epoch=5, leader_id=2)
    maybe_follow(core.state, epoch, leader_id, endpoints, "test")  # type: ignore[arg-type]

    assert (core.role, core.leader_and_epoch) == (role, LeaderAndEpoch(*known))


@pytest.mark.parametrize(("epoch", "leader_id"), [(5, 3), (6, 1), (5 + 2_000_000, 3)])
def test_what_contradicts_us_changes_nothing(epoch: int, leader_id: int) -> None:
    """Two leaders, ourselves as one, an epoch out of reach: counted, not believed."""
    core = follower(1, epoch=5, leader_id=2)

    assert maybe_follow(core.state, epoch, leader_id, ENDPOINTS, "test") is None
    assert core.leader_and_epoch == LeaderAndEpoch(2, 5)
    assert sum(core.state.refused.values()) == 1


def test_a_vote_outlives_a_lost_pre_vote() -> None:
    """It is of this epoch, and nobody else may have it; the election timer begins anew."""
    core = replica(1, election=ElectionState(epoch=5, voted_key=ReplicaKey(3)))
    core.handle(TimeoutReached(), core.deadline_ms() or 0)
    assert core.role is Role.PROSPECTIVE
    core.state.now_ms += 900
    actions = [*answer_vote(core, 2, granted=False, pre_vote=True), *answer_vote(core, 3, granted=False, pre_vote=True)]

    assert core.role is Role.UNATTACHED
    assert core.state.role_state.voted_key == ReplicaKey(3)  # type: ignore[union-attr]
    assert core.state.role_state.election_deadline_ms >= core.state.now_ms + 1_000  # type: ignore[union-attr]
    assert not [action for action in actions if isinstance(action, PersistElection)]
    assert not partition_of(ask(core, vote_request(epoch=5, replica_id=2, last=(9, 1)))).vote_granted


def test_a_vote_is_not_taken_along_into_a_newer_epoch() -> None:
    core = replica(1, election=ElectionState(epoch=5, voted_key=ReplicaKey(3)))
    become_follower(core.state, 6, 2, ENDPOINTS, "a test")

    assert core.state.election == ElectionState(epoch=6, leader_id=2)


def test_what_is_known_already_changes_nothing() -> None:
    """An older epoch, nobody's name, and our own where we lead."""
    core = follower(1, epoch=5, leader_id=2)
    assert maybe_follow(core.state, 4, 3, ENDPOINTS, "a test") == []
    assert maybe_follow(core.state, 5, None, {}, "a test") == []
    leading = leader(1)
    assert maybe_follow(leading.state, leading.epoch, 1, {}, "a test") == []

    assert (core.role, core.leader_and_epoch) == (Role.FOLLOWER, LeaderAndEpoch(2, 5))
    assert core.state.refused == leading.state.refused == {}


def test_a_leader_is_fetched_from_where_it_says_that_it_is() -> None:
    """Whatever the voter set says: it may have moved."""
    core = replica(1, election=ElectionState(epoch=5))
    moved = {LISTENER: Endpoint("moved", 7)}
    maybe_follow(core.state, 6, 2, moved, "a test")

    assert core.state.role_state.leader_endpoints == moved  # type: ignore[union-attr]


def test_the_furthest_epoch_that_is_believed_is_exactly_so_far_away() -> None:
    furthest = replica(1).state.config.epoch_jump_max
    for beyond in (0, 1):
        core = replica(election=ElectionState(epoch=5))
        believed = maybe_follow(core.state, 5 + furthest + beyond, 2, ENDPOINTS, "a test") is not None
        answered = ask(replica(election=ElectionState(epoch=5)), vote_request(epoch=5 + furthest + beyond)) is not None

        assert believed == answered == (beyond == 0)


def test_a_leader_that_is_known_by_its_id_alone_is_announced() -> None:
    """An application would else be told that there is none, and never hear of it."""
    core = follower(1)
    actions = become_unattached(core.state, 9, "test", leader_id=3)

    assert actions[-1] == AnnounceLeader(LeaderAndEpoch(3, 9)) == AnnounceLeader(core.leader_and_epoch)
