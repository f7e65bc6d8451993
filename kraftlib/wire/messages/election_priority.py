"""ElectionPriority (30002): a voter tells its leader how much it is wanted as leader. Private, not Kafka's."""

from __future__ import annotations

from uuid import UUID

import attrs

from kraftlib.codec.declared import Message, int8, int16, int32, message, string, uuid


@message(kind="request", api_key=30_002, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ElectionPriorityRequest(Message):
    """The configured priority of a voter."""

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    leader_epoch: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")
    priority: int = int8("0+")


@message(kind="response", api_key=30_002, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ElectionPriorityResponse(Message):
    """Noted, or why not."""

    error_code: int = int16("0+")
