"""Fetch (1): replication, discovery of the leader, its sign of life and the acknowledgement of records, all in one.

Version 12 brought what KRaft needs (KIP-595), 13 topic ids, 15 ReplicaState, 16 endpoints (KIP-951), 17 directory ids
(KIP-853), 18 the high watermark that the follower knows (KIP-1166). Older ones are declared so that they can be
answered; a KRaft leader refuses all below 13.
"""

from __future__ import annotations

from uuid import UUID

from kraftlib.codec.declared import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    uuid,
)
from kraftlib.frozen import frozen
from kraftlib.wire.bounds import PARTITIONS, TOPICS, VOTERS


@message(kind="request", api_key=1, versions="4-18", flexible="12+")
@frozen(kw_only=True, eq=False, repr=False)
class FetchRequest(Message):
    """Asks for records from an offset on. The offset acknowledges everything before it."""

    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct("ReplicaState", "15+", tag=1)
    max_wait_ms: int = int32("0+")
    """Time that the leader may hold the request until it has something to answer."""

    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: tuple[FetchTopic, ...] = array("FetchTopic", "0+", most=TOPICS)
    forgotten_topics_data: tuple[ForgottenTopic, ...] = array("ForgottenTopic", "7+", most=TOPICS)
    rack_id: str = string("11+", ignorable=True)

    @frozen(kw_only=True, eq=False, repr=False)
    class ReplicaState(Struct):
        """The request sender, from version 15 on."""

        replica_id: int = int32("15+", default=-1)
        replica_epoch: int = int64("15+", default=-1)

    @frozen(kw_only=True, eq=False, repr=False)
    class FetchTopic(Struct):
        """The topic: by name up to version 12, by id from then on."""

        topic: str = string("0-12", ignorable=True)
        topic_id: UUID = uuid("13+", ignorable=True)
        partitions: tuple[FetchRequest.FetchPartition, ...] = array("FetchPartition", "0+", most=PARTITIONS)

    @frozen(kw_only=True, eq=False, repr=False)
    class FetchPartition(Struct):
        """The offset to fetch from, and the end of the follower's log."""

        partition: int = int32("0+")
        current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
        fetch_offset: int = int64("0+")
        """Log end offset of the follower: the records before it are on its disk."""

        last_fetched_epoch: int = int32("12+", default=-1)
        """Epoch of its last record, 0 if it has none."""

        log_start_offset: int = int64("5+", default=-1, ignorable=True)
        partition_max_bytes: int = int32("0+")
        replica_directory_id: UUID = uuid("17+", tag=0, ignorable=True)
        high_watermark: int = int64("18+", tag=1, default=0x7FFFFFFFFFFFFFFF, ignorable=True)
        """The follower's high watermark, -1 if unknown. A leader with a newer one answers at once."""

    @frozen(kw_only=True, eq=False, repr=False)
    class ForgottenTopic(Struct):
        """Of fetch sessions, which KRaft does not use."""

        topic: str = string("7-12", ignorable=True)
        topic_id: UUID = uuid("13+", ignorable=True)
        partitions: tuple[int, ...] = array("int32", "7+", most=PARTITIONS)


@message(kind="response", api_key=1, versions="4-18", flexible="12+")
@frozen(kw_only=True, eq=False, repr=False)
class FetchResponse(Message):
    """Brings records, or says where the logs part, or which snapshot to load."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: tuple[FetchableTopicResponse, ...] = array("FetchableTopicResponse", "0+", most=TOPICS)
    node_endpoints: tuple[NodeEndpoint, ...] = array("NodeEndpoint", "16+", tag=0, most=VOTERS)

    @frozen(kw_only=True, eq=False, repr=False)
    class FetchableTopicResponse(Struct):
        """The topic of the request."""

        topic: str = string("0-12", ignorable=True)
        topic_id: UUID = uuid("13+", ignorable=True)
        partitions: tuple[FetchResponse.PartitionData, ...] = array("PartitionData", "0+", most=PARTITIONS)

    @frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """One of: records, `diverging_epoch`, `snapshot_id`, an error; always with leader and epoch."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        high_watermark: int = int64("0+")
        last_stable_offset: int = int64("4+", default=-1, ignorable=True)
        log_start_offset: int = int64("5+", default=-1, ignorable=True)
        diverging_epoch: FetchResponse.EpochEndOffset = struct("EpochEndOffset", "12+", tag=0)
        current_leader: FetchResponse.LeaderIdAndEpoch = struct("LeaderIdAndEpoch", "12+", tag=1)
        snapshot_id: FetchResponse.SnapshotId = struct("SnapshotId", "12+", tag=2)
        aborted_transactions: tuple[FetchResponse.AbortedTransaction, ...] | None = array(
            "AbortedTransaction", "4+", nullable="4+", ignorable=True
        )
        preferred_read_replica: int = int32("11+", default=-1)
        records: bytes | memoryview | None = records("0+", nullable="0+")

    @frozen(kw_only=True, eq=False, repr=False)
    class EpochEndOffset(Struct):
        """The largest epoch that both logs may share, and where it ends in the leader's."""

        epoch: int = int32("12+", default=-1)
        end_offset: int = int64("12+", default=-1)

    @frozen(kw_only=True, eq=False, repr=False)
    class LeaderIdAndEpoch(Struct):
        """The leader that the answerer knows."""

        leader_id: int = int32("12+", default=-1)
        leader_epoch: int = int32("12+", default=-1)

    @frozen(kw_only=True, eq=False, repr=False)
    class SnapshotId(Struct):
        """The snapshot to load. The offset comes first here."""

        end_offset: int = int64("0+", default=-1)
        epoch: int = int32("0+", default=-1)

    @frozen(kw_only=True, eq=False, repr=False)
    class AbortedTransaction(Struct):
        """Of transactions, which KRaft does not use."""

        producer_id: int = int64("4+")
        first_offset: int = int64("4+")

    @frozen(kw_only=True, eq=False, repr=False)
    class NodeEndpoint(Struct):
        """Where the leader is reached. Here the port has 32 bits."""

        node_id: int = int32("16+")
        host: str = string("16+")
        port: int = int32("16+")
        rack: str | None = string("16+", nullable="16+", default=None)
