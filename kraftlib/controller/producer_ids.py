"""AllocateProducerIds: blocks of producer ids, none of them given out twice (KIP-730)."""

from __future__ import annotations

from typing import Final

from kraftlib.controller.context import Context
from kraftlib.controller.results import Decision, RefusedError
from kraftlib.metadata.config_records import ProducerIdsRecord
from kraftlib.wire.apis import ErrorCode
from kraftlib.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

BLOCK: Final = 1_000
LAST: Final = (1 << 63) - 1


def allocate_producer_ids(context: Context, request: AllocateProducerIdsRequest, version: int) -> Decision:
    """Give the next block to a broker."""
    try:
        context.state.cluster.current(request.broker_id, request.broker_epoch)
    except RefusedError as refused:
        return Decision(answer=AllocateProducerIdsResponse(error_code=refused.code))
    start = context.state.keyed.next_producer_id
    if start > LAST - BLOCK:
        return Decision(answer=AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=start + BLOCK
    )
    return Decision([record], AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK))
