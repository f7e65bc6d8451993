"""The views `batches` and `files`: a row a batch, a row a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from kraftlib.analysis.chunks import Chunk, chunks
from kraftlib.analysis.columns import Table, table_of, timestamps
from kraftlib.analysis.conditions import Pruning, place_values
from kraftlib.analysis.headers import Headers
from kraftlib.analysis.options import Bounds, ReadOptions
from kraftlib.analysis.schemas import Schema
from kraftlib.analysis.splits import Split, bounds_of
from kraftlib.errors import CorruptBatchError
from kraftlib.records.compression import Codec

_CODEC_NAMES: Final = np.array([codec.name.lower() for codec in Codec] + ["unknown"] * 3, dtype=object)
_MILLIS_MAX: Final = (2**63 - 1) // 1_000


def batch_tables(split: Split, chunk: Chunk, options: ReadOptions, schema: Schema, pruning: Pruning) -> Iterator[Table]:
    """Yield the batches of a chunk, each with its faults, and a row for a range that holds none.

    With mode DROPMALFORMED, only what is sound.
    """
    headers = chunk.headers
    if len(headers):
        keep = _within(chunk, bounds_of(split.file, options.bounds & pruning.bounds))
        if options.mode == "DROPMALFORMED":
            keep[list(chunk.problems)] = False
        chosen = np.flatnonzero(keep)
        if len(chosen):
            yield _batch_table(split, chunk, chosen, options, schema)
    if chunk.gap is not None and options.mode == "PERMISSIVE":
        gap = chunk.gap
        said = {"position": gap.start, "base_offset": gap.offset, "chain_ok": False, "problem": gap.reason}
        columns = {**place_values(split.file), **said}
        yield table_of(columns, 1, schema)


def _within(chunk: Chunk, bounds: Bounds) -> Any:
    """Return which batches have records within the offsets and epochs; a batch is the smallest thing here."""
    headers = chunk.headers
    keep = np.ones(len(headers), dtype=bool)
    for wanted, first, last in (
        (bounds.offset, headers.base_offset, headers.last_offset),
        (bounds.epoch, headers.epoch, headers.epoch),
        (bounds.timestamp, headers.max_timestamp, headers.max_timestamp),
    ):
        if wanted.start is not None:
            keep &= last >= wanted.start
        if wanted.end is not None:
            keep &= first < wanted.end
    return keep


def _batch_table(split: Split, chunk: Chunk, chosen: Any, options: ReadOptions, schema: Schema) -> Table:
    headers = chunk.headers.select(chosen)
    columns: dict[str, Any] = {**place_values(split.file)}
    for name in schema.names:
        if name in _OF_HEADERS:
            columns[name] = _OF_HEADERS[name](headers)
    columns["position"] = pa.array(chunk.origin + headers.start)
    columns["crc_ok"] = pa.array(chunk.crc_ok[chosen]) if options.verify_crc else None
    columns["chain_ok"] = pa.array(chunk.chain_ok[chosen])
    columns["problem"] = [chunk.problems.get(index) for index in chosen.tolist()] if chunk.problems else None
    return table_of(columns, len(chosen), schema)


def _dates(millis: Any) -> Any:
    """Return the timestamps, -1 (none) in place of one that cannot be a date: the raw bytes are still in the file."""
    return np.where(abs(millis) > _MILLIS_MAX, -1, millis)


_OF_HEADERS: Final[dict[str, Callable[[Headers], Any]]] = {
    "base_offset": lambda headers: pa.array(headers.base_offset),
    "last_offset": lambda headers: pa.array(headers.last_offset),
    "count": lambda headers: pa.array(headers.count.astype(np.int32)),
    "epoch": lambda headers: pa.array(headers.epoch.astype(np.int32)),
    "length": lambda headers: pa.array(headers.size.astype(np.int32)),
    "crc": lambda headers: pa.array(headers.crc),
    "attributes": lambda headers: pa.array(headers.attributes.astype(np.int32)),
    "codec": lambda headers: pa.array(_CODEC_NAMES[headers.codec], type=pa.string()),
    "base_timestamp": lambda headers: timestamps(_dates(headers.base_timestamp)),
    "max_timestamp": lambda headers: timestamps(_dates(headers.max_timestamp)),
    "control": lambda headers: pa.array(headers.is_control),
}
"""Columns of batches that their headers tell; only those that are asked for are made."""


def file_table(split: Split, options: ReadOptions, schema: Schema) -> Table:
    """Return the row of one file, of which `split` is the whole."""
    file = split.file
    tolerant = attrs.evolve(options, mode="PERMISSIVE")
    count, first, last, problem, end = 0, None, None, None, 0
    try:
        for chunk in chunks(split, tolerant, reuse=True):
            count += len(chunk.headers)
            if len(chunk.headers):
                first = first or _edge(chunk, 0)
                last = _edge(chunk, -1)
                end = chunk.origin + int(chunk.headers.end[-1])
            if problem is None and chunk.problems:
                problem = chunk.problems[min(chunk.problems)]
            if problem is None and chunk.gap is not None:
                problem = chunk.gap.reason
    except CorruptBatchError as error:
        problem = str(error)
    columns = {
        **place_values(split.file),
        "path": file.path,
        "kind": file.kind.value,
        "offset": file.offset,
        "epoch": file.epoch,
        "size": file.size,
        "batches": count,
        "first_offset": first and first[0],
        "last_offset": last and last[1],
        "first_timestamp": _one_timestamp(first),
        "last_timestamp": _one_timestamp(last),
        "complete": problem is None and end == file.size,
        "problem": problem,
    }
    return table_of(columns, 1, schema)


def _edge(chunk: Chunk, index: int) -> tuple[int, int, int]:
    headers = chunk.headers
    return int(headers.base_offset[index]), int(headers.last_offset[index]), int(headers.max_timestamp[index])


def _one_timestamp(edge: tuple[int, int, int] | None) -> Any:
    return None if edge is None else timestamps(_dates(np.array([edge[2]])))
