"""The batches of a chunk as Arrow tables of the views `records` and `batches`.

Values are not touched one by one: their places become the offsets of an Arrow array over the raw bytes, in which gaps
and values alternate, and Arrow copies the values out, in C. What inflates is decoded in groups, so that neither an
honest nor a malicious batch asks for more memory than `max_inflated_bytes` and a little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa

from kraftlib.analysis.chunks import Chunk
from kraftlib.analysis.decoder import Blocks, Fields, decode, headers_of
from kraftlib.analysis.files import Kind
from kraftlib.analysis.headers import Headers
from kraftlib.analysis.metadata_columns import decoded, json_record, record_class_named
from kraftlib.analysis.options import JSON, Bounds, ReadOptions
from kraftlib.analysis.schemas import HEADERS, TIMESTAMP, Schema
from kraftlib.analysis.splits import Split, bounds_of
from kraftlib.analysis.varints import Array, read_unsigned
from kraftlib.errors import CorruptBatchError, InvariantError, StorageError
from kraftlib.records.batch import APPEND_TIME, HEADER_SIZE
from kraftlib.records.compression import Codec, decompress
from kraftlib.records.control import ControlType
from kraftlib.records.record import decode_block

NO_TIMESTAMP: Final = -1
"""What Kafka writes where there is none."""

_MILLIS_MAX: Final = (2**63 - 1) // 1_000
_FRAME_VERSION: Final = 1
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
    """Per batch; None where nobody looked."""

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
        """Return the records that a mask names."""
        return attrs.evolve(
            self, fields=self.fields.select(chosen), offset=self.offset[chosen], millis=self.millis[chosen]
        )


@attrs.frozen(kw_only=True)
class Problem:
    """What is said of a batch, or of a range of bytes, that cannot be read."""

    position: int
    reason: str
    base_offset: int | None
    epoch: int | None
    crc_ok: bool | None


class RecordColumns:
    """Makes tables of records out of the chunks of one split."""

    def __init__(self, split: Split, options: ReadOptions, schema: Schema, pruning: Bounds = Bounds()) -> None:
        self.split = split
        self.file = split.file
        self.options = options
        self.schema = schema
        self.bounds = bounds_of(self.file, options.bounds & pruning)

    def tables(self, chunk: Chunk) -> Iterator[Table]:
        """Yield the records of a chunk; with mode PERMISSIVE, also a row for each thing that is wrong.

        Raises: CorruptBatchError, with mode FAILFAST, for records that do not fit their batch.
        """
        headers = chunk.headers
        wanted = self.wanted(headers)
        found = [self.problem(chunk, index, reason) for index, reason in chunk.problems.items() if wanted[index]]
        wanted[list(chunk.problems)] = False
        for group in self.groups(chunk, np.flatnonzero(wanted)):
            if isinstance(group, Problem):
                found.append(group)
                continue
            rows, bad = self.decoded(chunk, *group)
            found += bad
            if self.options.decode not in (None, JSON):
                yield from self.tables_of_type(rows, str(self.options.decode))
            elif len(rows):
                yield self.table(rows)
        if chunk.gap is not None:
            gap = chunk.gap
            found.append(
                Problem(position=gap.start, reason=gap.reason, base_offset=gap.offset, epoch=None, crc_ok=None)
            )
        if found and self.options.mode == "PERMISSIVE":
            yield self.problem_table(found)

    def wanted(self, headers: Headers) -> Array:
        """Return which batches can hold records within the bounds, by their headers."""
        wanted = np.ones(len(headers), dtype=bool)
        offset, epoch, timestamp = self.bounds.offset, self.bounds.epoch, self.bounds.timestamp
        if offset.start is not None:
            wanted &= headers.last_offset >= offset.start
        if offset.end is not None:
            wanted &= headers.base_offset < offset.end
        if epoch.start is not None:
            wanted &= headers.epoch >= epoch.start
        if epoch.end is not None:
            wanted &= headers.epoch < epoch.end
        if timestamp.start is not None:
            wanted &= headers.max_timestamp >= timestamp.start
        return wanted

    def problem(self, chunk: Chunk, index: int, reason: str) -> Problem:
        headers = chunk.headers
        position = chunk.origin + int(headers.start[index])
        return Problem(
            position=position,
            reason=f"the batch at byte {position} {reason}",
            base_offset=int(headers.base_offset[index]),
            epoch=int(headers.epoch[index]),
            crc_ok=bool(chunk.crc_ok[index]) if self.options.verify_crc else None,
        )

    # Inflating

    def groups(self, chunk: Chunk, chosen: Array) -> Iterator[tuple[Array, bytes, Array, Array] | Problem]:
        """Yield batches, the area that holds their blocks of records, and where each block begins and ends there.

        The area is the chunk itself, unless some are compressed.
        """
        headers = chunk.headers
        if not headers.codec[chosen].any():
            if len(chosen):
                yield chosen, chunk.data, headers.start[chosen] + HEADER_SIZE, headers.end[chosen]
            return
        limit = self.options.max_inflated_bytes
        pieces: list[bytes] = []
        members: list[int] = []
        size = 0
        for index in chosen.tolist():
            try:
                piece = self.inflate(chunk, index)
            except CorruptBatchError as error:
                yield self.bad(chunk, index, f"cannot be decompressed: {error}")
                continue
            if members and size + len(piece) > limit:
                yield self.joined(members, pieces)
                pieces, members, size = [], [], 0
            pieces.append(piece)
            members.append(index)
            size += len(piece)
        if members:
            yield self.joined(members, pieces)

    def inflate(self, chunk: Chunk, index: int) -> bytes:
        headers = chunk.headers
        block = chunk.data[int(headers.start[index]) + HEADER_SIZE : int(headers.end[index])]
        codec = Codec(int(headers.codec[index]))
        return block if codec is Codec.NONE else decompress(codec, block, max_bytes=self.options.max_inflated_bytes)

    def joined(self, members: list[int], pieces: list[bytes]) -> tuple[Array, bytes, Array, Array]:
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        return np.array(members), b"".join(pieces), np.concatenate(([0], ends[:-1])), ends

    def bad(self, chunk: Chunk, index: int, reason: str) -> Problem:
        """Return what is wrong with a batch, or raise it."""
        problem = self.problem(chunk, index, reason)
        if self.options.mode == "FAILFAST":
            where = f"{self.file.path}, byte {problem.position}"
            raise CorruptBatchError(
                f"{where}: the batch of offset {problem.base_offset} {reason}",
                path=self.file.path,
                position=problem.position,
            )
        return problem

    # Decoding

    def decoded(
        self, chunk: Chunk, members: Array, area: bytes, start: Array, end: Array
    ) -> tuple[Rows, list[Problem]]:
        headers = chunk.headers.select(members)
        blocks = Blocks(
            area=area, start=start, end=end, count=headers.count, last_delta=headers.last_offset - headers.base_offset
        )
        fields, bad = decode(blocks)
        problems = [
            self.bad(
                chunk, int(members[index]), self.why(headers, int(index), area[int(start[index]) : int(end[index])])
            )
            for index in bad.tolist()
        ]
        rows = Rows(
            split=self.split,
            headers=headers,
            positions=chunk.origin + headers.start,
            area=area,
            fields=fields,
            offset=headers.base_offset[fields.batch] + fields.offset_delta,
            millis=millis_of(headers, fields),
            crc_ok=chunk.crc_ok[members] if self.options.verify_crc else None,
        )
        odd = np.unique(fields.batch[abs(rows.millis) > _MILLIS_MAX]).tolist()
        problems += [self.bad(chunk, int(members[index]), "has a timestamp that no date can be") for index in odd]
        if odd:
            rows = rows.select(~np.isin(fields.batch, odd))
        return self.within(rows), problems

    def why(self, headers: Headers, index: int, block: bytes) -> str:
        """Return what the plain reader says of a block that was refused."""
        try:
            for _ in decode_block(
                block,
                int(headers.count[index]),
                base_offset=int(headers.base_offset[index]),
                last_offset=int(headers.last_offset[index]),
                base_timestamp=int(headers.base_timestamp[index]),
            ):
                pass
        except CorruptBatchError as error:
            return f"has records that do not fit: {error}"
        raise InvariantError(
            f"{self.file.path}: the batch of offset {headers.base_offset[index]} is refused by one reader"
        )

    def within(self, rows: Rows) -> Rows:
        """Return the records within the bounds, and of the type that is decoded."""
        bounds = self.bounds
        keep = None
        for wanted, values in ((bounds.offset, rows.offset), (bounds.timestamp, rows.millis)):
            for bound, kept in ((wanted.start, np.greater_equal), (wanted.end, np.less)):
                if bound is not None:
                    keep = kept(values, bound) if keep is None else keep & kept(values, bound)
        if bounds.timestamp and keep is not None:
            keep &= rows.millis != NO_TIMESTAMP
        return rows if keep is None or keep.all() else rows.select(keep)

    # Columns

    def table(self, rows: Rows) -> Table:
        return pa.RecordBatch.from_arrays([_COLUMNS[field.name](rows) for field in self.schema], schema=self.schema)

    def tables_of_type(self, rows: Rows, name: str) -> Iterator[Table]:
        """Yield the records of one type of Kafka's metadata, with their fields."""
        api_key, _, framed = frame_numbers(rows)
        rows = rows.select(framed & (api_key == record_class_named(name).api_key))
        if not len(rows):
            return
        values = binaries(rows.area, rows.fields.value_start, rows.fields.value_size).to_pylist()
        structs, reasons = decoded(values, name)
        if reasons and self.options.mode == "FAILFAST":
            index = min(reasons)
            position = int(rows.per_record(rows.positions)[index])
            where = f"{self.file.path}, byte {position}: the record of offset {rows.offset[index]}"
            raise StorageError(f"{where} cannot be decoded: {reasons[index]}", path=self.file.path, position=position)
        problems = pa.array([reasons.get(index) for index in range(len(rows))], type=pa.string())
        made = {"record": structs, "problem": problems}
        table = pa.RecordBatch.from_arrays(
            [made.get(field.name) if field.name in made else _COLUMNS[field.name](rows) for field in self.schema],
            schema=self.schema,
        )
        yield table.filter(problems.is_null()) if self.options.mode == "DROPMALFORMED" else table

    def problem_table(self, problems: Sequence[Problem]) -> Table:
        columns = {
            **place_values(self.split),
            "offset": [problem.base_offset for problem in problems],
            "epoch": [problem.epoch for problem in problems],
            "batch_base": [problem.base_offset for problem in problems],
            "crc_ok": [problem.crc_ok for problem in problems],
            "problem": [problem.reason for problem in problems],
            "position": [problem.position for problem in problems],
        }
        return table_of(columns, len(problems), self.schema)


