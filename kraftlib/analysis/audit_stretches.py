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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftlib.analysis.columns import repeated
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

EDGE: Final = -1
"""Stands for the number of a stretch in the row that ends a file: it says how far that goes, and has no batches."""

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
"""`stretch` is null for a range without an offset. `last_offset` is in the row that ends a file: the greatest one that
can be believed, null for none. `problems` is null, or says in JSON what is wrong with which batch of the stretch."""


def stretches(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the view `batches`, in the order of their files, as stretches; a row ends each file."""
    for place, of_file in groupby((batch for batch in tables if batch.num_rows), key=_place):
        last: list[int] = []
        for table in _whole_stretches(of_file):
            if (found := _last_offset(table)) is not None:
                last.append(found)
            yield _told(table, place)
        edge = dict(zip(PLACE, place, strict=True)) | {"stretch": EDGE, "last_offset": max(last, default=None)}
        yield pa.RecordBatch.from_pylist([edge | _NO_BATCHES], schema=STRETCHES)


_NO_BATCHES: Final = {"batches": 0, "content": b"", "positions": b""}


def _whole_stretches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches of one file in tables of `TOGETHER` or more; no stretch is in two of them."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= TOGETHER:
            table = _joined(held)
            last_start = int(_starts(_numbers(table))[-1])
            if last_start:
                yield table.slice(0, last_start)
            held = table.slice(last_start).to_batches()
    yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).select(COLUMNS).combine_chunks()


def told_apart(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.Table:
    """Return the batches of stretches as rows of the view `batches`."""
    told = np.frombuffer(b"".join(row["content"] for row in rows), dtype=_TOLD)
    ends = np.cumsum([len(row["content"]) // _TOLD.itemsize for row in rows], dtype=np.int64)
    columns: dict[str, Any] = {
        name: pa.array(told[name], mask=told["absent"] & 1 << bit != 0) for bit, name in enumerate(_NUMBERS)
    }
    columns["position"] = pa.array(np.frombuffer(b"".join(row["positions"] for row in rows), dtype="<i8"))
    problems: list[str | None] = [None] * len(told)
    for row, end in zip(rows, ends.tolist(), strict=True):
        for index, text in json.loads(row["problems"] or "[]"):
            problems[end - len(row["content"]) // _TOLD.itemsize + index] = text
    columns["problem"] = pa.array(problems, pa.string())
    row_of = np.repeat(np.arange(len(rows)), np.diff(ends, prepend=0))
    for name in PLACE:
        columns[name] = pa.array([row[name] for row in rows], BATCHES.field(name).type).take(pa.array(row_of))
    return pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def _place(table: pa.RecordBatch) -> tuple[object, ...]:
    return tuple(table[name][0].as_py() for name in PLACE)


def _numbers(table: pa.Table) -> Array:
    """Return in which stretch each batch begins, -1 for a range without an offset."""
    return pc.fill_null(table["base_offset"], -STRETCH).to_numpy() // STRETCH


def _starts(numbers: Array) -> Array:
    """Return at which rows another stretch begins, the first row included."""
    return np.append(0, 1 + np.flatnonzero(numbers[1:] != numbers[:-1]))


def _told(table: pa.Table, place: Sequence[object]) -> pa.RecordBatch:
    """Return one row for each stretch."""
    told = np.zeros(len(table), dtype=_TOLD)
    for bit, name in enumerate(_NUMBERS):
        column = table[name]
        if column.null_count:
            told["absent"] |= (column.is_null().to_numpy().astype(np.uint8)) << bit
            column = pc.fill_null(column, pa.scalar(0, pa.int64()).cast(column.type))
        told[name] = column.to_numpy()
    numbers = _numbers(table)
    starts = _starts(numbers)
    edges = np.append(starts, len(table))
    numbers = numbers[starts]
    arrays = {
        "stretch": pa.array(numbers, mask=numbers < 0),
        "last_offset": pa.nulls(len(starts), pa.int64()),
        "batches": pa.array(np.diff(edges).astype(np.int32)),
        "content": _pieces(told, edges),
        "positions": _pieces(table["position"].to_numpy().astype("<i8"), edges),
        "problems": _problems(table, edges),
    }
    for name, value in zip(PLACE, place, strict=True):
        arrays[name] = repeated(value, len(starts), STRETCHES.field(name).type)
    return pa.RecordBatch.from_arrays([arrays[name] for name in STRETCHES.names], schema=STRETCHES)


def _last_offset(table: pa.Table) -> int | None:
    """Return the greatest offset, as far as it can be believed."""
    believed = table.filter(pc.or_(pc.is_null(table["problem"]), pc.is_null(table["length"])))
    greatest: int | None = pc.max(pc.coalesce(believed["last_offset"], believed["base_offset"])).as_py()
    return greatest


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
