"""Vote (52): "may I lead the next epoch?", or, as a pre-vote, "would I win?" (KIP-595, KIP-853, KIP-996).

Version 0 is older than directory ids, 1 is Kafka 3.9, 2 is Kafka 4.0 and brought the pre-vote. All are flexible.
"""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int16, int32, int64, message, string, uint16, uuid
from kraftlib.wire.bounds import PARTITIONS, TOPICS, VOTERS


@message(kind="request", api_key=52, versions="0-2", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class VoteRequest(Message):
    """Asks a voter for its vote."""

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    """The voter that gets the request."""

    topics: tuple[TopicData, ...] = array("TopicData", "0+", most=TOPICS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """Always the one topic."""

        topic_name: str = string("0+")
        partitions: tuple[VoteRequest.PartitionData, ...] = array("PartitionData", "0+", most=PARTITIONS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """Always the one partition: the candidate, and how far its log reaches."""

        partition_index: int = int32("0+")
        replica_epoch: int = int32("0+")
        """A pre-vote carries the present epoch, a binding vote the one it would lead."""

        replica_id: int = int32("0+")
        replica_directory_id: UUID = uuid("1+", ignorable=True)
        voter_directory_id: UUID = uuid("1+", ignorable=True)
        last_offset_epoch: int = int32("0+")
        """Epoch of the last record of the candidate, 0 if it has none."""

        last_offset: int = int64("0+")
        """Its log end offset, exclusive in spite of the name."""

        pre_vote: bool = boolean("2+")


@message(kind="response", api_key=52, versions="0-2", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class VoteResponse(Message):
    """Grants a vote or does not; either way it tells the epoch and leader that the voter knows."""

    error_code: int = int16("0+")
    topics: tuple[TopicData, ...] = array("TopicData", "0+", most=TOPICS)
    node_endpoints: tuple[NodeEndpoint, ...] = array("NodeEndpoint", "1+", tag=0, most=VOTERS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class TopicData(Struct):
        """The topic of the request."""

        topic_name: str = string("0+")
        partitions: tuple[VoteResponse.PartitionData, ...] = array("PartitionData", "0+", most=PARTITIONS)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class PartitionData(Struct):
        """The answer. A vote that is not granted is no error."""

        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")
        vote_granted: bool = boolean("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class NodeEndpoint(Struct):
        """Where the leader is reached, on the listener by which the request came."""

        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")
