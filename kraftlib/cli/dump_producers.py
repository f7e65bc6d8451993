"""Producer state, `<offset>.snapshot`: which producers wrote to a partition lately. In KRaft it is always empty.

int16   version 1
uint32  CRC-32C of the rest
int32   number of entries, 46 bytes each
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kraftlib.cli.dump_index import read_named
from kraftlib.cli.dump_output import Output
from kraftlib.records.checksum import crc32c

VERSION: Final = 1
_HEADER: Final = struct.Struct(">hIi")
_CRC_END: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_FIELDS: Final = (
    "producer_id",
    "producer_epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "last_timestamp",
    "coordinator_epoch",
    "current_txn_first_offset",
)


def dump_producer_snapshot(path: Path, output: Output) -> Iterator[str]:
    """Show the producers, if there are any, and yield what is wrong with the file."""
    data = read_named(path)
    if len(data) < _HEADER.size:
        yield f"{path} has {len(data)} bytes, fewer than the {_HEADER.size} of an empty producer snapshot"
        return
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        yield f"{path} has version {version}, only {VERSION} is known"
        return
    if crc32c(data[_CRC_END:]) != crc:
        yield f"{path} does not fit its checksum"
    if len(data) != _HEADER.size + count * _ENTRY.size:
        yield f"{path} has {len(data)} bytes, which do not fit {count} entries"
        return
    for fields in _ENTRY.iter_unpack(data[_HEADER.size :]):
        output.entry(**dict(zip(_FIELDS, fields, strict=True)))
