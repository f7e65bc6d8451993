"""UnregisterBroker (64): an operator removes a broker that will not come back (KIP-631)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, int16, int32, message, string


@message(kind="request", api_key=64, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UnregisterBrokerRequest(Message):
    """Names the broker."""

    broker_id: int = int32("0+")


@message(kind="response", api_key=64, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UnregisterBrokerResponse(Message):
    """Removed or not."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
