"""Rows that stand for many records: their bytes once, and where each one's key and value are in them.

A row of its own for each record is what Spark takes longest to receive. So `kraft.read` asks for packs of records, and
has the JVM take the records out of them (`kraftlib.spark.records_of_packs`). The bytes of a pack are those of the file:
no value is copied here.

A pack has records of consecutive offsets that have all other columns in common but those of PACKED. It is of one of two
kinds:

* *even*: values of one size at equal distances, of one timestamp and without keys, so that four numbers say where all
  are. Most batches are one or two such packs;
* *listed*: lists have a number for each record. For Spark a list costs 40 ns a record, in turns with the other kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from kraftlib.analysis.columns import COLUMNS, Rows, Table, binaries, frame_numbers, timestamps
from kraftlib.analysis.schemas import TIMESTAMP, Schema
from kraftlib.analysis.varints import Array

PACK_BYTES_BITS: Final = 14
"""A pack ends where 16 KiB end, and its last record may go on behind them.

Larger ones save nothing. And where Spark does not compile a query, it copies a pack for each of its records.
"""

EVEN_RECORDS: Final = 24
"""With fewer records a pack, on average, even packs cost more than lists."""

_INT: Final = pa.int32()
_OF_BATCH: Final = frozenset({"batch_base", "position"})
"""Columns that differ from batch to batch."""
_SPARSE: Final = 2
"""If the bytes from the first pack to the last are so many times those of all packs, packs are copied out of them."""


def packed_table(rows: Rows, schema: Schema) -> Table:
    """Return the packs of `rows`, of which there is at least one."""
    packs = _Packs.of(rows, frozenset(schema.names))
    firsts = rows.select(packs.begins)
    arrays = [
        _COLUMNS[field.name](packs) if field.name in _COLUMNS else COLUMNS[field.name](firsts) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@attrs.frozen(kw_only=True, eq=False)
class _Packs:
    """Which records are in each pack, and where its bytes are; numpy arrays."""

    rows: Rows
    begins: Array
    """Index of the first record of each."""
    start: Array
    end: Array
    are_even: bool

    @classmethod
    def of(cls, rows: Rows, names: frozenset[str]) -> _Packs:
        fields = rows.fields
        even = _begins_of_even(rows)
        begins = _begins_of_listed(rows, names) if even is None else even
        lasts = np.append(begins[1:], len(rows)) - 1
        return cls(
            rows=rows,
            begins=begins,
            start=(fields.key_start if even is None else fields.value_start)[begins],
            end=fields.value_start[lasts] + np.maximum(fields.value_size[lasts], 0),
            are_even=even is not None,
        )

    @property
    def count(self) -> Array:
        """The number of records of each."""
        return np.diff(self.begins, append=len(self.rows))

    def bytes(self) -> Any:
        """Return the bytes of each; if there is little between them, with that, and without a copy."""
        start, end = self.start, self.end
        first, last = int(start[0]), int(end[-1])
        if last - first > _SPARSE * int((end - start).sum()):
            return binaries(self.rows.area, start, end - start)
        offsets = (np.append(start, last) - first).astype(np.int32)
        area = pa.py_buffer(self.rows.area).slice(first, last - first)
        return pa.BinaryArray.from_buffers(pa.binary(), len(start), [None, pa.py_buffer(offsets), area])

    # Even packs

    def step(self) -> Any:
        """Return how far it is from one value to the next."""
        place = self.rows.fields.value_start
        lasts = np.append(self.begins[1:], len(self.rows)) - 1
        return self.number((place[lasts] - place[self.begins]) // np.maximum(self.count - 1, 1))

    def size(self) -> Any:
        """Return the size of each value; null if all of the pack are absent."""
        size = self.rows.fields.value_size[self.begins]
        return self.number(size, absent=size < 0)

    def time(self) -> Any:
        if not self.are_even:
            return pa.nulls(len(self.begins), TIMESTAMP)
        return timestamps(self.rows.millis[self.begins])

    def number(self, values: Array, absent: Array | None = None) -> Any:
        """Return a number a pack, or nulls if they are listed."""
        if not self.are_even:
            return pa.nulls(len(self.begins), pa.int32())
        return pa.array(values.astype(np.int32), mask=absent)

    # Listed ones

    def places(self, place: Array) -> Any:
        """Return where a place of each record is in the bytes of its pack, from 1 on, as SQL counts."""
        if self.are_even:
            return self.no_lists()
        return self.lists(pa.array((place - np.repeat(self.start - 1, self.count)).astype(np.int32)))

    def sizes(self, size: Array) -> Any:
        """Return the size of each record's bytes; null where they are absent."""
        absent = size < 0
        if self.are_even or absent.all():
            return self.no_lists()
        return self.lists(pa.array(size.astype(np.int32), mask=absent if absent.any() else None))

    def times(self) -> Any:
        return self.no_lists(TIMESTAMP) if self.are_even else self.lists(timestamps(self.rows.millis))

    def numbers_of_frames(self, which: int) -> Any:
        """Return type or version of each, in lists for even packs, too."""
        numbers = frame_numbers(self.rows)
        return self.lists(pa.array(numbers[which].astype(np.int32), mask=~numbers[2]))

    def lists(self, values: Any) -> Any:
        """Return a value per record as a list per pack."""
        offsets = np.append(self.begins, len(self.rows)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values)

    def no_lists(self, kind: Any = _INT) -> Any:
        return pa.nulls(len(self.begins), pa.list_(kind))


