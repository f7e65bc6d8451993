"""DeleteTopics (20): topics are removed, by name or by id (KIP-516)."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, Struct, array, int16, int32, message, string, uuid


@message(kind="request", api_key=20, versions="0-6", flexible="4+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DeleteTopicsRequest(Message):
    """Topics that are to go."""

    topics: tuple[DeleteTopicState, ...] = array("DeleteTopicState", "6+")
    topic_names: tuple[str, ...] = array("string", "0-5", ignorable=True)
    timeout_ms: int = int32("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DeleteTopicState(Struct):
        """One topic, by name or by id, from version 6 on."""

        name: str | None = string("6+", nullable="6+", default=None)
        topic_id: UUID = uuid("6+")


@message(kind="response", api_key=20, versions="0-6", flexible="4+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class DeleteTopicsResponse(Message):
    """The result for each topic."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = array("DeletableTopicResult", "0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class DeletableTopicResult(Struct):
        """One topic."""

        name: str | None = string("0+", nullable="6+")
        topic_id: UUID = uuid("6+", ignorable=True)
        error_code: int = int16("0+")
        error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)
