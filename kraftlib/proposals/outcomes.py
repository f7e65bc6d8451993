"""Outcomes of an append as bytes: errors as codes with a text, results with a byte that says how to read them.

result = int8 form | rest
form 0   None
form 1   bytes, as they are
form 2   the result serde, JSON by default
form 3   a text: the value was applied, and its result cannot be sent
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kraftlib.errors import (
    BacklogFullError,
    ClosedError,
    ConfigError,
    DiskFullError,
    KraftError,
    NotLeaderError,
    OutcomeUnknownError,
    RecordTooLargeError,
    RefusedError,
    RemoteProtocolError,
    UnsupportedError,
)
from kraftlib.records.serde import RecordSerde
from kraftlib.types import LeaderAndEpoch
from kraftlib.wire.apis import ErrorCode, error_name

TEXT_MAX: Final = 1_000
"""The longest error text that is sent, in characters."""

RESULTS_MAX_BYTES: Final = 8 * 1024 * 1024
"""The results of one append; the ones beyond are not sent. Two of the largest of `kraftlib.coordination` fit."""

_CODES: Final[Sequence[tuple[type[BaseException], ErrorCode]]] = (
    (NotLeaderError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (DiskFullError, ErrorCode.KAFKA_STORAGE_ERROR),
    (BacklogFullError, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
    (RecordTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (OutcomeUnknownError, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    (UnsupportedError, ErrorCode.UNSUPPORTED_VERSION),
    (ClosedError, ErrorCode.BROKER_NOT_AVAILABLE),
    (ConfigError, ErrorCode.INVALID_REQUEST),
    (TimeoutError, ErrorCode.REQUEST_TIMED_OUT),
)
"""The code of each error. The first class that fits counts."""

ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INCONSISTENT_CLUSTER_ID}
)
"""Nothing was appended, and another replica may take the values."""


def code_of(error: BaseException) -> ErrorCode:
    """Return the code of an error; that of an unknown one leaves the outcome open."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.UNKNOWN_SERVER_ERROR)


def text_of(error: BaseException) -> str:
    """Return the text of an error, cut to the length that is sent."""
    return (str(error) or type(error).__name__)[:TEXT_MAX]


def error_of(code: int, text: str | None, *, base_offset: int = -1, epoch: int = -1) -> KraftError | TimeoutError:
    """Return the error that a code and text of another replica stand for."""
    words = (text or error_name(code))[:TEXT_MAX]
    match code:
        case ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return NotLeaderError(words, leader=LeaderAndEpoch(None, epoch))
        case ErrorCode.KAFKA_STORAGE_ERROR:
            return DiskFullError(words)
        case ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            return BacklogFullError(words)
        case ErrorCode.MESSAGE_TOO_LARGE:
            return RecordTooLargeError(words)
        case ErrorCode.UNSUPPORTED_VERSION:
            return UnsupportedError(words)
        case ErrorCode.BROKER_NOT_AVAILABLE:
            return ClosedError(words)
        case ErrorCode.REQUEST_TIMED_OUT:
            return TimeoutError(words)
        case ErrorCode.INVALID_REQUEST:
            return ConfigError(words)
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return RefusedError(f"the other replica does not allow it, see its [access]: {words}")
    return OutcomeUnknownError(words, base_offset=base_offset, epoch=epoch)


def encode_results(results: Sequence[Any], serde: RecordSerde[Any]) -> tuple[bytes, ...]:
    """Return the results as bytes."""
    left, encoded = RESULTS_MAX_BYTES, []
    for result in results:
        data = _encoded(result, serde)
        if len(data) > left:
            data = _cannot(f"{len(data)} bytes exceed the {RESULTS_MAX_BYTES} for the results of one append")
        left -= len(data)
        encoded.append(data)
    return tuple(encoded)


def is_result(data: bytes) -> bool:
    """Whether these bytes are a result, and no text in its place."""
    return data[:1] != b"\x03"


def _encoded(result: Any, serde: RecordSerde[Any]) -> bytes:
    if result is None:
        return b"\x00"
    if isinstance(result, bytes | bytearray | memoryview):
        return b"\x01" + bytes(result)
    try:
        return b"\x02" + serde.to_bytes(result)
    except Exception as error:  # noqa: BLE001 - the serde is the application's; the value was applied all the same
        return _cannot(text_of(error))


def _cannot(reason: str) -> bytes:
    return b"\x03" + reason.encode(errors="replace")


def decode_results(encoded: Sequence[bytes], serde: RecordSerde[Any]) -> tuple[Any, ...]:
    """Return the results. Raises: RemoteProtocolError, if they cannot be read, or could not be sent."""
    return tuple([_decoded(data, serde) for data in encoded])


def _decoded(data: bytes, serde: RecordSerde[Any]) -> Any:
    match data[:1]:
        case b"\x00":
            return None
        case b"\x01":
            return data[1:]
        case b"\x02":
            try:
                return serde.from_bytes(data[1:])
            except Exception as error:  # noqa: BLE001 - the serde is the application's; the value was applied all the same
                raise RemoteProtocolError(f"the result serde cannot read it: {text_of(error)}") from None
        case b"\x03":
            raise RemoteProtocolError(data[1:].decode(errors="replace")[:TEXT_MAX])
    raise RemoteProtocolError(f"a result of form {data[:1]!r} is none that we know")
