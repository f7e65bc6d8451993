"""UnregisterController (94): an operator forgets a controller that will not come back (Kafka 4.4)."""

from __future__ import annotations

import attrs

from kraftlib.codec.declared import Message, int16, int32, message, string


@message(kind="request", api_key=94, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UnregisterControllerRequest(Message):
    """Names the controller."""

    controller_id: int = int32("0+")


@message(kind="response", api_key=94, versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class UnregisterControllerResponse(Message):
    """Removed or not."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
