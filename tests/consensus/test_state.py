"""The handful of questions that every conversation asks."""

from __future__ import annotations

import logging

import pytest

from kraftlib.consensus.state import listener_endpoints
from kraftlib.types import ElectionState, Endpoint, LeaderAndEpoch, ReplicaKey
from tests.consensus.build import LISTENER, follower, leader, place, replica


@pytest.mark.parametrize(
    "election",
    [
        ElectionState(epoch=5),
        ElectionState(epoch=5, voted_key=ReplicaKey(3)),
        ElectionState(epoch=5, leader_id=2),
        ElectionState(epoch=5, leader_id=2, voted_key=ReplicaKey(3)),
        ElectionState(epoch=5, leader_id=1),
        ElectionState(epoch=5, voted_key=ReplicaKey(1)),
    ],
)
def test_each_role_records_what_it_was_made_from(election: ElectionState) -> None:
    """What a restart reads is what was written (KIP-595, Persistent State)."""
    assert replica(1, election=election).state.election == election


def test_a_resigned_leader_names_itself_to_peers_and_nobody_to_the_application() -> None:
    """Its epoch had no other leader, but it takes no appends."""
    state = replica(1, election=ElectionState(epoch=5, leader_id=1)).state

    assert state.leader_id == 1
    assert state.leader_and_epoch == LeaderAndEpoch(None, 5)


def test_the_leader_is_reached_where_it_says_else_where_the_voter_set_does() -> None:
    """Endpoints of the message first (KIP-853, BeginQuorumEpoch)."""
    core = follower(1, epoch=5, leader_id=2)
    assert core.state.leader_endpoint == place(2)
    core.state.role_state.leader_endpoints = {LISTENER: Endpoint("elsewhere", 1)}  # type: ignore[union-attr]
    assert core.state.leader_endpoint == Endpoint("elsewhere", 1)
    assert leader(1).state.leader_endpoint == place(1)
    assert replica(1).state.leader_endpoint is None


def test_what_is_refused_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A hostile peer does not fill the log."""
    state = replica().state
    with caplog.at_level(logging.INFO, "kraftlib"):
        for _ in range(3):
            state.refuse("reason", "detail")

    assert state.refused == {"reason": 3}
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_an_answer_without_an_endpoint_has_none() -> None:
    """Names of listeners compare in upper case."""
    assert listener_endpoints(None, "controller") == {}
    assert listener_endpoints(place(1), "controller") == {LISTENER: place(1)}
