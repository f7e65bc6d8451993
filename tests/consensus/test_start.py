"""Which role follows from what was durable (KIP-595, Persistent State)."""

from __future__ import annotations

import uuid

import pytest

from kraftlib.consensus.actions import AppendToLog
from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.errors import ConfigError, InvariantError
from kraftlib.types import ZERO_UUID, ElectionState, ReplicaKey
from tests.consensus.build import answer_vote, log_view, replica, voter_set

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


def test_a_replica_starts_once() -> None:
    """A second start would enter a role twice."""
    core = replica()
    with pytest.raises(InvariantError, match="once"):
        core.start(0)


def test_a_zero_directory_id_is_refused() -> None:
    """testNodeDirectoryId of Kafka: on the wire it means "none"."""
    with pytest.raises(ConfigError, match="directory id"):
        replica(directory_id=ZERO_UUID)


def test_a_restarted_candidate_counts_its_own_vote_again() -> None:
    """It resumes the election of the same epoch, with Vote requests to the others."""
    core = replica(
        election=ElectionState(epoch=3, voted_key=ReplicaKey(1, uuid.UUID(int=5))), directory_id=uuid.UUID(int=5)
    )

    assert core.role is Role.CANDIDATE
    assert len(core.state.connections._outstanding) == 2
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
