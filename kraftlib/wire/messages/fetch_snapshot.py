"""FetchSnapshot (59): a snapshot in slices, for a replica whose next offset is no longer in the log (KIP-630).

Version 1 brought directory ids and endpoints (KIP-853). Slices are bytes of the file, cut anywhere.
"""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import (
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    uint16,
    uuid,
)
from kraftlib.wire.bounds import PARTITIONS, TOPICS, VOTERS


@message(kind="request", api_key=59, versions="0-1", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class FetchSnapshotRequest(Message):
    """Asks for a slice of a snapshot."""

    cluster_id: str | None = string("0+", nullable="0+", tag=0, default=None)
    replica_id: int = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=0x7FFFFFFF)
    topics: tuple[TopicSnapshot, ...] = array("TopicSnapshot", "0+", most=TOPICS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicSnapshot(Struct):
        """Always the one topic."""

        name: str = string("0+")
        partitions: tuple[FetchSnapshotRequest.PartitionSnapshot, ...] = array(
            "PartitionSnapshot", "0+", most=PARTITIONS
        )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionSnapshot(Struct):
        """Always the one partition: which snapshot, from which byte on."""

        partition: int = int32("0+")
        current_leader_epoch: int = int32("0+")
        snapshot_id: FetchSnapshotRequest.SnapshotId = struct("SnapshotId", "0+")
        position: int = int64("0+")
        replica_directory_id: UUID = uuid("1+", tag=0, ignorable=True)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class SnapshotId(Struct):
        """End offset and epoch, as in the name of the file."""

        end_offset: int = int64("0+")
        epoch: int = int32("0+")


@message(kind="response", api_key=59, versions="0-1", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class FetchSnapshotResponse(Message):
    """Brings a slice."""

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    topics: tuple[TopicSnapshot, ...] = array("TopicSnapshot", "0+", most=TOPICS)
    node_endpoints: tuple[NodeEndpoint, ...] = array("NodeEndpoint", "1+", tag=0, most=VOTERS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicSnapshot(Struct):
        """The topic of the request."""

        name: str = string("0+")
        partitions: tuple[FetchSnapshotResponse.PartitionSnapshot, ...] = array(
            "PartitionSnapshot", "0+", most=PARTITIONS
        )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionSnapshot(Struct):
        """The slice, where it begins, and how large the whole file is."""

        index: int = int32("0+")
        error_code: int = int16("0+")
        snapshot_id: FetchSnapshotResponse.SnapshotId = struct("SnapshotId", "0+")
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch = struct("LeaderIdAndEpoch", "0+", tag=0)
        size: int = int64("0+")
        """Of the whole file, in bytes."""

        position: int = int64("0+")
        unaligned_records: bytes | memoryview = records("0+", default=b"")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class SnapshotId(Struct):
        """End offset and epoch, as in the name of the file."""

        end_offset: int = int64("0+")
        epoch: int = int32("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class LeaderIdAndEpoch(Struct):
        """The leader that the answerer knows."""

        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class NodeEndpoint(Struct):
        """Where the leader is reached."""

        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")
