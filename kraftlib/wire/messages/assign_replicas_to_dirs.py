"""AssignReplicasToDirs (73): a broker says in which of its directories its replicas are (KIP-858)."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, int16, int32, int64, message, uuid


@message(kind="request", api_key=73, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AssignReplicasToDirsRequest(Message):
    """A broker's replicas by directory."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: tuple[DirectoryData, ...] = array("DirectoryData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DirectoryData(Struct):
        """A directory."""

        id: UUID = uuid("0+")
        topics: tuple[AssignReplicasToDirsRequest.TopicData, ...] = array("TopicData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """A topic that has replicas there."""

        topic_id: UUID = uuid("0+")
        partitions: tuple[AssignReplicasToDirsRequest.PartitionData, ...] = array("PartitionData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """A partition that has a replica there."""

        partition_index: int = int32("0+")


@message(kind="response", api_key=73, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AssignReplicasToDirsResponse(Message):
    """The result for each partition."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: tuple[DirectoryData, ...] = array("DirectoryData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DirectoryData(Struct):
        """A directory."""

        id: UUID = uuid("0+")
        topics: tuple[AssignReplicasToDirsResponse.TopicData, ...] = array("TopicData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """A topic."""

        topic_id: UUID = uuid("0+")
        partitions: tuple[AssignReplicasToDirsResponse.PartitionData, ...] = array("PartitionData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """A partition."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
