"""Rows on their way into a checkpoint: checked, put into the one right order, merged from many sorted runs.

A checkpoint is the same bytes however its rows were spread over tasks, so the order must follow from the rows alone: by
kind, then by key. Kinds come as Kafka's own snapshots have them, since a partition makes no sense before its topic, and
nothing before `metadata.version`. A key only sorts and tells rows apart; KRaft's records have none.

Each task sorts what it gets into *runs*, Arrow files of rows in order. Merging takes from every run what is not beyond
the smallest of the blocks' ends, sorts that, and goes on: memory for one block of each run, whatever their size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kraftlib.analysis.sorting import order_of
from kraftlib.codec.varint import write_uvarint
from kraftlib.errors import ConfigError, KraftError, ProtocolError
from kraftlib.metadata.frame import FRAME_VERSION, decode_record
from kraftlib.metadata.table import RecordType, record_class

ROW: Final = pa.schema([pa.field("rank", pa.int32()), pa.field("key", pa.binary()), pa.field("value", pa.binary())])
"""A row that was checked: its kind as a number that sorts, its key, and the value to be written."""

RUN_BYTES: Final = 32 << 20
"""The bytes that are sorted at once. Four times as much takes four times as long a row: it is memory that was not
touched before, and to fetch a row from anywhere in it misses the processor's caches."""

BLOCK_ROWS: Final = 16_384

_FIRST: Final = 0
_UNTYPED: Final = 1
# Made once: to make a scalar Arrow looks for modules on the disk.
_NO_TYPE: Final = pa.scalar(_UNTYPED, pa.int32())
_NO_BYTES: Final = pa.scalar(0, pa.int32())
_R = RecordType
_ORDER: Final = (
    *(_R.FEATURE_LEVEL_RECORD, _R.REGISTER_BROKER_RECORD, _R.REGISTER_CONTROLLER_RECORD, _R.TOPIC_RECORD),
    *(_R.PARTITION_RECORD, _R.CONFIG_RECORD, _R.CLIENT_QUOTA_RECORD, _R.PRODUCER_IDS_RECORD),
    *(_R.ACCESS_CONTROL_ENTRY_RECORD, _R.USER_SCRAM_CREDENTIAL_RECORD, _R.DELEGATION_TOKEN_RECORD),
    _R.ZK_MIGRATION_STATE_RECORD,
)
"""The kinds of records that describe a state. All others change one, and have no place in a checkpoint."""

_RANKS: Final = {int(kind): _UNTYPED + 1 + place for place, kind in enumerate(_ORDER)}


def state_rank(kind: int) -> int | None:
    """Return a number that sorts a type of records as checkpoints do; None for one that is no part of a state.

    0 stays free: it is for the records that all others depend on.
    """
    return _RANKS.get(kind)


class RowError(KraftError):
    """A row cannot stand in a checkpoint. Nothing was written."""


def check_columns(schema: pa.Schema) -> None:
    """Check that there are `key` and `value`, perhaps `type` and `version`, and nothing else. Raises: ConfigError."""
    wanted = {"key": _is_bytes, "value": _is_bytes, "type": pa.types.is_integer, "version": pa.types.is_integer}
    for field in schema:
        if field.name not in wanted:
            raise ConfigError(
                f"a checkpoint is written from type, version, key and value; {field.name!r} is none of them"
            )
        if not wanted[field.name](field.type):
            raise ConfigError(f"the column {field.name!r} is of type {field.type}, which does not fit")
    missing = {"key", "value"} - set(schema.names)
    if missing:
        raise ConfigError(f"a checkpoint is written from key and value, and {sorted(missing)} is missing")


def _is_bytes(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary))


def checked(batch: pa.RecordBatch | pa.Table) -> pa.Table:
    """Return the rows of a batch with their ranks. Raises: RowError for the first one that has no place there."""
    check_columns(batch.schema)
    table = pa.table(batch) if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
    key, value = (table[name].cast(pa.binary()) for name in ("key", "value"))
    _refuse(pc.is_null(key), table, "has no key: by what is it told apart from others?")
    _refuse(pc.is_null(value), table, "has no value: a deletion is no part of a state; leave its key out")
    _refuse(pc.equal(pc.binary_length(value), _NO_BYTES), table, "has an empty value, which Kafka's readers reject")
    ranks = _ranks(table, value)
    return pa.table([ranks, key, value], schema=ROW)


def _refuse(wrong: Any, table: pa.Table, why: str) -> None:
    if pc.any(wrong).as_py():
        raise RowError(f"the row {_told(table, pc.index(wrong, True).as_py())} {why}")


def _told(table: pa.Table, row: int) -> str:
    """Return what a person needs to find a row again."""
    names = [name for name in ("type", "version", "key") if name in table.column_names]
    return ", ".join(f"{name}={table[name][row].as_py()!r}" for name in names)


