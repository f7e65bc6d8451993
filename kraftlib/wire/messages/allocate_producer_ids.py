"""AllocateProducerIds (67): a broker asks for a block of producer ids (KIP-730)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, int16, int32, int64, message


@message(kind="request", api_key=67, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AllocateProducerIdsRequest(Message):
    """Names the broker."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


@message(kind="response", api_key=67, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class AllocateProducerIdsResponse(Message):
    """The block."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")
