"""Converts an application's values into the bytes of a record and back.

A serde is any object with `to_bytes` and `from_bytes`; the three here need nothing but the standard library. Kafka's
own "API message and version" frame is in `kraftlib.metadata`.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, Protocol, TypeVar, runtime_checkable

from kraftlib.errors import ConfigError, ProtocolError

T = TypeVar("T")


@runtime_checkable
class RecordSerde(Protocol[T]):
    """Values of one type, as bytes. Both directions are pure: every replica must read the same."""

    def to_bytes(self, value: T) -> bytes:
        """Return the bytes of `value`, at least one. Raises: ConfigError, if it has none."""
        ...

    def from_bytes(self, data: bytes) -> T:
        """Return the value of `data`. Raises: ProtocolError, if `to_bytes` cannot have written that."""
        ...


class BytesSerde:
    """Bytes as they are."""

    def to_bytes(self, value: bytes) -> bytes:
        """Return a copy of the bytes in any buffer; of bytes itself."""
        if type(value) is bytes:
            return value
        if not isinstance(value, bytes | bytearray | memoryview):
            raise ConfigError(f"{value!r} is not bytes")
        return bytes(value)

    def from_bytes(self, data: bytes) -> bytes:
        """Return `data`."""
        return data


class TextSerde:
    """Text as UTF-8."""

    def to_bytes(self, value: str) -> bytes:
        """Return `value` as UTF-8. Raises: ConfigError for anything but text, and for half of a surrogate pair."""
        if not isinstance(value, str):
            raise ConfigError(f"{value!r} is not text")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"{value!r} has no UTF-8 form: {error.reason}") from error

    def from_bytes(self, data: bytes) -> str:
        """Return the text of `data`. Raises: ProtocolError, if it is not UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"{data[:40]!r} is not UTF-8: {error.reason}") from error


class JsonSerde:
    """JSON, compact and with sorted keys, so that equal values have equal bytes."""

    def to_bytes(self, value: Any) -> bytes:
        """Return `value` as JSON. Raises: ConfigError for a value that JSON cannot hold: other types, NaN,
        infinities."""
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
            return text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{type(value).__name__} has no JSON form: {error}") from error

    def from_bytes(self, data: bytes) -> Any:
        """Return the value of `data`. Raises: ProtocolError, if it is not JSON."""
        try:
            return json.loads(data.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"{data[:40]!r} is not JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def as_bytes(value: object) -> bytes:
    """Return what a serde has made of a value as plain bytes. Raises: TypeError, if it is something else."""
    if not isinstance(value, bytes):
        raise TypeError(f"a value is bytes, not {type(value).__name__}: a RecordSerde makes bytes of it")
    return bytes(value)
