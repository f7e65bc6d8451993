"""Query (30005): a client asks the applied state. Private; docs/reference/client-protocol.md."""

from __future__ import annotations

from kraftlib.codec.declared import Message, binary, int8, int16, int32, int64, message, string
from kraftlib.frozen import frozen
from kraftlib.wire.bounds import QUESTION_BYTES


@message(kind="request", api_key=30_005, versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class QueryRequest(Message):
    """A question to the replicated machine."""

    timeout_ms: int = int32("0+")
    consistency: int = int8("0+")
    """0 linearizable, 1 the record at `offset` at least, 2 stale."""
    offset: int = int64("0+", default=-1)
    question: bytes = binary("0+", most=QUESTION_BYTES)


@message(kind="response", api_key=30_005, versions="0", flexible="0+", frequent=True)
@frozen(kw_only=True, eq=False, repr=False)
class QueryResponse(Message):
    """The answer, and the offset of the last record that is in it."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    offset: int = int64("0+", default=-1)
    answer: bytes = binary("0+")
