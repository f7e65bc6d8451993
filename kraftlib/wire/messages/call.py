"""Call (30004): a client has a command committed and applied. Private; docs/reference/client-protocol.md."""

from __future__ import annotations

from kraftlib.codec.declared import Message, binary, int16, int32, int64, message, string
from kraftlib.frozen import frozen


@message(kind="request", api_key=30_004, versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class CallRequest(Message):
    """A command of the replicated machine, which bears the identity by which a repetition is recognised."""

    timeout_ms: int = int32("0+")
    """The replica answers within this time."""
    command: bytes = binary("0+")


@message(kind="response", api_key=30_004, versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class CallResponse(Message):
    """The machine's result and the place of its record, or the reason why there is none."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    offset: int = int64("0+", default=-1)
    epoch: int = int32("0+", default=-1)
    result: bytes = binary("0+")
