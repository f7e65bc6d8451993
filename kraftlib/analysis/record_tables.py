"""The records of a chunk as tables: inflated, decoded, cut to the wanted columns, and their faults.

Inflated batches are decoded in groups, so that neither an honest nor a malicious batch asks for more memory than
`max_inflated_bytes` and a little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
import pyarrow as pa

from kraftlib.analysis.chunks import Chunk
from kraftlib.analysis.columns import (
    COLUMNS,
    NO_TIMESTAMP,
    Rows,
    Table,
    binaries,
    frame_numbers,
    millis_of,
    table_of,
)
from kraftlib.analysis.conditions import Pruning, place_values
from kraftlib.analysis.decoder import decode
from kraftlib.analysis.header_rows import are_believed, is_told_by_headers, rows_of_headers, runs_of_headers
from kraftlib.analysis.headers import Headers
from kraftlib.analysis.options import JSON, ReadOptions
from kraftlib.analysis.packs import packed_table
from kraftlib.analysis.record_places import Blocks
from kraftlib.analysis.schemas import PACKED, RUN_LENGTH, Schema
from kraftlib.analysis.splits import Split, bounds_of
from kraftlib.analysis.value_decoder import decoded_by
from kraftlib.analysis.varints import Array
from kraftlib.errors import CorruptBatchError, InvariantError, StorageError
from kraftlib.records.batch import HEADER_SIZE
from kraftlib.records.compression import Codec, decompress
from kraftlib.records.record import decode_block

if TYPE_CHECKING:
    from kraftlib.analysis.entities import Entity

_MILLIS_MAX: Final = (2**63 - 1) // 1_000

_KNOWN_EARLY: Final = frozenset(
    {"offset", "epoch", "timestamp", "control", "control_type", "type", "version", "key", "batch_base", "crc_ok"}
)
"""Columns that cost little where it is known where a record and its fields begin."""


@attrs.frozen(kw_only=True)
class Problem:
    """The report on a batch, or on a range of bytes, that cannot be read."""

    position: int
    reason: str
    base_offset: int | None
    epoch: int | None
    crc_ok: bool | None


class RecordColumns:
    """Makes tables of records out of the chunks of one split."""

    def __init__(self, split: Split, options: ReadOptions, schema: Schema, pruning: Pruning = Pruning()) -> None:
        self.split = split
        self.file = split.file
        self.options = options
        self.schema = schema
        self.bounds = bounds_of(self.file, options.bounds & pruning.bounds)
        self.by_headers = is_told_by_headers(options, schema, self.bounds)
        self.conditions = [one for one in pruning.conditions if one.column in _KNOWN_EARLY]

    def tables(self, chunk: Chunk) -> Iterator[Table]:
        """Yield the records of a chunk; with mode PERMISSIVE, also a row for each thing that is wrong.

        Raises: CorruptBatchError, with mode FAILFAST, for records that do not fit their batch.
        """
        headers = chunk.headers
        wanted = self.wanted(headers)
        found = [self.problem(chunk, index, reason) for index, reason in chunk.problems.items() if wanted[index]]
        wanted[list(chunk.problems)] = False
        if self.by_headers and are_believed(headers, wanted):
            rows = self.meeting_conditions(self.told_by_headers(chunk, np.flatnonzero(wanted)))
            if len(rows):
                yield self.table(rows)
            return
        for group in self.groups(chunk, np.flatnonzero(wanted)):
            if isinstance(group, Problem):
                found.append(group)
                continue
            rows, bad = self.decoded(chunk, *group)
            found += bad
            rows = self.meeting_conditions(rows)
            if self.options.about is not None:
                rows = rows.select(about(rows, self.options.about))
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

    def told_by_headers(self, chunk: Chunk, members: Array) -> Rows:
        """Return what is asked for of these batches, a row a record or a row a batch."""
        if RUN_LENGTH in self.schema.names:
            return runs_of_headers(self.split, chunk, members, self.bounds.offset, self.schema)
        return self.within(rows_of_headers(self.split, chunk, members))

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
        if not len(rows) or (rows.millis.min() >= -_MILLIS_MAX and rows.millis.max() <= _MILLIS_MAX):
            return self.within(rows), problems
        odd = np.unique(fields.batch[(rows.millis < -_MILLIS_MAX) | (rows.millis > _MILLIS_MAX)]).tolist()
        problems += [self.bad(chunk, int(members[index]), "has a timestamp that no date can be") for index in odd]
        return self.within(rows.select(~np.isin(fields.batch, odd))), problems

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

    def meeting_conditions(self, rows: Rows) -> Rows:
        """Return the records that meet the conditions, as far as these can be judged before values are touched."""
        for one in self.conditions:
            if len(rows):
                rows = rows.select(np.asarray(one.holds(COLUMNS[one.column](rows))))
        return rows

    # Columns

    def table(self, rows: Rows) -> Table:
        if not PACKED.keys().isdisjoint(self.schema.names):
            return packed_table(rows, self.schema)
        if RUN_LENGTH in self.schema.names and rows.run_length is None:
            rows = rows.runs()
        made = {"record": self.decoded_values} if self.options.value_decoder is not None else {}
        arrays = [made.get(field.name, COLUMNS[field.name])(rows) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def decoded_values(self, rows: Rows) -> pa.StructArray:
        """Return what the decoder of the option makes of values. Control records are none of its business."""
        is_data = ~rows.headers.is_control[rows.fields.batch]
        chosen = rows.select(is_data)
        values = binaries(chosen.area, chosen.fields.value_start, chosen.fields.value_size)
        where = f"{self.file.path}, offsets {rows.offset[0]} to {rows.offset[-1]}"
        structs = decoded_by(str(self.options.value_decoder), values, where=where)
        places = np.cumsum(is_data) - 1
        return structs.take(pa.array(places, mask=~is_data))

    def tables_of_type(self, rows: Rows, name: str) -> Iterator[Table]:
        """Yield the records of one type of Kafka's metadata, with their fields."""
        from kraftlib.analysis.metadata_columns import decoded, record_class_named

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
            [made.get(field.name) if field.name in made else COLUMNS[field.name](rows) for field in self.schema],
            schema=self.schema,
        )
        yield table.filter(problems.is_null()) if self.options.mode == "DROPMALFORMED" else table

    def problem_table(self, problems: Sequence[Problem]) -> Table:
        columns = {
            **place_values(self.file),
            "offset": [problem.base_offset for problem in problems],
            "epoch": [problem.epoch for problem in problems],
            "batch_base": [problem.base_offset for problem in problems],
            "crc_ok": [problem.crc_ok for problem in problems],
            "problem": [problem.reason for problem in problems],
            "position": [problem.position for problem in problems],
        }
        return table_of(columns, len(problems), self.schema)


def about(rows: Rows, wanted: frozenset[Entity]) -> Array:
    """Return which records of Kafka's metadata are about one of `wanted`; only those of the right types are decoded."""
    from kraftlib.analysis.entities import is_about, types_about

    api_key, _, framed = frame_numbers(rows)
    types = sorted({number for entity in wanted for number in types_about(entity.kind)})
    keep = framed & np.isin(api_key, types)
    for index in np.flatnonzero(keep).tolist():
        start, size = int(rows.fields.value_start[index]), int(rows.fields.value_size[index])
        keep[index] = is_about(rows.area[start : start + size], wanted)
    return keep
