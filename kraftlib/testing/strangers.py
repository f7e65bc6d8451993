"""Requests of another cluster, which happens to know an address of ours: they must change nothing (I17)."""

from __future__ import annotations

import random as chance
import uuid
from typing import TYPE_CHECKING, Any

from kraftlib.testing import invariants as inv
from kraftlib.testing.network import Connection, Port
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.vote import VoteRequest

if TYPE_CHECKING:
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World

STRANGER_ID = 99


class Stranger:
    """Somebody who asks and does not care for the answer. A `Receiver`."""

    node_id = STRANGER_ID

    def request_received(self, *_: Any) -> None:
        """Nobody asks a stranger."""

    def response_received(self, *_: Any) -> None:
        """Heard, and forgotten."""

    def request_failed(self, *_: Any) -> None:
        """As well."""

    def connection_lost(self, *_: Any) -> None:
        """As well."""


def call(world: World, process: Process, random: chance.Random) -> None:
    """Have a stranger ask `process` something, and see that it changes nothing."""
    deadline_ms = process.replica.deadline_ms()
    if deadline_ms is not None and deadline_ms <= process.node.clock.now_ms():
        return  # whatever is due would be done now, stranger or not
    epoch = process.replica.epoch + random.choice((0, 1, 5, 1_000))
    end_offset = process.replica.state.log.end_offset + 100
    request = random.choice((_vote, _begin, _end, _fetch))(process.node_id, epoch, end_offset)
    stranger = Port(world.network, Stranger())
    connection = Connection(stranger, process.node_id, process.node_id, world.timeline.now_us)
    before = _state(process)
    connection.server = process.port
    process.port.accepted[connection] = None
    version = type(request).valid_versions.last
    request_id = process.port.expect(connection, 0, request, version)
    process.request_received(request_id, request, version, stranger.peer)
    if process.running and request_id not in process.port.requests:
        world.checker.check(inv.i17_strangers_change_nothing, process.node, before, _state(process))


def _state(process: Process) -> object:
    state = process.replica.state
    return (
        state.epoch, state.role, state.persisted, state.log.log_version,
        state.leader_id, getattr(state.role_state, "election_deadline_ms", None),
        getattr(state.role_state, "fetch_deadline_ms", None),
    )  # fmt: skip


def _vote(target: int, epoch: int, end_offset: int) -> VoteRequest:
    partition = VoteRequest.PartitionData(
        replica_epoch=epoch + 1, replica_id=1 + target % 3, last_offset_epoch=epoch, last_offset=end_offset
    )
    topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return VoteRequest(cluster_id="another-cluster", voter_id=target, topics=(topic,))


def _begin(target: int, epoch: int, end_offset: int) -> BeginQuorumEpochRequest:
    partition = BeginQuorumEpochRequest.PartitionData(leader_id=STRANGER_ID, leader_epoch=epoch)
    topic = BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    endpoint = BeginQuorumEpochRequest.LeaderEndpoint(name="CONTROLLER", host="stranger", port=1)
    return BeginQuorumEpochRequest(
        cluster_id="another-cluster", voter_id=target, topics=(topic,), leader_endpoints=(endpoint,)
    )


def _end(target: int, epoch: int, end_offset: int) -> EndQuorumEpochRequest:
    partition = EndQuorumEpochRequest.PartitionData(leader_id=1 + target % 3, leader_epoch=epoch)
    topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return EndQuorumEpochRequest(cluster_id="another-cluster", topics=(topic,))


def _fetch(target: int, epoch: int, end_offset: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=end_offset,
        last_fetched_epoch=epoch,
        replica_directory_id=uuid.UUID(int=99),
    )
    topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return FetchRequest(
        cluster_id="another-cluster",
        replica_state=FetchRequest.ReplicaState(replica_id=1 + target % 3),
        max_wait_ms=0,
        topics=(topic,),
    )
