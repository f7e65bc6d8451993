"""Whose certificate may speak for whom: row 13 of the security checklist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlib.consensus.extensions.misconfiguration import claimed_id
from kraftlib.runtime.net.identity import Identities
from kraftlib.runtime.net.transport import Peer
from kraftlib.types import OffsetAndEpoch, ReplicaKey
from kraftlib.wire.messages.election_priority import ElectionPriorityRequest
from kraftlib.wire.messages.raft_voters import UpdateRaftVoterRequest
from kraftlib.wire.messages.read_barrier import ReadBarrierRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from kraftlib.wire.messages.state_digest import StateDigestRequest
from tests.runtime.quorum import leader_of, on_sockets
from tests.security.authority import Authority
from tools.scenarios import handmade as msg

END = OffsetAndEpoch(epoch=1, offset=1)
REQUESTS: list[Any] = [
    msg.vote(ReplicaKey(2), 3, cluster_id="blue", end=END),
    msg.begin(2, 3, cluster_id="blue"),
    msg.end(2, 3, cluster_id="blue"),
    msg.fetch(ReplicaKey(2), 3, cluster_id="blue", offset=1, last_epoch=1),
    msg.fetch_snapshot(ReplicaKey(2), 3, cluster_id="blue", snapshot=END, position=0),
    UpdateRaftVoterRequest(voter_id=2),
    ElectionPriorityRequest(voter_id=2),
    ReadBarrierRequest(replica_id=2),
    SnapshotHashRequest(replica_id=2),
    StateDigestRequest(replica_id=2),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_whoever_speaks_as_a_replica_must_be_named_as_that_one(request_: Any) -> None:
    judge = Identities(cluster_id="blue")

    assert claimed_id(request_) == 2
    assert judge.complaint(Peer("there", ("kraft://blue/2",)), request_) is None
    assert judge.complaint(Peer("there"), request_) is None, "without certificates it is up to the authorizer"
    assert judge.complaint(Peer("there", ("User:somebody",)), request_) is None, "and so it is with a password"
    assert judge.complaint(Peer("there", ("cert:somebody",)), request_) is None, "and with a name of somebody else"
    assert "is that of 3" in (judge.complaint(Peer("there", ("kraft://blue/3",)), request_) or "")
    assert "of cluster green" in (judge.complaint(Peer("there", ("kraft://green/2",)), request_) or "")
    assert "names no replica" in (judge.complaint(Peer("there", ("kraft://blue/x",)), request_) or "")


async def test_of_three_replicas_one_has_the_certificate_of_another_and_is_not_heard(tmp_path: Path) -> None:
    """Real certificates on real sockets: the two that are who they say elect and commit, the third reaches nobody."""
    authority = Authority(tmp_path)
    shown = {number: authority.contexts(f"kraft://blue/{named}") for number, named in ((1, 1), (2, 2), (3, 1))}
    async with on_sockets({number: {} for number in shown}, parts=shown) as clients:
        assert (await leader_of(clients.values())).node_id in (1, 2)
        assert clients[3].high_watermark() in (None, 0)
        assert clients[3].log_end_offset() == 0
