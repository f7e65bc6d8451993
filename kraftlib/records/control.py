"""Control records: KRaft's own records, which stand between the application's records.

    key    int16 version (0), int16 type     says what the value is
    value  a message of `kraftlib.records.control_messages`, which begins with its own version

A batch holds control records or data, never both. An unknown type is an error, as in Kafka: a replica that skipped one
might miss a change of its voters. Dumps, which must show what they do not know, read the key with `control_key`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kraftlib.codec.declared import read, write
from kraftlib.errors import ConfigError, RemoteProtocolError
from kraftlib.records.batch import CONTROL, Batch, assemble, check_kraft_header
from kraftlib.records.control_messages import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftlib.records.record import Record, encode_block

ControlRecord = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord

KRAFT_VERSION_MAX: Final = 1
"""The newest kraft.version that this release supports."""

_KEY: Final = struct.Struct(">hh")
_KEY_VERSION: Final = 0
_VERSION: Final = struct.Struct(">h")


class ControlType(enum.IntEnum):
    """The second number in the key of a control record."""

    ABORT = 0
    """End of a transaction, as is COMMIT; never in KRaft."""
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_MESSAGES: Final[Mapping[int, type[ControlRecord]]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_TYPES: Final[Mapping[type[ControlRecord], int]] = {message: int(number) for number, message in _MESSAGES.items()}


class ControlKey(NamedTuple):
    """The key of a control record; `type` may be a number that ControlType does not know."""

    version: int
    type: int


def encode_control_batch(
    records: Sequence[ControlRecord], *, timestamp_ms: int, base_offset: int = 0, epoch: int = 0
) -> Batch:
    """Return `records` as one control batch. Raises: ConfigError, if there are none."""
    if not records:
        raise ConfigError("a control batch holds at least one record")
    block = encode_control_block(records)
    return assemble((block,), len(records), CONTROL, timestamp_ms, timestamp_ms, base_offset, epoch)


def encode_control_block(records: Sequence[ControlRecord]) -> bytes:
    """Return the block of records of a control batch."""
    return encode_block(
        [
            Record(delta, 0, _KEY.pack(_KEY_VERSION, _TYPES[type(record)]), write(record, record.version))
            for delta, record in enumerate(records)
        ],
        base_offset=0,
        base_timestamp=0,
    )


def decode_control_batch(batch: Batch) -> Iterator[tuple[int, ControlRecord]]:
    """Yield offset and content of each record of a control batch.

    Raises: CorruptBatchError for a batch that KRaft's reader rejects; RemoteProtocolError as `decode_control`.
    """
    check_kraft_header(batch)
    for record in batch.records():
        yield record.offset, decode_control(record)


def decode_control(record: Record) -> ControlRecord:
    """Return what a record of a control batch says.

    Raises: RemoteProtocolError for a type or version that we do not know, and for bytes that do not follow it.
    """
    key = control_key(record)
    message = _MESSAGES.get(key.type)
    if message is None:
        raise RemoteProtocolError(f"control record at offset {record.offset} is of unknown type {key.type}")
    value = record.value or b""
    if len(value) < _VERSION.size:
        raise RemoteProtocolError(f"control record at offset {record.offset} has a value of {len(value)} bytes")
    # Kafka reads layout 0 whatever the version says, and has never written another; a newer one would say so here.
    return read(message, value, _VERSION.unpack_from(value)[0], expect_end=True)


def check_voters(record: VotersRecord) -> None:
    """Check that a Voters record can be in force. Raises: RemoteProtocolError, if it names no voter, or an id twice."""
    ids = [voter.voter_id for voter in record.voters]
    if len(set(ids)) != len(ids) or not ids:
        raise RemoteProtocolError(f"a Voters record names voters {ids}: there must be a voter, and each id once only")


def check_kraft_version(record: KRaftVersionRecord) -> None:
    """Check that a kraft.version can be in force. Raises: RemoteProtocolError, if this release does not know it."""
    if not 0 <= record.kraft_version <= KRAFT_VERSION_MAX:
        raise RemoteProtocolError(f"kraft.version {record.kraft_version}: 0 to {KRAFT_VERSION_MAX} are supported")


def control_key(record: Record) -> ControlKey:
    """Return version and type of a control record, known or not.

    Raises: RemoteProtocolError, if it has no such key.
    """
    key = record.key
    if key is None or len(key) < _KEY.size:
        raise RemoteProtocolError(f"control record at offset {record.offset} has no key of {_KEY.size} bytes: {key!r}")
    return ControlKey(*_KEY.unpack_from(key))