def _begins_of_even(rows: Rows) -> Array | None:
    """Return where even packs begin; None, if they were too small to be worth it."""
    fields = rows.fields
    batch, place, size = fields.batch, fields.value_start, fields.value_size
    if len(rows) < EVEN_RECORDS * len(rows.headers) or (fields.key_size >= 0).any():
        return None
    other = batch[1:] != batch[:-1]
    firsts = np.flatnonzero(np.append(True, other))
    window = (place - np.repeat(place[firsts], np.diff(firsts, append=len(rows)))) >> PACK_BYTES_BITS
    for values in (window, size, rows.millis):
        if len(values) and (values != values[0]).any():
            other |= values[1:] != values[:-1]
    other |= rows.offset[1:] != rows.offset[:-1] + 1
    if rows.headers.is_control.any():
        other |= _is_or_follows_control(rows)
    step = np.diff(place)
    begins = np.append(True, other)
    begins[2:] |= (step[1:] != step[:-1]) & ~other[:-1]
    found = np.flatnonzero(begins)
    return found if len(found) * EVEN_RECORDS <= len(rows) else None


def _begins_of_listed(rows: Rows, names: frozenset[str]) -> Array:
    """Return where listed packs begin, each of which may hold many batches."""
    batch, offset, headers = rows.fields.batch, rows.offset, rows.headers
    window = rows.fields.value_start >> PACK_BYTES_BITS
    differ = (offset[1:] != offset[:-1] + 1) | (window[1:] != window[:-1])
    other = headers.epoch[1:] != headers.epoch[:-1]
    if rows.crc_ok is not None:
        other |= rows.crc_ok[1:] != rows.crc_ok[:-1]
    if not names.isdisjoint(_OF_BATCH):
        other[:] = True
    if other.any():
        alike = np.append(0, np.cumsum(other))[batch]
        differ |= alike[1:] != alike[:-1]
    if headers.is_control.any():
        differ |= _is_or_follows_control(rows)
    return np.flatnonzero(np.append(True, differ))


def _is_or_follows_control(rows: Rows) -> Array:
    """Return for each record but the first whether it or the one before is a control record, which has its own type."""
    control = rows.is_control
    return control[1:] | control[:-1]


_COLUMNS: Final[dict[str, Callable[[_Packs], Any]]] = {
    "packed_bytes": lambda packs: packs.bytes(),
    "packed_count": lambda packs: pa.array(packs.count.astype(np.int32)),
    "packed_step": lambda packs: packs.step(),
    "packed_size": lambda packs: packs.size(),
    "packed_time": lambda packs: packs.time(),
    "packed_times": lambda packs: packs.times(),
    "packed_types": lambda packs: packs.numbers_of_frames(0),
    "packed_versions": lambda packs: packs.numbers_of_frames(1),
    "packed_key_places": lambda packs: packs.places(packs.rows.fields.key_start),
    "packed_key_sizes": lambda packs: packs.sizes(packs.rows.fields.key_size),
    "packed_value_places": lambda packs: packs.places(packs.rows.fields.value_start),
    "packed_value_sizes": lambda packs: packs.sizes(packs.rows.fields.value_size),
}
