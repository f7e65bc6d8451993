"""EndQuorumEpoch (54): a leader that resigns asks for an election now (KIP-595, KIP-853).

Not needed for correctness; it saves the fetch timeout. Version 0 is not flexible and names its successors by id;
version 1 names them by id and directory id.
"""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, int16, int32, message, string, uint16, uuid
from kraftlib.wire.bounds import LISTENERS, PARTITIONS, TOPICS, VOTERS


@message(kind="request", api_key=54, versions="0-1", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class EndQuorumEpochRequest(Message):
    """Says that the leader of an epoch has resigned."""

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    topics: tuple[TopicData, ...] = array("TopicData", "0+", most=TOPICS)
    leader_endpoints: tuple[LeaderEndpoint, ...] = array("LeaderEndpoint", "1+", ignorable=True, most=LISTENERS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """Always the one topic."""

        topic_name: str = string("0+")
        partitions: tuple[EndQuorumEpochRequest.PartitionData, ...] = array("PartitionData", "0+", most=PARTITIONS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """Always the one partition, with those who should stand, the most caught-up first."""

        partition_index: int = int32("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")
        preferred_successors: tuple[int, ...] = array("int32", "0", ignorable=True, most=VOTERS)
        preferred_candidates: tuple[EndQuorumEpochRequest.ReplicaInfo, ...] = array(
            "ReplicaInfo", "1+", ignorable=True, most=VOTERS
        )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ReplicaInfo(Struct):
        """One who should stand."""

        candidate_id: int = int32("1+")
        candidate_directory_id: UUID = uuid("1+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class LeaderEndpoint(Struct):
        """One listener of the leader; Kafka sends none."""

        name: str = string("1+")
        host: str = string("1+")
        port: int = uint16("1+")


@message(kind="response", api_key=54, versions="0-1", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class EndQuorumEpochResponse(Message):
    """Takes note, or says which epoch and leader are newer."""

    error_code: int = int16("0+")
    topics: tuple[TopicData, ...] = array("TopicData", "0+", most=TOPICS)
    node_endpoints: tuple[NodeEndpoint, ...] = array("NodeEndpoint", "1+", tag=0, most=VOTERS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """The topic of the request."""

        topic_name: str = string("0+")
        partitions: tuple[EndQuorumEpochResponse.PartitionData, ...] = array("PartitionData", "0+", most=PARTITIONS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """The epoch and leader that the voter knows."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class NodeEndpoint(Struct):
        """Where the leader is reached, on the listener by which the request came."""

        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")
