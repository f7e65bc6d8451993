"""Hand-made messages, as peers that are no replicas would send them; and how to read and rewrite the real ones."""

from __future__ import annotations

from typing import Any

import attrs

from kraftlib.records.batch import parse_header
from kraftlib.types import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    ZERO_UUID,
    Endpoint,
    Epoch,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
)
from kraftlib.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftlib.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftlib.wire.messages.vote import VoteRequest, VoteResponse

Message = Any

HUGE_EPOCH = 2**31 - 1


def vote(
    asker: ReplicaKey,
    epoch: Epoch,
    *,
    cluster_id: str | None,
    end: OffsetAndEpoch,
    pre_vote: bool = False,
    voter_id: int = -1,
) -> VoteRequest:
    """A Vote of a replica whose log ends at `end`."""
    partition = VoteRequest.PartitionData(
        replica_epoch=epoch,
        replica_id=asker.id,
        replica_directory_id=asker.directory_id or ZERO_UUID,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=pre_vote,
    )
    topic = VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=(topic,))


def begin(leader_id: int, epoch: Epoch, *, cluster_id: str | None) -> BeginQuorumEpochRequest:
    """A BeginQuorumEpoch of a replica that claims to lead."""
    partition = BeginQuorumEpochRequest.PartitionData(leader_id=leader_id, leader_epoch=epoch)
    topic = BeginQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    endpoint = BeginQuorumEpochRequest.LeaderEndpoint(
        name="CONTROLLER", host=f"node-{leader_id}", port=(9_000 + leader_id) % 65_536
    )
    return BeginQuorumEpochRequest(cluster_id=cluster_id, topics=(topic,), leader_endpoints=(endpoint,))


def end(leader_id: int, epoch: Epoch, *, cluster_id: str | None) -> EndQuorumEpochRequest:
    """An EndQuorumEpoch that says that an epoch is over."""
    partition = EndQuorumEpochRequest.PartitionData(leader_id=leader_id, leader_epoch=epoch)
    topic = EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return EndQuorumEpochRequest(cluster_id=cluster_id, topics=(topic,))


def fetch(
    asker: ReplicaKey, epoch: Epoch, *, cluster_id: str | None, offset: Offset, last_epoch: Epoch, max_wait_ms: int = 0
) -> FetchRequest:
    """A Fetch of a replica whose log ends at `offset`."""
    partition = FetchRequest.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=asker.directory_id or ZERO_UUID,
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=FetchRequest.ReplicaState(replica_id=asker.id),
        max_wait_ms=max_wait_ms,
        topics=(FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
    )


def fetch_snapshot(
    asker: ReplicaKey, epoch: Epoch, *, cluster_id: str | None, snapshot: OffsetAndEpoch, position: int
) -> FetchSnapshotRequest:
    """A FetchSnapshot for a piece of a snapshot."""
    partition = FetchSnapshotRequest.PartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=asker.directory_id or ZERO_UUID,
    )
    topic = FetchSnapshotRequest.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,))
    return FetchSnapshotRequest(cluster_id=cluster_id, replica_id=asker.id, topics=(topic,))


def add_voter(key: ReplicaKey, endpoint: Endpoint, *, cluster_id: str | None) -> AddRaftVoterRequest:
    """An operator's AddRaftVoter, which waits for the commit."""
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=10_000,
        voter_id=key.id,
        voter_directory_id=key.directory_id or ZERO_UUID,
        listeners=(AddRaftVoterRequest.Listener(name="CONTROLLER", host=endpoint.host, port=endpoint.port),),
    )


def remove_voter(key: ReplicaKey, *, cluster_id: str | None) -> RemoveRaftVoterRequest:
    """An operator's RemoveRaftVoter."""
    return RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=key.id, voter_directory_id=key.directory_id or ZERO_UUID
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def is_real_vote(message: VoteRequest) -> bool:
    """Whether this asks for a vote and not just in advance."""
    return not message.topics[0].partitions[0].pre_vote


def grants(message: VoteResponse | None) -> bool:
    """Whether this grants a vote."""
    return message is not None and bool(message.topics) and message.topics[0].partitions[0].vote_granted


def fetched(message: FetchResponse) -> Any:
    """Return the one partition of a Fetch answer; None if it has none."""
    return message.responses[0].partitions[0] if message.responses else None


def has_records(message: FetchResponse) -> bool:
    """Whether this brings records."""
    partition = fetched(message)
    return partition is not None and bool(partition.records)


def first_offset(message: FetchResponse) -> Offset:
    """Return where the records of a Fetch answer begin."""
    return parse_header(fetched(message).records).base_offset


def diverges(message: FetchResponse) -> bool:
    """Whether this tells the asker to cut its log back."""
    partition = fetched(message)
    return partition is not None and partition.diverging_epoch.epoch >= 0


def names_snapshot(message: FetchResponse) -> bool:
    """Whether this sends the asker to a snapshot."""
    partition = fetched(message)
    return partition is not None and partition.snapshot_id.end_offset >= 0


def has_chunk(message: FetchSnapshotResponse) -> bool:
    """Whether this brings a piece of a snapshot."""
    return bool(message.topics) and bool(message.topics[0].partitions[0].unaligned_records)


# --- rewriting -------------------------------------------------------------------------------------------------------


def with_partition(message: FetchResponse, **fields: Any) -> FetchResponse:
    """Return a Fetch answer with other fields in its partition."""
    topic = message.responses[0]
    partition = attrs.evolve(topic.partitions[0], **fields)
    return attrs.evolve(message, responses=(attrs.evolve(topic, partitions=(partition,)),))


def with_chunk(message: FetchSnapshotResponse, **fields: Any) -> FetchSnapshotResponse:
    """Return a FetchSnapshot answer with other fields in its partition."""
    topic = message.topics[0]
    partition = attrs.evolve(topic.partitions[0], **fields)
    return attrs.evolve(message, topics=(attrs.evolve(topic, partitions=(partition,)),))


def diverging(message: FetchResponse, *, epoch: Epoch, end_offset: Offset) -> FetchResponse:
    """Return a Fetch answer that tells its asker to cut its log back to this end."""
    divergence = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return with_partition(message, records=b"", diverging_epoch=divergence)


def flipped(message: FetchResponse, *, place: int) -> bytes:
    """Return the records of a Fetch answer with one bit of byte `place` flipped."""
    data = bytearray(fetched(message).records)
    data[place % len(data)] ^= 1 << place % 8
    return bytes(data)
