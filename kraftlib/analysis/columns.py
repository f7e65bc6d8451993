"""Arrow columns out of decoded records: one function a column of the view `records`.

Values are not touched one by one: their places become the offsets of an Arrow array over the raw bytes, in which gaps
and values alternate, and Arrow copies the values out, in C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from kraftlib.analysis.conditions import place_values
from kraftlib.analysis.decoder import Fields, headers_of
from kraftlib.analysis.headers import Headers
from kraftlib.analysis.schemas import HEADERS, RUN_LENGTH, TIMESTAMP, Schema
from kraftlib.analysis.splits import Split
from kraftlib.analysis.varints import Array, read_unsigned
from kraftlib.records.batch import APPEND_TIME
from kraftlib.records.compression import Codec
from kraftlib.records.control import ControlType

NO_TIMESTAMP: Final = -1
"""Kafka's value for a missing field."""

_MILLIS_MAX: Final = (2**63 - 1) // 1_000
_FRAME_VERSION: Final = 1
_COPIED_TOGETHER_MAX: Final = 4_096
"""Larger values take as long in either way."""
_CONTROL_NAMES: Final = {int(control): control.name.lower() for control in ControlType}
_CODEC_NAMES: Final = {int(codec): codec.name.lower() for codec in Codec}

Table = Any
"""A pyarrow RecordBatch."""


@attrs.frozen(kw_only=True, eq=False)
class Rows:
    """Decoded records of some batches, from which columns are made."""

    split: Split
    headers: Headers
    """Of the batches; `fields.batch` are indexes into it."""
    positions: Array
    """Of the batches in their file."""
    area: bytes
    fields: Fields
    offset: Array
    millis: Array
    crc_ok: Array | None
    """Per batch; None if it was not checked."""
    run_length: Array | None = None
    """The number of records that each row stands for; None is one each."""

    def __len__(self) -> int:
        return len(self.offset)

    def per_record(self, values: Array) -> Array:
        """Return a value per batch as one per record."""
        return values[self.fields.batch]

    @property
    def is_control(self) -> Array:
        """Whether each record is a control record."""
        return self.per_record(self.headers.is_control)

    def select(self, chosen: Array) -> Rows:
        """Return the rows that a mask names."""
        return attrs.evolve(
            self, fields=self.fields.select(chosen), offset=self.offset[chosen], millis=self.millis[chosen],
            run_length=None if self.run_length is None else self.run_length[chosen],
        )  # fmt: skip

    def runs(self) -> Rows:
        """Return the first of each run of consecutive records of a batch, with the length of the run."""
        batch, offset = self.fields.batch, self.offset
        begins = np.flatnonzero(np.append(True, (batch[1:] != batch[:-1]) | (offset[1:] != offset[:-1] + 1)))
        return attrs.evolve(self.select(begins), run_length=np.diff(begins, append=len(self)))


def table_of(columns: dict[str, Any], count: int, schema: Schema) -> Table:
    """Return a table of `count` rows out of lists, arrays, and single values that stand for all rows; else null."""
    arrays = []
    for field in schema:
        value = columns.get(field.name)
        if not isinstance(value, (list, pa.Array)):
            value = repeated(value, count, field.type)
        arrays.append(value if isinstance(value, pa.Array) else pa.array(value, type=field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def repeated(value: Any, count: int, kind: Any) -> Any:
    """Return an array of one value."""
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, type=kind), count)


def millis_of(headers: Headers, fields: Fields) -> Array:
    """Return the timestamp of each record, ms since 1970."""
    millis = headers.base_timestamp[fields.batch] + fields.timestamp_delta
    append_time = headers.attributes & APPEND_TIME != 0
    if append_time.any():
        millis = np.where(append_time[fields.batch], headers.max_timestamp[fields.batch], millis)
    return millis


def timestamps(millis: Array) -> Any:
    """Return ms since 1970 as Arrow's timestamps; Kafka's -1 is null."""
    missing = millis == NO_TIMESTAMP
    if missing.any():
        return pa.array((millis * 1_000).view("datetime64[us]"), mask=missing).cast(TIMESTAMP)
    return pa.Array.from_buffers(TIMESTAMP, len(millis), [None, pa.py_buffer(millis * 1_000)])


def binaries(area: bytes, start: Array, size: Array) -> Any:
    """Return the bytes at these places, in ascending order; null where the size is negative."""
    count = len(start)
    absent = size < 0
    if count == 0 or absent.all():
        return pa.nulls(count, pa.binary())
    if 0 < (width := int(size[0])) <= _COPIED_TOGETHER_MAX and (size == width).all():
        return _binaries_of_one_size(area, start, width)
    # Value, gap, value, gap, ...: offsets of Arrow must be back to back, and every second range is a value.
    offsets = np.empty(2 * count, dtype=np.int32)
    offsets[0::2] = start
    offsets[1::2] = start + np.maximum(size, 0)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(area)]
    both = pa.BinaryArray.from_buffers(pa.binary(), 2 * count - 1, buffers)
    chosen = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=absent if absent.any() else None)
    return both.take(chosen)


