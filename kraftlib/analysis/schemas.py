"""The tables and their columns, as Arrow has them; Spark's types follow from these.

`records` is what a log or snapshot says; `batches` has one row a batch, a hundred times fewer: enough for audits,
volume and gaps; `files` is for planning and monitoring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa

from kraftlib.analysis.value_decoder import decoded_type
from kraftlib.errors import ConfigError

Schema = Any
"""A pyarrow schema."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_PLACE: Final = [
    pa.field("cluster", pa.string()),
    pa.field("replica", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
]
_SOURCE: Final = [
    pa.field("origin", pa.string()),
    pa.field("snapshot_end_offset", pa.int64()),
    pa.field("snapshot_epoch", pa.int32()),
]

RECORDS: Final = pa.schema(
    [
        *_PLACE,
        _SOURCE[0],
        pa.field("offset", pa.int64()),
        *_SOURCE[1:],
        pa.field("epoch", pa.int32()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("control", pa.bool_()),
        pa.field("control_type", pa.string()),
        pa.field("type", pa.int32()),
        pa.field("version", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("batch_base", pa.int64()),
        pa.field("crc_ok", pa.bool_()),
        pa.field("problem", pa.string()),
        pa.field("segment", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("record", pa.string()),
        pa.field("run_length", pa.int32()),
    ]
)
"""One row a record. `problem` is null, or says why the row stands for a batch that cannot be read."""

ASKED_FOR: Final = frozenset({"headers", "segment", "position", "record", "run_length"})
"""Columns of `records` that cost, or change the rows, and are there only where they are named."""

TOLD_BY_HEADERS: Final = frozenset(
    {
        *("cluster", "replica", "topic", "partition", "origin", "snapshot_end_offset", "snapshot_epoch"),
        *("offset", "epoch", "control", "batch_base", "crc_ok", "problem", "segment", "position"),
    }
)
"""Columns that a batch has for all of its records; consecutive offsets follow from the first of them."""

RUN_LENGTH: Final = "run_length"
"""If this column is named, a row stands for so many records of one batch, which have all other columns in common.

Their offsets are consecutive; `offset` is the first one. A row for damage has null. It goes with columns of
TOLD_BY_HEADERS.
"""

PACKED: Final = {
    "packed_bytes": pa.binary(),
    "packed_count": pa.int32(),
    "packed_step": pa.int32(),
    "packed_size": pa.int32(),
    "packed_time": TIMESTAMP,
    "packed_times": pa.list_(TIMESTAMP),
    "packed_types": pa.list_(pa.int32()),
    "packed_versions": pa.list_(pa.int32()),
    "packed_key_places": pa.list_(pa.int32()),
    "packed_key_sizes": pa.list_(pa.int32()),
    "packed_value_places": pa.list_(pa.int32()),
    "packed_value_sizes": pa.list_(pa.int32()),
}
"""If one of these columns is named, a row stands for many records: see `kraftlib.analysis.packs`.

They go with the columns of ONCE_A_PACK. They are how `kraft.read` receives records, and are in no list of columns.
"""

ONCE_A_PACK: Final = TOLD_BY_HEADERS | {"control_type"}
"""Columns that a pack has once; `offset` is that of its first record, and the others follow."""

BATCHES: Final = pa.schema(
    [
        *_PLACE,
        *_SOURCE,
        pa.field("segment", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("count", pa.int32()),
        pa.field("epoch", pa.int32()),
        pa.field("length", pa.int32()),
        pa.field("crc", pa.int64()),
        pa.field("attributes", pa.int32()),
        pa.field("codec", pa.string()),
        pa.field("base_timestamp", TIMESTAMP),
        pa.field("max_timestamp", TIMESTAMP),
        pa.field("control", pa.bool_()),
        pa.field("crc_ok", pa.bool_()),
        pa.field("chain_ok", pa.bool_()),
        pa.field("problem", pa.string()),
    ]
)
"""One row a batch. A row whose `length` is null stands for a range of bytes that holds no readable batch."""

FILES: Final = pa.schema(
    [
        *_PLACE,
        pa.field("path", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("epoch", pa.int32()),
        pa.field("size", pa.int64()),
        pa.field("batches", pa.int64()),
        pa.field("first_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("first_timestamp", TIMESTAMP),
        pa.field("last_timestamp", TIMESTAMP),
        pa.field("complete", pa.bool_()),
        pa.field("problem", pa.string()),
    ]
)
"""One row a file. `offset` is the base of a segment, the end of a snapshot; `complete` is whether its end is sound."""

_INTS: Final = pa.list_(pa.int32())
REPORTS: Final = {
    "topics": pa.schema([("name", pa.string()), ("id", pa.string()), ("partitions", pa.int32())]),
    "partitions": pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("leader", pa.int32()),
            ("leader_epoch", pa.int32()),
            ("partition_epoch", pa.int32()),
            ("replicas", _INTS),
            ("isr", _INTS),
            ("under_replicated", pa.bool_()),
        ]
    ),
    "brokers": pa.schema(
        [
            ("id", pa.int32()),
            ("epoch", pa.int64()),
            ("rack", pa.string()),
            ("fenced", pa.bool_()),
            ("in_controlled_shutdown", pa.bool_()),
            ("endpoints", pa.string()),
        ]
    ),
    "controllers": pa.schema([("id", pa.int32()), ("endpoints", pa.string())]),
    "configs": pa.schema([("resource", pa.string()), ("name", pa.string()), ("value", pa.string())]),
    "features": pa.schema([("name", pa.string()), ("level", pa.int32())]),
}
"""Views of the state of a Kafka cluster as of an offset; see `kraftlib.analysis.reports`."""

VIEWS: Final = {"records": RECORDS, "batches": BATCHES, "files": FILES, **REPORTS}


def stands_for_many(names: Iterable[str]) -> bool:
    """Whether a row with columns of these names stands for several records."""
    return any(name == RUN_LENGTH or name in PACKED for name in names)


def default_columns(view: str) -> list[str]:
    """Return the columns of a view that are there without being named."""
    return [name for name in VIEWS[view].names if view != "records" or name not in ASKED_FOR]


def schema_of(
    view: str, columns: Sequence[str] | None = None, *, decode: str | None = None, decoder: str | None = None
) -> Schema:
    """Return the schema of a view, narrowed to `columns` in their order.

    `decode`, or the name of a `decoder`, adds the column `record`. Raises: ConfigError for an unknown column.
    """
    names = default_columns(view) if columns is None else list(columns)
    has_record = decode is not None or decoder is not None
    if has_record and columns is None:
        names.append("record")
    if not has_record and view == "records" and "record" in names:
        raise ConfigError(
            "the column 'record' needs the option decode (json, or a type as TopicRecord), or valueDecoder"
        )
    if RUN_LENGTH in names and (others := sorted({*names} - TOLD_BY_HEADERS - {RUN_LENGTH})):
        raise ConfigError(f"the column 'run_length' counts records that are alike, so it cannot go with {others[0]!r}")
    if (packed := [name for name in names if name in PACKED]) and (
        others := sorted({*names} - ONCE_A_PACK - {*PACKED})
    ):
        raise ConfigError(f"a row with {packed[0]!r} stands for many records, so it cannot go with {others[0]!r}")
    if not names:
        raise ConfigError("columns names none: name at least one, or leave it out for all")
    if len(set(names)) != len(names):
        raise ConfigError(f"columns names one twice: {', '.join(names)}")
    fields = [_field(view, name) for name in names]
    if decoder is not None:
        fields = [pa.field("record", decoded_type(decoder)) if f.name == "record" else f for f in fields]
    elif decode not in (None, "json"):
        from kraftlib.analysis.metadata_columns import struct_type  # and with it the declarations of Kafka's records

        fields = [pa.field("record", struct_type(str(decode))) if f.name == "record" else f for f in fields]
    return pa.schema(fields)


def _field(view: str, name: str) -> Any:
    full = VIEWS[view]
    if view == "records" and name in PACKED:
        return pa.field(name, PACKED[name])
    index = full.get_field_index(name)
    if index < 0:
        near = get_close_matches(name, full.names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(f"the view {view!r} has no column {name!r}{hint} It has: {', '.join(full.names)}")
    return full.field(index)
