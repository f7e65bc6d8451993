"""A decision of the controller: records to append, and the answer that is sent once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from kraftlib.codec.declarations import Message
from kraftlib.errors import KraftError
from kraftlib.wire.apis import ErrorCode

RECORDS_MAX: Final = 10_000
"""The largest number of records of one operation, and of one batch (Kafka's MAX_RECORDS_PER_USER_OP)."""


MESSAGE_MAX: Final = 1_000


class RefusedError(KraftError):
    """A request, or a part of it, is refused with an error code of Kafka; no record is written for it.

    The message may quote names and values of the request, which are as long as a string may be; it is cut, so that it
    fits into an answer.
    """

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(message or ErrorCode(code).name)
        self.code: Final = code
        self.message: Final = message and message[:MESSAGE_MAX]


@attrs.frozen
class Decision:
    """Records, in order, and the answer. Without records the answer tells what was committed before."""

    records: Sequence[Message] = ()
    answer: Message | None = None
    is_atomic: bool = True
    """Whether the records must be in one batch; others are split into batches of `RECORDS_MAX`."""
