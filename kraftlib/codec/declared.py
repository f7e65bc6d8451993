"""Declared messages to bytes and back.

`kraftlib.codec.declarations` explains how messages are declared; its names are all available from here. The codec
of a version of a message is built on first use and kept.
"""

from __future__ import annotations

from typing import TypeVar

from kraftlib.codec.declarations import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)
from kraftlib.codec.field_types import FieldCodec
from kraftlib.codec.generated import generated
from kraftlib.codec.reader import Buffer, Reader
from kraftlib.codec.struct_codec import field_codec, struct_codec
from kraftlib.errors import LocalProtocolError, RemoteProtocolError

__all__ = [
    "read",
    "write",
    "write_into",
    # the language
    "message",
    "Message",
    "Struct",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "float64",
    "boolean",
    "uuid",
    "string",
    "binary",
    "records",
    "array",
    "struct",
]

M = TypeVar("M", bound=Message)

_codecs: dict[tuple[type[Message], int], FieldCodec] = {}


def read(cls: type[M], source: Reader | Buffer, version: int, *, expect_end: bool = False) -> M:
    """Read a message in one version.

    Bytes that follow it are left alone, as in Kafka, or refused with `expect_end`.

    Raises: RemoteProtocolError, if the version does not exist or the bytes do not follow it; says which field, where.
    """
    codec = _codecs.get((cls, version)) or _build(cls, version, RemoteProtocolError)
    reader = source if isinstance(source, Reader) else Reader(source)
    value: M = codec.read(reader)
    if expect_end:
        reader.expect_end()
    return value


def write(value: Message, version: int) -> bytes:
    """Return the bytes of a message in one version.

    A field that the version lacks is dropped if the schema calls it ignorable, or if it has its default.

    Raises: LocalProtocolError, if the version does not exist or cannot hold the message. It says which field and value.
    """
    out = bytearray()
    write_into(out, value, version)
    return bytes(out)


def write_into(out: bytearray, value: Message, version: int) -> None:
    """Append the bytes of a message; as `write`. After an error, `out` may hold a part of it."""
    cls = type(value)
    codec = _codecs.get((cls, version)) or _build(cls, version, LocalProtocolError)
    codec.write(value, out)


def _build(cls: type[Message], version: int, error: type[LocalProtocolError | RemoteProtocolError]) -> FieldCodec:
    if version not in cls.valid_versions:
        raise error(f"{cls.__name__} has no version {version}, only {cls.valid_versions}")
    codec = struct_codec(cls, cls, version)
    if cls.is_frequent:
        codec = generated(
            cls, version, codec, lambda declaration: field_codec(declaration, cls, version, flexible=True)
        )
    _codecs[cls, version] = codec
    return codec
