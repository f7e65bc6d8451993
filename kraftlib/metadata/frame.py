"""The frame of a metadata record, "API message and version": the content of the value of a data record.

    uvarint frame version     1
    uvarint api key           the type of the record
    uvarint record version
            message           in the flexible encoding of that version, to the last byte

An unknown type or version is an error, never skipped: a state machine that leaves out a record is no longer the same.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Final

from kraftlib.codec import declared
from kraftlib.codec.declarations import Message
from kraftlib.codec.reader import Buffer, Reader
from kraftlib.codec.varint import write_uvarint
from kraftlib.errors import LocalProtocolError, RemoteProtocolError
from kraftlib.metadata.table import RecordType, record_class, record_type_name

FRAME_VERSION: Final = 1
_PARTITION_HEADS: Final = frozenset(bytes((FRAME_VERSION, RecordType.PARTITION_RECORD, one)) for one in (1, 2))


class UnknownRecordError(RemoteProtocolError):
    """A record of a type or version that we do not know; most likely a newer Kafka wrote it."""

    def __init__(self, message: str, *, api_key: int, version: int) -> None:
        super().__init__(message)
        self.api_key = api_key
        self.version = version


@cache
def _partitions() -> ModuleType:
    """Return the quick codec of partitions. It is loaded with the first of them."""
    from kraftlib.metadata import partition_bytes

    return partition_bytes


def decode_record(value: Buffer) -> tuple[Message, int]:
    """Read the value of a data record; return the metadata record and its version.

    Raises: UnknownRecordError, if we do not know its type or version; RemoteProtocolError, if it is no such frame.
    """
    if type(value) is bytes and value[:3] in _PARTITION_HEADS:
        found = _partitions().read_usual(value)
        if found is not None:
            return found, value[2]
    reader = Reader(value)
    frame_version = reader.uvarint()
    if frame_version != FRAME_VERSION:
        raise RemoteProtocolError(f"metadata record of frame version {frame_version}, known is {FRAME_VERSION}")
    api_key, version = reader.uvarint(), reader.uvarint()
    cls = record_class(api_key)
    if cls is None:
        raise UnknownRecordError(f"metadata record of unknown type {api_key}", api_key=api_key, version=version)
    if version not in cls.valid_versions:
        raise UnknownRecordError(
            f"{cls.__name__} of version {version}, known are {cls.valid_versions}", api_key=api_key, version=version
        )
    return declared.read(cls, reader, version, expect_end=True), version


def encode_record(record: Message, version: int) -> bytes:
    """Return the value of a data record that holds this metadata record.

    Raises: LocalProtocolError, if it is none, or if the version does not exist or cannot hold it.
    """
    if record_class(record.api_key) is not type(record):
        raise LocalProtocolError(f"{record_type_name(type(record))} is no metadata record")
    if record.api_key == RecordType.PARTITION_RECORD and version > 0:
        usual: bytes | None = _partitions().write_usual(record, version)
        if usual is not None:
            return usual
    out = bytearray()
    write_uvarint(out, FRAME_VERSION)
    write_uvarint(out, record.api_key)
    write_uvarint(out, max(version, 0))
    declared.write_into(out, record, version)
    return bytes(out)
