"""AlterPartition (56): the leader of a partition changes its in-sync replicas (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, int8, int16, int32, int64, message, string, uuid


@message(kind="request", api_key=56, versions="0-3", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AlterPartitionRequest(Message):
    """A broker's new in-sync replicas of the partitions that it leads."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: tuple[TopicData, ...] = array("TopicData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """A topic, by name up to version 1, by id from then on."""

        topic_name: str = string("0-1", ignorable=True)
        topic_id: UUID = uuid("2+", ignorable=True)
        partitions: tuple[AlterPartitionRequest.PartitionData, ...] = array("PartitionData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """The in-sync replicas of a partition: by id up to version 2, with broker epochs from then on."""

        partition_index: int = int32("0+")
        leader_epoch: int = int32("0+")
        new_isr: tuple[int, ...] = array("int32", "0-2")
        new_isr_with_epochs: tuple[AlterPartitionRequest.BrokerState, ...] = array("BrokerState", "3+")
        leader_recovery_state: int = int8("1+")
        partition_epoch: int = int32("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class BrokerState(Struct):
        """A replica and the epoch of its broker."""

        broker_id: int = int32("3+")
        broker_epoch: int = int64("3+", default=-1)


@message(kind="response", api_key=56, versions="0-3", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AlterPartitionResponse(Message):
    """The partitions as the controller now has them."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: tuple[TopicData, ...] = array("TopicData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """A topic of the request."""

        topic_name: str = string("0-1", ignorable=True)
        topic_id: UUID = uuid("2+", ignorable=True)
        partitions: tuple[AlterPartitionResponse.PartitionData, ...] = array("PartitionData", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """A partition as the controller now has it."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")
        isr: tuple[int, ...] = array("int32", "0+")
        leader_recovery_state: int = int8("1+", ignorable=True)
        partition_epoch: int = int32("0+")
