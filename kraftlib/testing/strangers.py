"""Requests of another cluster, which happens to know an address of ours, and impossible requests.

They must be refused as Kafka refuses them, and change nothing (I17, L17).
"""

from __future__ import annotations

import random as chance
import uuid
from typing import TYPE_CHECKING, Any

import attrs

from kraftlib.consensus.roles import Leader
from kraftlib.testing import impossible
from kraftlib.testing import invariants as inv
from kraftlib.testing.impossible import Impossible
from kraftlib.testing.network import Answer, Connection, Port
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.snapshot_hash import SnapshotHashRequest
from kraftlib.wire.messages.vote import VoteRequest

if TYPE_CHECKING:
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World

STRANGER_ID = 99


class Stranger:
    """A client that sends requests and ignores the responses. A `Receiver`."""

    node_id = STRANGER_ID

    def request_received(self, *_: Any) -> None:
        """Never called: no replica sends requests to it."""

    def response_received(self, *_: Any) -> None:
        """Ignore a response."""

    def request_failed(self, *_: Any) -> None:
        """Ignore a failure."""

    def connection_lost(self, *_: Any) -> None:
        """Ignore a lost connection."""


def call(world: World, process: Process, random: chance.Random) -> None:
    """Have a stranger ask `process` something, and see that it changes nothing."""
    state = process.replica.state
    epoch = state.epoch + random.choice((0, 0, 1, 5, 1_000))
    request: Any
    if random.random() < 0.3:
        # Just what a voter that has everything would ask, but for the cluster.
        request = attrs.evolve(impossible.fetch(world, process, random), cluster_id="another-cluster")
    else:
        request = random.choice((_vote, _begin, _end, _fetch))(process.node_id, epoch, state.log.end_offset + 100)
    complaint = ask(world, process, Impossible(request, ErrorCode.INCONSISTENT_CLUSTER_ID))
    if complaint is not None:
        world.violated("I17", f"{process.node.key} and a {type(request).__name__} of another cluster: {complaint}")


def ask_the_impossible(world: World, process: Process, random: chance.Random, name: str | None = None) -> None:
    """Send `process` an impossible request, and check that it is refused as it must be and changes nothing (L17)."""
    name = name or random.choice(list(impossible.KINDS))
    case = impossible.KINDS[name](world, process, random)
    complaint = None if case is None else ask(world, process, case)
    if complaint is not None:
        world.violated("L17", f"{process.node.key}, asked something impossible ({name}): {complaint}")


def ask(world: World, process: Process, case: Impossible) -> str | None:
    """Deliver a request at once; return the complaint about its outcome, None if there is none, or nothing yet."""
    deadline_ms = process.replica.deadline_ms()
    if deadline_ms is not None and deadline_ms <= process.node.clock.now_ms():
        return None  # all due work would be done now, stranger or not
    if process.executor.appends.pending:
        return None  # the turn that takes the request would also write what waits
    before = _state(process)
    world.checker.tolerated.add("epoch jump")  # which one of them is, and nothing else in a simulation
    answer = _deliver(world, process, case.request, case.version)
    changed = inv.i17_strangers_change_nothing(process.node, before, _state(process))
    if changed is not None:
        return changed
    if not process.running or not answer.given:
        return None  # it is busy with its disk: a later answer is given in another state
    if (answer.response is None) != (case.expected is None):
        return f"the answer is {answer.response}, expected was {case.expected}"
    if answer.response is None:
        return None
    if impossible.error_of(answer.response) != case.expected:
        return f"the error is {impossible.error_of(answer.response)}, expected was {case.expected!r}"
    if case.granted is not None and answer.response.topics[0].partitions[0].vote_granted != case.granted:
        return "the vote was granted"
    if case.parts:
        partition = answer.response.responses[0].partitions[0]
        if partition.records or (partition.diverging_epoch.epoch < 0 and partition.snapshot_id.epoch < 0):
            return f"the answer is {answer.response}, and does not say where the logs part"
    return None


def ask_for_hashes(world: World, process: Process, snapshot_id: OffsetAndEpoch, count: int) -> list[Answer]:
    """Ask `process` so many times at once for the hash of the first byte of a snapshot; return where answers come."""
    request = SnapshotHashRequest(
        cluster_id=world.cluster_id, end_offset=snapshot_id.offset, epoch=snapshot_id.epoch, position=1
    )
    return [_deliver(world, process, request) for _ in range(count)]


def _deliver(world: World, process: Process, request: Any, version: int | None = None) -> Answer:
    stranger = Port(world.network, Stranger())
    connection = Connection(stranger, process.node_id, process.node_id, world.timeline.now_us)
    connection.server = process.port
    process.port.accepted[connection] = None
    version = type(request).valid_versions.last if version is None else version
    request_id = process.port.expect(connection, 0, request, version)
    answer = process.port.requests[request_id]
    process.request_received(request_id, request, version, stranger.peer)
    return answer


def _state(process: Process) -> object:
    state = process.replica.state
    role = state.role_state
    counted = (
        (
            role.check_quorum_deadline_ms,
            tuple(sorted(role.fetched_voters)),
            tuple((key, progress.end_offset, progress.last_fetch_ms) for key, progress in role.progress.items()),
        )
        if isinstance(role, Leader)
        else ()
    )
    return (
        state.epoch, state.role, state.persisted, state.log.log_version, state.high_watermark,
        state.leader_id, getattr(role, "election_deadline_ms", None),
        getattr(role, "fetch_deadline_ms", None), counted,
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
