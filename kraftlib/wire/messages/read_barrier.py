"""ReadBarrier (30000): asks the leader for a read index. Private, not Kafka's.

A replica that has applied everything below the offset of the response has applied everything that was committed when it
sent the request. Only kraftlib replicas use this API; see `kraftlib.consensus.extensions.read_index`.
"""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, int16, int32, int64, message, string


@message(kind="request", api_key=30_000, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReadBarrierRequest(Message):
    """Asks the leader to confirm its leadership, and for its high watermark."""

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    replica_id: int = int32("0+", default=-1)
    timeout_ms: int = int32("0+")


@message(kind="response", api_key=30_000, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReadBarrierResponse(Message):
    """The offset, or why there is none."""

    error_code: int = int16("0+")
    leader_epoch: int = int32("0+", default=-1)
    offset: int = int64("0+", default=-1)
