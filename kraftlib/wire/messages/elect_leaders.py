"""ElectLeaders (43): leaders are elected on request, preferred or unclean ones (KIP-183, KIP-460)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, int8, int16, int32, message, string


@message(kind="request", api_key=43, versions="0-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ElectLeadersRequest(Message):
    """The kind of election, and the partitions: null stands for all."""

    election_type: int = int8("1+")
    topic_partitions: tuple[TopicPartitions, ...] | None = array("TopicPartitions", "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60000)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicPartitions(Struct):
        """Partitions of one topic."""

        topic: str = string("0+")
        partitions: tuple[int, ...] = array("int32", "0+")


@message(kind="response", api_key=43, versions="0-2", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ElectLeadersResponse(Message):
    """The result for each partition."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: tuple[ReplicaElectionResult, ...] = array("ReplicaElectionResult", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class ReplicaElectionResult(Struct):
        """One topic."""

        topic: str = string("0+")
        partition_result: tuple[ElectLeadersResponse.PartitionResult, ...] = array("PartitionResult", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionResult(Struct):
        """One partition."""

        partition_id: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
