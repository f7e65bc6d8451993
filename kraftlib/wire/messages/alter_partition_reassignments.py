"""AlterPartitionReassignments (45): replicas of partitions move to other brokers (KIP-455, KIP-860)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int16, int32, message, string


@message(kind="request", api_key=45, versions="0-1", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AlterPartitionReassignmentsRequest(Message):
    """The replicas that partitions are to have."""

    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: tuple[ReassignableTopic, ...] = array("ReassignableTopic", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ReassignableTopic(Struct):
        """Partitions of one topic."""

        name: str = string("0+")
        partitions: tuple[AlterPartitionReassignmentsRequest.ReassignablePartition, ...] = array(
            "ReassignablePartition", "0+"
        )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ReassignablePartition(Struct):
        """Its new replicas, the preferred leader first; null takes a move back."""

        partition_index: int = int32("0+")
        replicas: tuple[int, ...] | None = array("int32", "0+", nullable="0+", default=None)


@message(kind="response", api_key=45, versions="0-1", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AlterPartitionReassignmentsResponse(Message):
    """The result for each partition."""

    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: tuple[ReassignableTopicResponse, ...] = array("ReassignableTopicResponse", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ReassignableTopicResponse(Struct):
        """One topic."""

        name: str = string("0+")
        partitions: tuple[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse, ...] = array(
            "ReassignablePartitionResponse", "0+"
        )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ReassignablePartitionResponse(Struct):
        """One partition."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