def _binaries_of_one_size(area: bytes, start: Array, size: int) -> Any:
    """As `binaries`, where all have the same size: numpy copies items of one size in less time than Arrow does others.

    Each item is that many bytes, of any area that has so many.
    """
    items = np.ndarray((len(area) - size + 1,), dtype=f"V{size}", buffer=area, strides=(1,))
    offsets = np.arange(0, (len(start) + 1) * size, size, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(start), [None, pa.py_buffer(offsets), pa.py_buffer(items[start])]
    )


def frame_numbers(rows: Rows) -> tuple[Array, Array, Array]:
    """Return type and version from the frame that data records of metadata have, and which records have one.

    A frame is told by its version, 1, and two numbers that follow within the value.
    """
    area = np.frombuffer(rows.area, dtype=np.uint8)
    start, size = rows.fields.value_start, rows.fields.value_size
    framed = (size >= 3) & (area.take(start, mode="clip") == _FRAME_VERSION) & ~rows.is_control
    api_key, at, long = read_unsigned(area, start + 1)
    framed[long] = False
    version, at, long = read_unsigned(area, at)
    framed[long] = False
    framed &= (at <= start + size) & (api_key < 2**15) & (version < 2**15)
    return api_key, version, framed


def control_types(rows: Rows) -> Any:
    """Return the names of control records; null for data."""
    if not rows.headers.is_control.any():
        return pa.nulls(len(rows), pa.string())
    named: list[str | None] = [None] * len(rows)
    for index in np.flatnonzero(rows.is_control).tolist():
        start, size = int(rows.fields.key_start[index]), int(rows.fields.key_size[index])
        number = int.from_bytes(rows.area[start + 2 : start + 4], signed=True) if size >= 4 else -1
        named[index] = _CONTROL_NAMES.get(number, f"unknown {number}")
    return pa.array(named, type=pa.string())


def header_lists(rows: Rows) -> Any:
    """Return the headers of each record."""
    fields = rows.fields
    if not fields.header_count.any():
        offsets = pa.array(np.zeros(len(rows) + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array([], type=HEADERS.value_type))
    lists: list[list[dict[str, Any]]] = [[] for _ in range(len(rows))]
    for index in np.flatnonzero(fields.header_count).tolist():
        start, count = int(fields.headers_start[index]), int(fields.header_count[index])
        end = int(fields.end[index])
        found = headers_of(rows.area, start, count, end) or []
        lists[index] = [{"key": key, "value": value} for key, value in found]
    return pa.array(lists, type=HEADERS)


def json_records(rows: Rows) -> Any:
    """Return Kafka's metadata records as JSON in the form of Kafka's tools; null for a value that is none, or is not
    known."""
    from kraftlib.analysis.metadata_columns import json_record

    values = binaries(rows.area, rows.fields.value_start, rows.fields.value_size)
    framed = frame_numbers(rows)[2]
    return pa.array(
        [
            json_record(value.as_py()) if is_framed else None
            for value, is_framed in zip(values, framed.tolist(), strict=True)
        ],
        type=pa.string(),
    )


def _constant(name: str, kind: Any) -> Callable[[Rows], Any]:
    return lambda rows: repeated(place_values(rows.split.file)[name], len(rows), kind)


def _frame_column(number: int) -> Callable[[Rows], Any]:
    def column(rows: Rows) -> Any:
        numbers = frame_numbers(rows)
        return pa.array(numbers[number].astype(np.int32), mask=~numbers[2])

    return column


COLUMNS: Final[dict[str, Callable[[Rows], Any]]] = {
    "cluster": _constant("cluster", pa.string()),
    "replica": _constant("replica", pa.string()),
    "topic": _constant("topic", pa.string()),
    "partition": _constant("partition", pa.int32()),
    "origin": _constant("origin", pa.string()),
    "offset": lambda rows: pa.array(rows.offset),
    "snapshot_end_offset": _constant("snapshot_end_offset", pa.int64()),
    "snapshot_epoch": _constant("snapshot_epoch", pa.int32()),
    "epoch": lambda rows: pa.array(rows.per_record(rows.headers.epoch.astype(np.int32))),
    "timestamp": lambda rows: timestamps(rows.millis),
    "control": lambda rows: pa.array(rows.is_control),
    "control_type": control_types,
    "type": _frame_column(0),
    "version": _frame_column(1),
    "key": lambda rows: binaries(rows.area, rows.fields.key_start, rows.fields.key_size),
    "value": lambda rows: binaries(rows.area, rows.fields.value_start, rows.fields.value_size),
    "headers": header_lists,
    "batch_base": lambda rows: pa.array(rows.per_record(rows.headers.base_offset)),
    "crc_ok": lambda rows: (
        pa.nulls(len(rows), pa.bool_()) if rows.crc_ok is None else pa.array(rows.per_record(rows.crc_ok))
    ),
    "problem": lambda rows: pa.nulls(len(rows), pa.string()),
    "segment": _constant("segment", pa.string()),
    "position": lambda rows: pa.array(rows.per_record(rows.positions)),
    "record": json_records,
    RUN_LENGTH: lambda rows: pa.array(
        np.broadcast_to(1 if rows.run_length is None else rows.run_length, len(rows)).astype(np.int32)
    ),
}
