"""A log for an audit in few rows: stretches of batches, each as one piece of bytes that replicas have alike or not.

A row a batch is too many where rows are dear: the report of a task about its batches goes through Spark, which groups
it. So the batches are told in stretches of `STRETCH` offsets. The facts on which replicas must agree stand in one
column of bytes, so that equal bytes are equal batches, and the places, which may differ, in another. Nothing is lost: a
stretch that is not the same everywhere, or in which something is wrong, is told apart again batch by batch.

A stretch is cut short where a file ends or a task does. Replicas that are cut elsewhere then differ in it, and are
compared batch by batch: that costs time, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftlib.analysis.schemas import BATCHES, Schema
from kraftlib.analysis.varints import Array

STRETCH: Final = 4_096
"""Offsets. A few dozen batches of a busy log."""

TOGETHER: Final = 4_096
"""Batches whose stretches are told together: each step of the work costs as much for few as for many."""

BATCH: Final = ("base_offset", "last_offset", "epoch", "length", "crc", "crc_ok", "problem")
PLACE: Final = ("cluster", "topic", "partition", "replica", "segment")
COLUMNS: Final = (*PLACE, *BATCH, "position")
"""The columns that an audit reads of each batch."""

_TOLD: Final = np.dtype(
    [
        ("base_offset", "<i8"),
        ("last_offset", "<i8"),
        ("epoch", "<i4"),
        ("length", "<i4"),
        ("crc", "<i8"),
        ("crc_ok", "?"),
        ("absent", "u1"),
    ]
)
"""A batch as bytes; `absent` has a bit for each of the others that is null."""
_NUMBERS: Final = _TOLD.names[:-1] if _TOLD.names else ()

STRETCHES: Final = pa.schema(
    [
        *(BATCHES.field(name) for name in PLACE),
        pa.field("stretch", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("batches", pa.int32()),
        pa.field("content", pa.binary()),
        pa.field("positions", pa.binary()),
        pa.field("problems", pa.string()),
    ]
)
"""`last_offset` is the greatest that can be believed, null for none; `problems` is null, or says in JSON what is wrong
with which batch of the stretch."""


def stretches(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the view `batches`, in the order of their files, as stretches."""
    held: list[pa.RecordBatch] = []
    for batch in tables:
        if not batch.num_rows:
            continue
        if held and _place(held[0]) != _place(batch):
            yield _told(table := _joined(held), _starts(table))
            held = []
        held.append(batch)
        if sum(each.num_rows for each in held) >= TOGETHER:
            table = _joined(held)
            starts = _starts(table)
            if len(starts) > 1:
                yield _told(table.slice(0, starts[-1]), starts[:-1])
            held = table.slice(starts[-1]).to_batches()
    if held:
        yield _told(table := _joined(held), _starts(table))


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).select(COLUMNS).combine_chunks()


def told_apart(rows: Iterable[Mapping[str, Any]], schema: Schema) -> pa.Table:
    """Return the batches of stretches as rows of the view `batches`."""
    tables = []
    for row in rows:
        told = np.frombuffer(row["content"], dtype=_TOLD)
        columns: dict[str, Any] = {
            name: pa.array(told[name], mask=told["absent"] & 1 << bit != 0) for bit, name in enumerate(_NUMBERS)
        }
        columns["position"] = pa.array(np.frombuffer(row["positions"], dtype="<i8"))
        problems = dict(json.loads(row["problems"])) if row["problems"] else {}
        columns["problem"] = pa.array([problems.get(index) for index in range(len(told))], pa.string())
        for name in PLACE:
            columns[name] = pa.array([row[name]] * len(told), BATCHES.field(name).type)
        tables.append(pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema))
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _place(table: pa.Table | pa.RecordBatch) -> tuple[object, ...]:
    return tuple(table[name][0].as_py() for name in PLACE)


def _numbers(table: pa.Table) -> Array:
    """Return in which stretch each batch begins, -1 for a range without an offset."""
    return pc.fill_null(table["base_offset"], -STRETCH).to_numpy() // STRETCH


def _starts(table: pa.Table) -> list[int]:
    """Return at which rows another stretch begins, the first row included."""
    numbers = _numbers(table)
    return [0, *(1 + np.flatnonzero(numbers[1:] != numbers[:-1])).tolist()]


def _told(table: pa.Table, starts: list[int]) -> pa.RecordBatch:
    """Return one row for each of the stretches that begin at `starts`; the table is of one file."""
    told = np.zeros(len(table), dtype=_TOLD)
    for bit, name in enumerate(_NUMBERS):
        column = table[name]
        if column.null_count:
            told["absent"] |= (column.is_null().to_numpy().astype(np.uint8)) << bit
            column = pc.fill_null(column, pa.scalar(0, pa.int64()).cast(column.type))
        told[name] = column.to_numpy()
    edges = np.array([*starts, len(table)])
    numbers = _numbers(table)[starts]
    arrays = {
        "stretch": pa.array(numbers, mask=numbers < 0),
        "last_offset": _last_offsets(table, starts),
        "batches": pa.array(np.diff(edges).astype(np.int32)),
        "content": _pieces(told, edges),
        "positions": _pieces(table["position"].to_numpy().astype("<i8"), edges),
        "problems": _problems(table, edges),
    }
    for name, value in zip(PLACE, _place(table), strict=True):
        arrays[name] = pa.array([value] * len(starts), STRETCHES.field(name).type)
    return pa.RecordBatch.from_arrays([arrays[name] for name in STRETCHES.names], schema=STRETCHES)


def _last_offsets(table: pa.Table, starts: list[int]) -> pa.Array:
    """Return the greatest offset of each stretch, as far as it can be believed."""
    believed = pc.or_(pc.is_null(table["problem"]), pc.is_null(table["length"]))
    last = pc.if_else(believed, pc.coalesce(table["last_offset"], table["base_offset"]), None)
    greatest = np.maximum.reduceat(pc.fill_null(last, -1).to_numpy(), starts)
    return pa.array(greatest, mask=greatest < 0)


def _pieces(rows: Array, edges: Array) -> pa.BinaryArray:
    offsets = pa.py_buffer((edges * rows.dtype.itemsize).astype(np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), len(edges) - 1, [None, offsets, pa.py_buffer(rows.tobytes())])


def _problems(table: pa.Table, edges: Array) -> pa.Array:
    said: list[str | None] = [None] * (len(edges) - 1)
    if table["problem"].null_count < len(table):
        problems = table["problem"].to_pylist()
        for number, (start, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
            found = [(index, text) for index, text in enumerate(problems[start:end]) if text is not None]
            said[number] = json.dumps(found) if found else None
    return pa.array(said, pa.string())
