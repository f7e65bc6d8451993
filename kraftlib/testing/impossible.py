"""Requests that no replica of this cluster could mean: refused with the right error, and nothing is changed (L17).

Late ones, too, and ones that were meant for another replica: the network brings those rarely, and never at will.

The core fuzzer forges requests as well (`tools.core_fuzz.forged_requests`), for another question. There a request that
was sent is bent at random, the receiver may do what it says, and only the promises of the whole quorum are judged. Here
each request is one that must be refused, made for the state of its receiver, so that its one right answer is known and
every other change of the state is an error. A list of both could say no more than the two lists say.
"""

from __future__ import annotations

import random as chance
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.consensus.roles import Leader
from kraftlib.types import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftlib.wire.messages.vote import VoteRequest

if TYPE_CHECKING:
    from kraftlib.testing.process import Process
    from kraftlib.testing.world import World

CLOSED: Final = None
"""No answer: the connection is closed."""


@attrs.frozen
class Impossible:
    """A request, and what must become of it."""

    request: Any
    expected: ErrorCode | None
    version: int | None = None
    """None: the newest."""
    granted: bool | None = None
    """Of a Vote: the answer that must come."""
    parts: bool = False
    """Of a Fetch: whether the answer must say where the logs part, or name a snapshot, and hold no records."""


Make = Callable[["World", "Process", chance.Random], Impossible | None]


def vote(world: World, process: Process, random: chance.Random, **more: Any) -> VoteRequest:
    """A Vote of a real voter, in the epoch of the asked one, with `more` changed."""
    state = process.replica.state
    others = [key for key in world.current_voters() if key.id != process.node_id] or [process.node.key]
    asker = world.nodes[random.choice(others).id].key
    fields = {
        "replica_epoch": max(state.epoch, 1), "replica_id": asker.id, "replica_directory_id": asker.directory_id,
        "voter_directory_id": ZERO_UUID, "last_offset_epoch": 0, "last_offset": 0, "pre_vote": random.random() < 0.5,
    }  # fmt: skip
    partition = VoteRequest.PartitionData(**{**fields, **more})
    topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return VoteRequest(cluster_id=world.cluster_id, voter_id=process.node_id, topics=(topic,))


def fetch(world: World, process: Process, random: chance.Random, **more: Any) -> FetchRequest:
    """A Fetch of a real voter that has everything, with `more` changed."""
    state = process.replica.state
    asker = world.nodes[random.choice(list(world.nodes))].key
    fields = {
        "current_leader_epoch": state.epoch, "fetch_offset": state.log.end_offset,
        "last_fetched_epoch": state.log.last_epoch, "replica_directory_id": asker.directory_id,
    }  # fmt: skip
    partition = FetchRequest.FetchPartition(**{**fields, **more})
    topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    return FetchRequest(
        cluster_id=world.cluster_id, replica_state=FetchRequest.ReplicaState(replica_id=asker.id), max_wait_ms=0,
        topics=(topic,),
    )  # fmt: skip


def _old_vote(world: World, process: Process, random: chance.Random) -> Impossible | None:
    epoch = process.replica.epoch
    if epoch < 1:
        return None
    request = vote(world, process, random, replica_epoch=epoch - 1, pre_vote=True)
    return Impossible(request, ErrorCode.FENCED_LEADER_EPOCH)


def _vote_with_impossible_log(world: World, process: Process, random: chance.Random) -> Impossible:
    epoch = max(process.replica.epoch, 1)
    more = random.choice(({"last_offset": -1}, {"last_offset_epoch": -1}, {"last_offset_epoch": epoch + 1}))
    return Impossible(vote(world, process, random, **more), ErrorCode.INVALID_REQUEST)


def _vote_for_the_present_epoch_with_a_record_of_it(
    world: World, process: Process, random: chance.Random
) -> Impossible | None:
    """A candidate has no record of the epoch in which it stands: such an epoch has a leader already."""
    epoch = process.replica.epoch
    if epoch < 1:
        return None
    request = vote(world, process, random, last_offset_epoch=epoch, last_offset=10**9, pre_vote=False)
    return Impossible(request, ErrorCode.INVALID_REQUEST)


def _vote_of_nobody(world: World, process: Process, random: chance.Random) -> Impossible:
    return Impossible(vote(world, process, random, replica_id=-1), ErrorCode.INVALID_REQUEST)


def _vote_for_another_disk(world: World, process: Process, random: chance.Random) -> Impossible | None:
    if process.replica.epoch < 1:
        return None
    request = vote(world, process, random, voter_directory_id=uuid.UUID(int=random.getrandbits(127) + 7))
    return Impossible(request, ErrorCode.INVALID_VOTER_KEY)


def _vote_for_another_id(world: World, process: Process, random: chance.Random) -> Impossible | None:
    if process.replica.epoch < 1:
        return None
    request = attrs.evolve(vote(world, process, random), voter_id=process.node_id + 1)
    return Impossible(request, ErrorCode.INVALID_VOTER_KEY)


