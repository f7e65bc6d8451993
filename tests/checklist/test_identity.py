"""Checklist section 5: whose cluster a request names, and peers that refuse us."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kraftlib.consensus.replica import Replica
from kraftlib.consensus.roles import Role
from kraftlib.types import METADATA_TOPIC, ElectionState, ReplicaKey
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochResponse
from kraftlib.wire.messages.fetch import FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.vote import VoteResponse
from tests.consensus.build import (
    ask,
    begin_request,
    end_request,
    fetch_request,
    flush,
    follower,
    leader,
    outstanding_to,
    replica,
    reply,
    vote_request,
)


def snapshot_request() -> FetchSnapshotRequest:
    """A FetchSnapshot of the leader of epoch 2."""
    kind = FetchSnapshotRequest
    partition = kind.PartitionSnapshot(current_leader_epoch=2, snapshot_id=kind.SnapshotId(end_offset=9, epoch=1))
    return kind(replica_id=2, topics=(kind.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),))


ASKING = [
    ("testFetchRequestClusterIdValidation", fetch_request(epoch=2, offset=0, last_epoch=0), 18),
    ("testVoteRequestClusterIdValidation", vote_request(epoch=3, last=(9, 2)), 2),
    ("testBeginQuorumEpochRequestClusterIdValidation", begin_request(epoch=3, leader_id=3), 1),
    ("testEndQuorumEpochRequestClusterIdValidation", end_request(epoch=3, leader_id=3), 1),
    ("testFetchSnapshotRequestClusterIdValidation", snapshot_request(), 1),
]


@pytest.mark.parametrize(("request_", "version"), [row[1:] for row in ASKING], ids=[row[0] for row in ASKING])
@pytest.mark.parametrize(("cluster_id", "is_served"), [("cluster", True), (None, True), ("", False), ("other", False)])
def test_a_request_for_another_cluster_changes_nothing(
    request_: Any, version: int, cluster_id: str | None, is_served: bool
) -> None:
    """testFetchRequestClusterIdValidation, testVoteRequestClusterIdValidation,
    testBeginQuorumEpochRequestClusterIdValidation, testEndQuorumEpochRequestClusterIdValidation,
    testFetchSnapshotRequestClusterIdValidation: null is served, the empty one and any other are refused.
    """
    core = leader(1)
    response = ask(core, attrs.evolve(request_, cluster_id=cluster_id), version=version)

    if is_served:
        assert response.error_code == 0
    else:
        assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert (getattr(response, "topics", None) or getattr(response, "responses", ())) == ()
        assert (core.role, core.epoch) == (Role.LEADER, 2)


def flushed_leader() -> Replica:
    """A leader whose disk has kept up."""
    core = leader(1)
    flush(core)
    return core


REFUSED = [
    ("testClusterAuthorizationFailedInFetch", lambda: follower(1, epoch=5, leader_id=2), FetchResponse),
    ("testClusterAuthorizationFailedInBeginQuorumEpoch", flushed_leader, BeginQuorumEpochResponse),
    (
        "testClusterAuthorizationFailedInVote",
        lambda: replica(1, election=ElectionState(epoch=5, voted_key=ReplicaKey(1))),
        VoteResponse,
    ),
    (
        "testClusterAuthorizationFailedInEndQuorumEpoch",
        lambda: replica(1, election=ElectionState(epoch=5, leader_id=1)),
        EndQuorumEpochResponse,
    ),
]


@pytest.mark.parametrize(("make", "response"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_peer_that_does_not_authorize_us_stops_nobody(make: Any, response: Any) -> None:
    """testClusterAuthorizationFailedInFetch, testClusterAuthorizationFailedInBeginQuorumEpoch,
    testClusterAuthorizationFailedInVote, testClusterAuthorizationFailedInEndQuorumEpoch
    (KafkaRaftClientClusterAuthTest): fatal in Kafka; ours leaves the peer alone for a while.
    """
    core = make()
    before = core.role, core.epoch, core.state.persisted
    assert outstanding_to(core, 2)
    reply(core, 2, response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))

    assert (core.role, core.epoch, core.state.persisted) == before
    assert core.state.connections.is_backing_off(2, core.state.now_ms)
