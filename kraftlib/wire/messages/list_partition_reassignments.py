"""ListPartitionReassignments (46): which partitions are moving to other brokers (KIP-455)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, int16, int32, message, string


@message(kind="request", api_key=46, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ListPartitionReassignmentsRequest(Message):
    """The partitions that are asked for: null stands for all."""

    timeout_ms: int = int32("0+", default=60000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = array(
        "ListPartitionReassignmentsTopics", "0+", nullable="0+", default=None
    )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ListPartitionReassignmentsTopics(Struct):
        """Partitions of one topic."""

        name: str = string("0+")
        partition_indexes: tuple[int, ...] = array("int32", "0+")


@message(kind="response", api_key=46, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ListPartitionReassignmentsResponse(Message):
    """The partitions that are moving."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: tuple[OngoingTopicReassignment, ...] = array("OngoingTopicReassignment", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class OngoingTopicReassignment(Struct):
        """Partitions of one topic."""

        name: str = string("0+")
        partitions: tuple[ListPartitionReassignmentsResponse.OngoingPartitionReassignment, ...] = array(
            "OngoingPartitionReassignment", "0+"
        )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class OngoingPartitionReassignment(Struct):
        """One partition: its replicas, and those that come and go."""

        partition_index: int = int32("0+")
        replicas: tuple[int, ...] = array("int32", "0+")
        adding_replicas: tuple[int, ...] = array("int32", "0+")
        removing_replicas: tuple[int, ...] = array("int32", "0+")