def place_values(split: Split) -> dict[str, Any]:
    """Return what is the same for all rows of a split."""
    file = split.file
    is_log = file.kind is Kind.LOG
    return {
        "cluster": file.labels.cluster,
        "replica": file.labels.replica,
        "topic": file.labels.topic,
        "partition": file.labels.partition,
        "origin": "log" if is_log else "snapshot",
        "snapshot_end_offset": None if is_log else file.offset,
        "snapshot_epoch": None if is_log else file.epoch,
        "segment": file.path,
    }


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
    return pa.array((millis * 1_000).view("datetime64[us]"), mask=missing if missing.any() else None).cast(TIMESTAMP)


def binaries(area: bytes, start: Array, size: Array) -> Any:
    """Return the bytes at these places, in ascending order; null where the size is negative."""
    count = len(start)
    absent = size < 0
    if count == 0 or absent.all():
        return pa.nulls(count, pa.binary())
    # Value, gap, value, gap, ...: offsets of Arrow must be back to back, and every second range is a value.
    offsets = np.empty(2 * count, dtype=np.int32)
    offsets[0::2] = start
    offsets[1::2] = start + np.maximum(size, 0)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(area)]
    both = pa.BinaryArray.from_buffers(pa.binary(), 2 * count - 1, buffers)
    chosen = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=absent if absent.any() else None)
    return both.take(chosen)


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
    """Return Kafka's metadata records as JSON in the form of Kafka's tools; null for what is none, or is not known."""
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
    return lambda rows: repeated(place_values(rows.split)[name], len(rows), kind)


def _frame_column(number: int) -> Callable[[Rows], Any]:
    def column(rows: Rows) -> Any:
        numbers = frame_numbers(rows)
        return pa.array(numbers[number].astype(np.int32), mask=~numbers[2])

    return column


_COLUMNS: Final[dict[str, Callable[[Rows], Any]]] = {
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
}