def _ranks(table: pa.Table, value: Any) -> Any:
    """Return the rank of each row; values of rows with a type must say the same type in their frame."""
    if "type" not in table.column_names:
        return pa.chunked_array([pa.repeat(_NO_TYPE, len(table))])
    kind = table["type"].cast(pa.int64())
    version = table["version"].cast(pa.int64()) if "version" in table.column_names else pc.multiply(kind, 0)
    ranks = pc.multiply(kind, 0)
    pairs = pa.table([kind, version], names=["kind", "version"]).group_by(["kind", "version"]).aggregate([])
    for number, of_version in zip(pairs["kind"].to_pylist(), pairs["version"].to_pylist(), strict=True):
        if number is None:
            continue
        here = pc.fill_null(pc.and_(pc.equal(kind, number), pc.equal(version, of_version or 0)), False)
        _check_kind(number, of_version, table, here)
        frame = _frame(number, of_version)
        _refuse(
            pc.and_(here, pc.invert(pc.starts_with(value, pattern=frame))), table, f"does not begin with {frame.hex()}"
        )
        ranks = pc.if_else(here, _RANKS[number], ranks)
        if number == RecordType.FEATURE_LEVEL_RECORD:
            ranks = pc.if_else(pc.and_(here, _is_metadata_version(value, here)), _FIRST, ranks)
    return pc.fill_null(ranks, _UNTYPED).cast(pa.int32())


def _check_kind(number: int, version: int | None, table: pa.Table, here: Any) -> None:
    cls = record_class(number)
    if cls is None or version is None or version not in cls.valid_versions:
        _refuse(here, table, "is of a type and version that this release does not know")
        raise RowError(f"type={number}, version={version!r} is not known: every row with a type has a version, too")
    if number not in _RANKS:
        name = RecordType(number).name
        _refuse(here, table, f"is a {name}, which changes a state and is none: fold the log first (compact)")


def _frame(number: int, version: int | None) -> bytes:
    out = bytearray()
    for part in (FRAME_VERSION, number, version or 0):
        write_uvarint(out, part)
    return bytes(out)


def _is_metadata_version(value: Any, here: Any) -> Any:
    """Return which of the feature levels is the one that all others depend on."""
    flags = []
    for is_feature, data in zip(here.to_pylist(), value.to_pylist(), strict=True):
        try:
            flags.append(bool(is_feature) and getattr(decode_record(data)[0], "name", "") == "metadata.version")
        except ProtocolError as error:
            raise RowError(f"the feature level {data!r} cannot be decoded: {error}") from error
    return pa.chunked_array([pa.array(flags, pa.bool_())])


def in_order(table: pa.Table) -> pa.Table:
    """Return rows sorted by rank and key."""
    # In one piece first: to take rows from many costs Arrow twice as much.
    whole = table.combine_chunks()
    return whole.take(pa.array(order_of(whole["rank"], whole["key"]))).combine_chunks()


def sorted_runs(batches: Iterable[pa.RecordBatch], *, run_bytes: int = RUN_BYTES) -> Iterator[pa.Table]:
    """Yield the rows of `batches`, checked and in runs that are sorted each."""
    waiting: list[pa.Table] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(checked(batch))
            size += waiting[-1].nbytes
            if size >= run_bytes:
                yield in_order(pa.concat_tables(waiting))
                waiting, size = [], 0
    if waiting:
        yield in_order(pa.concat_tables(waiting))


def merged(runs: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yield all rows of sorted runs in one order. Raises: RowError for two rows of one kind and key."""
    last: pa.Table | None = None
    for table in _in_one_order(runs):
        both = table if last is None else pa.concat_tables([last, table])
        _refuse_twins(both)
        last = table.slice(len(table) - 1)
        yield table


def _in_one_order(runs: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    heads = [(block, run) for run in runs if (block := _next(run)) is not None]
    while heads:
        rank, key = min((_at(block, len(block) - 1) for block, _ in heads))
        taken: list[pa.Table] = []
        left: list[tuple[pa.Table, Iterator[pa.Table]]] = []
        for block, run in heads:
            count = _count_up_to(block, rank, key)
            if count:
                taken.append(block.slice(0, count))
            rest = block.slice(count) if count < len(block) else _next(run)
            if rest is not None:
                left.append((rest, run))
        heads = left
        yield taken[0] if len(taken) == 1 else in_order(pa.concat_tables(taken))


def _next(run: Iterator[pa.Table]) -> pa.Table | None:
    return next((block for block in run if len(block)), None)


def _at(block: pa.Table, row: int) -> tuple[int, bytes]:
    return block["rank"][row].as_py(), block["key"][row].as_py()


def _count_up_to(block: pa.Table, rank: int, key: bytes) -> int:
    """Return how many rows of a sorted block are not beyond this rank and key."""
    return bisect_right(range(len(block)), (rank, key), key=lambda row: _at(block, row))


def _refuse_twins(table: pa.Table) -> None:
    if len(table) < 2:
        return
    before, after = table.slice(0, len(table) - 1), table.slice(1)
    twins = pc.and_(pc.equal(before["key"], after["key"]), pc.equal(before["rank"], after["rank"]))
    if pc.any(twins).as_py():
        rank, key = _at(after, pc.index(twins, True).as_py())
        kind = "" if rank <= _UNTYPED else f" of {_ORDER[rank - _UNTYPED - 1].name}"
        raise RowError(
            f"the key {key!r}{kind} stands there twice: which of the two is the state? Fold them first (compact)"
        )