def _vote_of_ourselves(world: World, process: Process, random: chance.Random) -> Impossible | None:
    if process.replica.epoch < 1:
        return None
    key = process.node.key
    request = vote(
        world, process, random, replica_id=key.id, replica_directory_id=key.directory_id, last_offset=10**9
    )  # fmt: skip
    return Impossible(request, ErrorCode.NONE, granted=False)


def _vote_of_a_far_epoch(world: World, process: Process, random: chance.Random) -> Impossible:
    epoch = process.replica.epoch + process.node.config.epoch_jump_max + 1
    return Impossible(vote(world, process, random, replica_epoch=epoch), CLOSED)


def _vote_in_another_partition(world: World, process: Process, random: chance.Random) -> Impossible:
    request = vote(world, process, random, partition_index=1)
    topic = request.topics[0]
    topics = random.choice(((), (topic, topic), request.topics, (attrs.evolve(topic, topic_name="another"),)))
    topics = random.choice((topics, *_other_counts(topic, partition_index=0)))
    return Impossible(attrs.evolve(request, topics=topics), ErrorCode.INVALID_REQUEST)


def _other_counts(topic: Any, **right: int) -> tuple[tuple[Any, ...], ...]:
    """Return the right topic with no partition, and with the right one twice."""
    partition = attrs.evolve(topic.partitions[0], **right)
    return (attrs.evolve(topic, partitions=()),), (attrs.evolve(topic, partitions=(partition, partition)),)


def _leader_of_an_old_epoch(world: World, process: Process, random: chance.Random) -> Impossible | None:
    epoch = process.replica.epoch
    if epoch < 1:
        return None
    kind: Any = random.choice((BeginQuorumEpochRequest, EndQuorumEpochRequest))
    partition = kind.PartitionData(leader_id=random.choice(list(world.nodes)), leader_epoch=epoch - 1)
    topic = kind.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return Impossible(kind(cluster_id=world.cluster_id, topics=(topic,)), ErrorCode.FENCED_LEADER_EPOCH)


def _leader_who_is_nobody(world: World, process: Process, random: chance.Random) -> Impossible:
    kind: Any = random.choice((BeginQuorumEpochRequest, EndQuorumEpochRequest))
    partition = kind.PartitionData(leader_id=-1, leader_epoch=process.replica.epoch + random.choice((0, 1)))
    topic = kind.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return Impossible(kind(cluster_id=world.cluster_id, topics=(topic,)), ErrorCode.INVALID_REQUEST)


def _fetch_of_another_epoch(world: World, process: Process, random: chance.Random) -> Impossible | None:
    epoch = process.replica.epoch
    if epoch > 0 and random.random() < 0.5:
        request = fetch(world, process, random, current_leader_epoch=epoch - 1, last_fetched_epoch=0)
        return Impossible(request, ErrorCode.FENCED_LEADER_EPOCH)
    request = fetch(world, process, random, current_leader_epoch=epoch + random.choice((1, 1_000)))
    return Impossible(request, ErrorCode.UNKNOWN_LEADER_EPOCH)


def _fetch_with_impossible_log(world: World, process: Process, random: chance.Random) -> Impossible:
    epoch = process.replica.epoch
    more = random.choice(({"fetch_offset": -1}, {"last_fetched_epoch": -1}, {"last_fetched_epoch": epoch + 1}))
    return Impossible(fetch(world, process, random, **more), ErrorCode.INVALID_REQUEST)


def _fetch_in_another_partition(world: World, process: Process, random: chance.Random) -> Impossible:
    request = fetch(world, process, random, partition=1)
    topic = request.topics[0]
    topics = random.choice(((), (topic, topic), request.topics, (attrs.evolve(topic, topic_id=uuid.UUID(int=5)),)))
    topics = random.choice((topics, *_other_counts(topic, partition=0)))
    return Impossible(attrs.evolve(request, topics=topics), ErrorCode.INVALID_REQUEST)


