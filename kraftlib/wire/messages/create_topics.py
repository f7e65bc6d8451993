"""CreateTopics (19): a broker sends it by itself for the topic of its first consumer group."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, boolean, int8, int16, int32, message, string, uuid


@message(kind="request", api_key=19, versions="0-7", flexible="5+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class CreateTopicsRequest(Message):
    """Topics that are wanted."""

    topics: tuple[CreatableTopic, ...] = array("CreatableTopic", "0+")
    timeout_ms: int = int32("0+", default=60000, name="timeoutMs")
    validate_only: bool = boolean("1+", name="validateOnly")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class CreatableTopic(Struct):
        """One topic, with its partitions counted or placed."""

        name: str = string("0+")
        num_partitions: int = int32("0+")
        replication_factor: int = int16("0+")
        assignments: tuple[CreateTopicsRequest.CreatableReplicaAssignment, ...] = array(
            "CreatableReplicaAssignment", "0+"
        )
        configs: tuple[CreateTopicsRequest.CreatableTopicConfig, ...] = array("CreatableTopicConfig", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class CreatableReplicaAssignment(Struct):
        """The brokers of one partition."""

        partition_index: int = int32("0+")
        broker_ids: tuple[int, ...] = array("int32", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class CreatableTopicConfig(Struct):
        """A setting of the topic."""

        name: str = string("0+")
        value: str | None = string("0+", nullable="0+")


@message(kind="response", api_key=19, versions="0-7", flexible="5+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class CreateTopicsResponse(Message):
    """The result for each topic; there is no error code for the request as a whole."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[CreatableTopicResult, ...] = array("CreatableTopicResult", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class CreatableTopicResult(Struct):
        """One topic: its id, or the error."""

        name: str = string("0+")
        topic_id: UUID = uuid("7+", ignorable=True)
        error_code: int = int16("0+")
        error_message: str | None = string("1+", nullable="0+", ignorable=True)
        topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
        num_partitions: int = int32("5+", default=-1, ignorable=True)
        replication_factor: int = int16("5+", default=-1, ignorable=True)
        configs: tuple[CreateTopicsResponse.CreatableTopicConfigs, ...] | None = array(
            "CreatableTopicConfigs", "5+", nullable="5+", ignorable=True
        )

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class CreatableTopicConfigs(Struct):
        """A setting that is in force."""

        name: str = string("5+")
        value: str | None = string("5+", nullable="5+")
        read_only: bool = boolean("5+")
        config_source: int = int8("5+", default=-1, ignorable=True)
        is_sensitive: bool = boolean("5+")
