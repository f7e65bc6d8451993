"""The bytes of a `PartitionRecord` in its usual shape, read and written in one go.

A cluster has as many of these as partitions, and nearly all look the same: nothing is moving, and nothing stands in
tagged fields. Versions 1 and 2 are then, frame included:

    3  1, 3 and the version       4r  replicas              2  1 and 1: nothing is added or removed
    4  partition id                1  count of ISR + 1     12  leader, leader epoch, partition epoch
   16  topic id                   4i  ISR                   1  count of directories + 1, then 16 for each
    1  count of replicas + 1                                1  0: no tagged field

Any other record is left to the declared codec. Equal replicas, in-sync replicas and directories are one object in
memory.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final
from uuid import UUID

from kraftlib.codec.declarations import Message
from kraftlib.metadata.topic_records import PartitionRecord

LAST_VERSION: Final = 2
_KEY: Final = struct.Struct(">i16s")
_EPOCHS: Final = struct.Struct(">iii")
_KEY_START: Final = 3
_REPLICAS_START: Final = 24
_NOTHING: Final = b"\x01\x01"
_COUNT_MAX: Final = 126
"""Of elements whose count takes one byte."""
_KEPT: Final = 8_192


@lru_cache(_KEPT)
def _id(data: bytes) -> UUID:
    return UUID(bytes=data)


@lru_cache(_KEPT)
def _ids(data: bytes) -> tuple[UUID, ...]:
    return tuple(_id(data[start : start + 16]) for start in range(0, len(data), 16))


@lru_cache(_KEPT)
def _numbers(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // 4}i", data)


@lru_cache
def _packer(replicas: int, isr: int, directories: int) -> struct.Struct:
    return struct.Struct(f">BBBi16sB{replicas}iB{isr}iBBiiiB{16 * directories}sB")


def read_usual(data: bytes) -> PartitionRecord | None:
    """Return the record in a frame of version 1 or 2; None, if it does not have the usual shape."""
    size = len(data)
    if size <= _REPLICAS_START or not 1 <= data[_REPLICAS_START - 1] <= _COUNT_MAX + 1:
        return None
    isr_start = _REPLICAS_START + 4 * data[_REPLICAS_START - 1] - 3
    if size <= isr_start or not 1 <= data[isr_start - 1] <= _COUNT_MAX + 1:
        return None
    isr_end = isr_start + 4 * data[isr_start - 1] - 4
    ids_start = isr_end + 15
    if size <= ids_start or data[isr_end : isr_end + 2] != _NOTHING or not 1 <= data[ids_start - 1] <= _COUNT_MAX + 1:
        return None
    ids_end = ids_start + 16 * data[ids_start - 1] - 16
    if size != ids_end + 1 or data[ids_end] != 0:
        return None
    number, topic_id = _KEY.unpack_from(data, _KEY_START)
    leader, leader_epoch, partition_epoch = _EPOCHS.unpack_from(data, isr_end + 2)
    return PartitionRecord(
        partition_id=number,
        topic_id=_id(topic_id),
        replicas=_numbers(data[_REPLICAS_START : isr_start - 1]),
        isr=_numbers(data[isr_start:isr_end]),
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        directories=_ids(data[ids_start:ids_end]),
    )


def write_usual(record: Message, version: int) -> bytes | None:
    """Return the frame of a record in version 1 or 2; None, if it does not have the usual shape."""
    if type(record) is not PartitionRecord or version > LAST_VERSION:
        return None
    replicas, isr, ids = record.replicas, record.isr, record.directories
    if (
        record.adding_replicas
        or record.removing_replicas
        or record.leader_recovery_state
        or record.eligible_leader_replicas is not None
        or record.last_known_elr is not None
        or record.unknown_tagged_fields
        or max(len(replicas), len(isr), len(ids)) > _COUNT_MAX
    ):
        return None
    counts = len(replicas), len(isr), len(ids)
    try:
        return _packer(*counts).pack(
            *(1, record.api_key, version, record.partition_id, record.topic_id.bytes),
            *(counts[0] + 1, *replicas, counts[1] + 1, *isr, *_NOTHING),
            *(record.leader, record.leader_epoch, record.partition_epoch),
            *(counts[2] + 1, b"".join([one.bytes for one in ids]), 0),
        )
    except (struct.error, AttributeError):
        return None  # the declared codec says which field cannot be written