def _fetch_of_ourselves(world: World, process: Process, random: chance.Random) -> Impossible | None:
    if process.node.leads is None or process.replica.state.shutting_down:
        return None
    replica_state = FetchRequest.ReplicaState(replica_id=process.node_id)
    request = attrs.evolve(fetch(world, process, random), replica_state=replica_state)
    return Impossible(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def _fetch_with_another_history(world: World, process: Process, random: chance.Random) -> Impossible | None:
    """Of a log that is no prefix of the leader's, longer than it, or of other epochs."""
    if process.node.leads is None or process.replica.state.shutting_down or len(world.nodes) < 2:
        return None
    epoch, chain = process.replica.epoch, process.node.chain
    offset = random.randint(1, chain.end_offset + 5)
    claimed = random.randint(1, max(epoch, 1))
    end_offset = max((entry.end_offset for entry in chain.entries if entry.epoch == claimed), default=None)
    if claimed > epoch or (end_offset is not None and offset <= end_offset):
        return None  # for all that a leader can tell from these two numbers, a prefix of its log
    asker = random.choice([node.key for node in world.nodes.values() if node.process is not process])
    request = fetch(world, process, random, fetch_offset=offset, last_fetched_epoch=claimed)
    replica_state = FetchRequest.ReplicaState(replica_id=asker.id)
    return Impossible(attrs.evolve(request, replica_state=replica_state), ErrorCode.NONE, parts=True)


def _snapshot_that_is_not_there(world: World, process: Process, random: chance.Random) -> Impossible | None:
    if process.node.leads is None or process.replica.state.shutting_down:
        return None
    snapshot_id = FetchSnapshotRequest.SnapshotId(end_offset=random.choice((0, 10**9)), epoch=process.replica.epoch)
    return Impossible(snapshot(world, process, snapshot_id), ErrorCode.SNAPSHOT_NOT_FOUND)


def _snapshot_of_another_epoch(world: World, process: Process, random: chance.Random) -> Impossible | None:
    epoch = process.replica.epoch
    snapshot_id = FetchSnapshotRequest.SnapshotId(end_offset=random.choice((1, 10**9)), epoch=1)
    if epoch > 0 and random.random() < 0.5:
        request = snapshot(world, process, snapshot_id, current_leader_epoch=epoch - 1)
        return Impossible(request, ErrorCode.FENCED_LEADER_EPOCH)
    request = snapshot(world, process, snapshot_id, current_leader_epoch=epoch + random.choice((1, 1_000)))
    return Impossible(request, ErrorCode.UNKNOWN_LEADER_EPOCH)


def _snapshot_from_before_its_beginning(world: World, process: Process, random: chance.Random) -> Impossible | None:
    latest = process.replica.state.log.latest_snapshot
    if process.node.leads is None or process.replica.state.shutting_down or latest is None:
        return None
    snapshot_id = FetchSnapshotRequest.SnapshotId(end_offset=latest.offset, epoch=latest.epoch)
    return Impossible(snapshot(world, process, snapshot_id, position=-1), ErrorCode.POSITION_OUT_OF_RANGE)


def snapshot(
    world: World, process: Process, snapshot_id: FetchSnapshotRequest.SnapshotId, **more: Any
) -> FetchSnapshotRequest:
    """A FetchSnapshot without a replica id, in the epoch of its receiver, with `more` changed."""
    fields = {"current_leader_epoch": process.replica.epoch, "position": 0, **more}
    partition = FetchSnapshotRequest.PartitionSnapshot(snapshot_id=snapshot_id, **fields)
    topic = FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,))
    return FetchSnapshotRequest(cluster_id=world.cluster_id, replica_id=-1, max_bytes=100, topics=(topic,))


def _voter_change_that_cannot_be(world: World, process: Process, random: chance.Random) -> Impossible | None:
    """Requests to add a present voter, or none; or to remove an absent one."""
    state = process.replica.state
    if process.node.leads is None or state.shutting_down:
        return None
    asks = random.choice((AddRaftVoterRequest, RemoveRaftVoterRequest))
    of_nobody = random.random() < 0.3
    voter_id = -1 if of_nobody else random.choice([key.id for key in world.current_voters()])
    fields: dict[str, Any] = {
        "cluster_id": world.cluster_id,
        "voter_id": voter_id,
        "voter_directory_id": uuid.UUID(int=random.getrandbits(99) + 9),
    }
    if asks is AddRaftVoterRequest:
        listener = AddRaftVoterRequest.Listener(name=process.node.config.listener_name, host="nowhere", port=1)
        fields |= {"timeout_ms": 1, "listeners": (listener,)}
    request = asks(**fields)
    role, offset = state.role_state, state.log.voters.latest_offset
    if of_nobody:
        return Impossible(request, ErrorCode.INVALID_REQUEST)
    if not isinstance(role, Leader) or role.change is not None or state.high_watermark is None:
        return Impossible(request, ErrorCode.REQUEST_TIMED_OUT)
    if state.log.kraft_version.latest < 1:
        return Impossible(request, ErrorCode.UNSUPPORTED_VERSION)
    if offset is None or offset >= state.high_watermark:
        return Impossible(request, ErrorCode.REQUEST_TIMED_OUT)
    return Impossible(request, ErrorCode.DUPLICATE_VOTER if asks is AddRaftVoterRequest else ErrorCode.VOTER_NOT_FOUND)


def _voter_change_at_another_than_the_leader(
    world: World, process: Process, random: chance.Random
) -> Impossible | None:
    if process.node.leads is not None:
        return None
    request = RemoveRaftVoterRequest(
        cluster_id=world.cluster_id, voter_id=process.node_id, voter_directory_id=uuid.UUID(int=9)
    )
    return Impossible(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)


KINDS: Final[Mapping[str, Make]] = {
    name.strip("_").replace("_", " "): value
    for name, value in list(globals().items())
    if name.startswith(("_vote", "_old_vote", "_voter", "_leader", "_fetch", "_snapshot"))
}
"""Every kind by its name."""


def error_of(response: Any) -> int:
    """Return the error that an answer says: of the whole, or of its one partition."""
    if response.error_code:
        return int(response.error_code)
    topics = getattr(response, "topics", None) or getattr(response, "responses", None) or ()
    return int(topics[0].partitions[0].error_code) if topics else 0
