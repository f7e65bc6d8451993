"""CreatePartitions (37): a topic gets more partitions (KIP-195)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int16, int32, message, string


@message(kind="request", api_key=37, versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class CreatePartitionsRequest(Message):
    """Topics, and how many partitions each is to have."""

    topics: tuple[CreatePartitionsTopic, ...] = array("CreatePartitionsTopic", "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class CreatePartitionsTopic(Struct):
        """One topic: its new number of partitions, and where the new ones are placed."""

        name: str = string("0+")
        count: int = int32("0+")
        assignments: tuple[CreatePartitionsRequest.CreatePartitionsAssignment, ...] | None = array(
            "CreatePartitionsAssignment", "0+", nullable="0+"
        )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class CreatePartitionsAssignment(Struct):
        """The brokers of one new partition."""

        broker_ids: tuple[int, ...] = array("int32", "0+")


@message(kind="response", api_key=37, versions="0-3", flexible="2+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class CreatePartitionsResponse(Message):
    """The result for each topic."""

    throttle_time_ms: int = int32("0+")
    results: tuple[CreatePartitionsTopicResult, ...] = array("CreatePartitionsTopicResult", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class CreatePartitionsTopicResult(Struct):
        """One topic."""

        name: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
