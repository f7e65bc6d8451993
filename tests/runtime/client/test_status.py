"""Status and metrics say what the core knows, under names that people and Kafka's tools expect."""

from __future__ import annotations

import json
import math

import attrs
import pytest

from kraftlib.consensus.roles import Role
from kraftlib.consensus.status import QuorumStatus
from kraftlib.consensus.voters import VoterSet
from kraftlib.runtime.client.status import current_state
from kraftlib.types import ReplicaKey
from tests.runtime.quorum import quorum, until

QUIET = QuorumStatus(
    key=ReplicaKey(1),
    cluster_id="test",
    role=Role.UNATTACHED,
    is_voter=True,
    epoch=3,
    leader_id=None,
    voted_key=None,
    high_watermark=None,
    log_start_offset=0,
    log_end_offset=0,
    log_end_epoch=0,
    flushed_offset=0,
    kraft_version=0,
    voters=VoterSet(),
)

# KIP-595, Quorum Metrics: leader, prospective, prospective-voted, candidate, unattached-voted, follower or
# observer, else unattached - which covers Resigned, too.
STATES = [
    (Role.LEADER, True, None, "leader"),
    (Role.CANDIDATE, True, ReplicaKey(1), "candidate"),
    (Role.PROSPECTIVE, True, None, "prospective"),
    (Role.PROSPECTIVE, True, ReplicaKey(2), "prospective-voted"),
    (Role.UNATTACHED, True, ReplicaKey(2), "unattached-voted"),
    (Role.UNATTACHED, False, None, "unattached"),
    (Role.FOLLOWER, True, ReplicaKey(2), "follower"),
    (Role.FOLLOWER, False, None, "observer"),
    (Role.RESIGNED, True, None, "unattached"),
]


@pytest.mark.parametrize(("role", "is_voter", "voted", "name"), STATES)
def test_current_state_is_kafkas(role: Role, is_voter: bool, voted: ReplicaKey | None, name: str) -> None:
    assert current_state(attrs.evolve(QUIET, role=role, is_voter=is_voter, voted_key=voted)) == name


@pytest.mark.parametrize("engine", ["inline", "thread"])
async def test_a_leader_knows_how_far_everybody_is(engine: str) -> None:
    async with quorum(engine=engine) as three:
        leader = await three.leader()
        appended = await leader.append([b"a", b"b"])
        await until(lambda: all(voter.end_offset == appended.last_offset + 1 for voter in leader.status().voters))
        status = leader.status()

        assert (status.role, status.leader_id, status.is_voter) == ("leader", leader.node_id, True)
        assert status.high_watermark == status.log_end_offset == status.flushed_offset == appended.last_offset + 1
        assert status.cluster_id == "test"
        assert status.endpoint == f"replica:{leader.node_id}"
        assert (status.waiting, status.failure, status.log_start_offset) == (0, None, 0)
        assert [voter.id for voter in status.voters] == [1, 2, 3]
        for voter in status.voters:
            assert voter.lag == 0
            assert voter.endpoints == {"CONTROLLER": f"replica:{voter.id}"}
            assert (voter.last_fetch_ms_ago is None) == (voter.id == leader.node_id)
        assert json.loads(json.dumps(status.to_dict()))["voters"][0]["id"] == 1


async def test_a_follower_knows_itself_and_who_leads() -> None:
    async with quorum(engine="inline") as three:
        leader = await three.leader()
        follower = next(client for client in three.clients.values() if client is not leader)
        await until(lambda: follower.high_watermark() == leader.high_watermark())
        status = follower.status()

        assert (status.role, status.leader_id) == ("follower", leader.node_id)
        own = next(voter for voter in status.voters if voter.id == follower.node_id)
        other = next(voter for voter in status.voters if voter.id == leader.node_id)
        assert (own.end_offset, own.lag) == (status.flushed_offset, None)
        assert (other.end_offset, other.lag, other.last_fetch_ms_ago) == (None, None, None)


async def test_metrics_bear_kafkas_names_and_numbers() -> None:
    async with quorum(engine="inline") as three:
        leader = await three.leader()
        await leader.append([b"a", b"b"])
        follower = next(client for client in three.clients.values() if client is not leader)
        await until(lambda: follower.high_watermark() == leader.high_watermark())
        of_leader, of_follower = leader.metrics(), follower.metrics()

        assert of_leader["current-state"] == "leader"
        assert of_leader["current-leader"] == of_leader["current-vote"] == leader.node_id
        assert of_leader["high-watermark"] == of_leader["log-end-offset"] == leader.high_watermark()
        assert of_leader["log-end-epoch"] == of_leader["current-epoch"]
        assert of_leader["number-of-voters"] == 3
        assert of_leader["number-of-observers"] == of_leader["uncommitted-voter-change"] == 0
        assert float(of_leader["commit-latency-avg"]) > 0
        assert float(of_leader["append-records-rate"]) > 0
        assert float(of_leader["election-latency-max"]) > 0
        assert of_leader["last-applied-record-offset"] == (leader.high_watermark() or 0) - 1

        assert of_follower["current-state"] == "follower"
        assert of_follower["current-leader"] == leader.node_id
        assert len(str(of_follower["current-vote-directory-id"])) == 22
        assert "number-of-observers" not in of_follower, "registered while leading only"
        assert float(of_follower["fetch-records-rate"]) > 0
        assert math.isnan(float(of_follower["commit-latency-avg"]))
