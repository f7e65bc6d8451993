"""BeginQuorumEpoch (53): a new leader tells the voters that it leads (KIP-595, KIP-853).

Version 0 is not flexible; version 1 names the receiver by directory id and brings the leader's endpoints.
"""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, int16, int32, message, string, uint16, uuid
from kraftlib.wire.bounds import LISTENERS, PARTITIONS, TOPICS, VOTERS


@message(kind="request", api_key=53, versions="0-1", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class BeginQuorumEpochRequest(Message):
    """Says who leads which epoch, from the leader itself."""

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: tuple[TopicData, ...] = array("TopicData", "0+", most=TOPICS)
    leader_endpoints: tuple[LeaderEndpoint, ...] = array("LeaderEndpoint", "1+", ignorable=True, most=LISTENERS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """Always the one topic."""

        topic_name: str = string("0+")
        partitions: tuple[BeginQuorumEpochRequest.PartitionData, ...] = array("PartitionData", "0+", most=PARTITIONS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """Always the one partition."""

        partition_index: int = int32("0+")
        voter_directory_id: UUID = uuid("1+", ignorable=True)
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class LeaderEndpoint(Struct):
        """One listener of the leader; names are in upper case."""

        name: str = string("1+")
        host: str = string("1+")
        port: int = uint16("1+")


@message(kind="response", api_key=53, versions="0-1", flexible="1+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class BeginQuorumEpochResponse(Message):
    """Accepts the leader, or says which epoch and leader are newer."""

    error_code: int = int16("0+")
    topics: tuple[TopicData, ...] = array("TopicData", "0+", most=TOPICS)
    node_endpoints: tuple[NodeEndpoint, ...] = array("NodeEndpoint", "1+", tag=0, most=VOTERS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """The topic of the request."""

        topic_name: str = string("0+")
        partitions: tuple[BeginQuorumEpochResponse.PartitionData, ...] = array("PartitionData", "0+", most=PARTITIONS)

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
