"""DescribeQuorum (55): the leader's knowledge of its voters and observers (KIP-595, KIP-853)."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, int16, int32, int64, message, string, uint16, uuid
from kraftlib.wire.bounds import LISTENERS, PARTITIONS, TOPICS, VOTERS


@message(kind="request", api_key=55, versions="0-2", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DescribeQuorumRequest(Message):
    """Asks for the state of the quorum."""

    topics: tuple[TopicData, ...] = array("TopicData", "0+", most=TOPICS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """Always the one topic."""

        topic_name: str = string("0+")
        partitions: tuple[DescribeQuorumRequest.PartitionData, ...] = array("PartitionData", "0+", most=PARTITIONS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """Always the one partition."""

        partition_index: int = int32("0+")


@message(kind="response", api_key=55, versions="0-2", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DescribeQuorumResponse(Message):
    """The state of the quorum, if the leader answers; only the leader knows it."""

    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: tuple[TopicData, ...] = array("TopicData", "0+", most=TOPICS)
    nodes: tuple[Node, ...] = array("Node", "2+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """The topic of the request."""

        topic_name: str = string("0+")
        partitions: tuple[DescribeQuorumResponse.PartitionData, ...] = array("PartitionData", "0+", most=PARTITIONS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """Leader, epoch, high watermark, and how far each replica has come."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("2+", nullable="2+", ignorable=True)
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")
        high_watermark: int = int64("0+")
        current_voters: tuple[DescribeQuorumResponse.ReplicaState, ...] = array("ReplicaState", "0+", most=VOTERS)
        observers: tuple[DescribeQuorumResponse.ReplicaState, ...] = array("ReplicaState", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Node(Struct):
        """Where a voter is reached."""

        node_id: int = int32("2+")
        listeners: tuple[DescribeQuorumResponse.Listener, ...] = array("Listener", "2+", most=LISTENERS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Listener(Struct):
        """One listener of a voter."""

        name: str = string("2+")
        host: str = string("2+")
        port: int = uint16("2+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ReplicaState(Struct):
        """The progress of a replica; timestamps are ms since 1970, -1 if unknown."""

        replica_id: int = int32("0+")
        replica_directory_id: UUID = uuid("2+")
        log_end_offset: int = int64("0+")
        last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
        last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)
