"""From a log to its state: the latest of each key, a fold where records change other records, chains of increments.

The order in which records count is that of their *position*: of a log the offset; the rows of the newest snapshot stand
before all of the log that is read behind it. `kraftlib.spark.jobs` does the same on many processors, and these are the
twins that say what must come out.

"The latest of each key" is right only where a record replaces what was there. Where it changes it, or takes other
records with it, as most of Kafka's metadata records do, a `Reducer` says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kraftlib.analysis.checkpoint import CheckpointOptions, Written, write_rows
from kraftlib.analysis.checkpoint_rows import BLOCK_ROWS, checked
from kraftlib.analysis.log_files import Kind
from kraftlib.analysis.options import to_millis
from kraftlib.analysis.reading import options_of, read, read_table
from kraftlib.analysis.replicas import check_one_log
from kraftlib.analysis.reports import check_reach
from kraftlib.analysis.splits import chosen_files
from kraftlib.codec.declared import read as read_message
from kraftlib.errors import ConfigError, KraftError
from kraftlib.records.control import ControlType
from kraftlib.records.control_messages import KRaftVersionRecord, VotersRecord
from kraftlib.records.increment import Change, IncrementReader, IncrementWriter, check_chain, keyed, merge
from kraftlib.records.snapshot import SnapshotReader
from kraftlib.storage import files, names
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import OffsetAndEpoch

SNAPSHOT_POSITION: Final = -(2**62)
"""Added to the offsets of a snapshot's rows, which count from its beginning: they come before all of the log."""

ROWS: Final = "origin,control,offset,key,value"
"""The columns that make a state."""

QUORUM: Final = "origin,offset,control_type,value"
"""The columns of control records that say who votes."""

KRAFT_VERSION: Final = ControlType.KRAFT_VERSION.name.lower()
KRAFT_VOTERS: Final = ControlType.KRAFT_VOTERS.name.lower()
_OF_QUORUM: Final = pa.array([KRAFT_VERSION, KRAFT_VOTERS])


class Reducer(Protocol):
    """The meaning of records. It must depend on its arguments alone, and is sent to other processes."""

    def group_of(self, value: bytes) -> bytes:
        """Return what this record is folded with; groups know nothing of each other. Raises, if it cannot be told."""
        ...

    def fold(self, state: dict[bytes, bytes], value: bytes) -> None:
        """Change the state of a group, key to value, by the next record. Raises, if it is not understood."""
        ...


def check_whole(path: str | os.PathLike[str], **options: object) -> None:
    """Check that the files at `path` determine a state: one log, from its beginning or behind a snapshot.

    Raises: ConfigError for several replicas, and for a log that begins too late.
    """
    asked = options_of(path, **{"include": "latest", **options})
    check_one_log(asked)
    if asked.include == "log" and asked.bounds.offset.start is not None:
        return
    files = chosen_files(asked)
    ends = [file.offset for file in files if file.kind is Kind.SNAPSHOT]
    segments = [file for file in files if file.kind is Kind.LOG]
    check_reach(asked.path, segments, max(ends, default=0), asked.bounds.offset.end)


def with_positions(table: pa.Table) -> pa.Table:
    """Return position, key and value of data records, of columns as `ROWS` names them."""
    data = table.filter(pc.invert(table["control"]))
    base = pc.if_else(pc.equal(data["origin"], "snapshot"), SNAPSHOT_POSITION, 0)
    return pa.table({"position": pc.add(data["offset"], base), "key": data["key"], "value": data["value"]})


def latest(table: pa.Table, *, keep_deleted: bool = False) -> pa.Table:
    """Return key and value of the last record of each key, sorted by key; of `position`, `key` and `value`.

    A record without a value deletes its key, and is left out, unless it is to be kept for an increment.
    Raises: ConfigError for a record without a key.
    """
    if table["key"].null_count:
        raise ConfigError(
            f"{table['key'].null_count} records have no key, as is the rule in logs of KRaft: say what their key is, or"
            " give a reducer"
        )
    winners = table.group_by("key").aggregate([("position", "max")])["position_max"]
    kept = table.filter(pc.is_in(table["position"], value_set=winners.combine_chunks()))
    if not keep_deleted:
        kept = kept.filter(pc.is_valid(kept["value"]))
    return kept.sort_by("key").select(["key", "value"])


def folded(table: pa.Table, reducer: Reducer) -> pa.Table:
    """Return key and value of the state to which `position` and `value` lead, sorted by key."""
    groups: dict[bytes, dict[bytes, bytes]] = {}
    for value in table.sort_by("position")["value"].to_pylist():
        reducer.fold(groups.setdefault(reducer.group_of(value), {}), value)
    return state_table(groups.values())


def state_table(states: Iterable[dict[bytes, bytes]]) -> pa.Table:
    """Return the states of groups as one table, sorted by key. Raises: KraftError, if two groups have one key."""
    rows = sorted(item for state in states for item in state.items())
    for (key, _), (following, _) in pairwise(rows):
        if key == following:
            raise KraftError(
                f"two groups of the reducer have the key {key!r}: rows that belong together must be one group"
            )
    keys, values = ([row[column] for row in rows] for column in (0, 1))
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def state_rows(path: str | os.PathLike[str], **options: object) -> pa.Table:
    """Return position, key and value of the data records that make the state of one log, as `with_positions`."""
    check_whole(path, **options)
    return with_positions(read_table(path, columns=ROWS, **{"include": "latest", **options}))


def difference(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return what leads from one state to another, sorted by key: new values, and none for keys that are gone."""
    old, new = (dict(zip(one["key"].to_pylist(), one["value"].to_pylist(), strict=True)) for one in (before, after))
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(map(new.get, keys), pa.binary())})


def id_at(path: str | os.PathLike[str], end_offset: int | None = None, **options: object) -> tuple[OffsetAndEpoch, int]:
    """Return the id of a snapshot at an offset, or at the end of the log, and the time of its last record in ms.

    Raises: ConfigError, if the offset is inside a batch: a follower of such a snapshot would lack its rest.
    """
    near = {} if not end_offset else {"startOffset": end_offset - 1, "endOffset": end_offset}
    wanted = {**options, **near, "include": "log", "view": "batches", "columns": "last_offset,epoch,max_timestamp"}
    check_whole(path, **options)
    batches = read_table(path, **wanted).sort_by("last_offset")
    if not len(batches) or end_offset == 0:
        raise ConfigError(f"{os.fspath(path)} has no record before offset {end_offset}: there is no state to tell")
    last = batches.slice(len(batches) - 1).to_pylist()[0]
    end = last["last_offset"] + 1
    if end_offset is not None and end != end_offset:
        raise ConfigError(f"offset {end_offset} is amid a batch, where no snapshot can end: the batch ends at {end}")
    return OffsetAndEpoch(offset=end, epoch=last["epoch"]), to_millis(last["max_timestamp"])


def quorum_columns(table: pa.Table) -> tuple[int, VotersRecord | None]:
    """Return the kraft.version and the voters that the control records of one log come to.

    `table` has `origin`, `offset`, `control_type` and `value` of them.
    Raises: RemoteProtocolError for one that makes no sense.
    """
    kraft_version, voters = 0, None
    placed = table.append_column("late", pc.not_equal(table["origin"], "snapshot"))
    for row in placed.sort_by([("late", "ascending"), ("offset", "ascending")]).to_pylist():
        if row["control_type"] == KRAFT_VERSION:
            kraft_version = read_message(KRaftVersionRecord, row["value"], 0).kraft_version
        elif row["control_type"] == KRAFT_VOTERS:
            voters = read_message(VotersRecord, row["value"], 0)
    return kraft_version, voters if kraft_version else None


def quorum_at(path: str | os.PathLike[str], **options: object) -> tuple[int, VotersRecord | None]:
    """Return the kraft.version and the voters in force at the end of one log, or at `endOffset`."""
    asked = options_of(path, **{"include": "latest", **options, "columns": f"{QUORUM},control"})
    check_whole(path, **{"include": "latest", **options})
    said = [table.filter(table["control"]).drop_columns(["control"]) for table in map(_as_table, read(asked))]
    wanted = [table.filter(pc.is_in(table["control_type"], value_set=_OF_QUORUM)) for table in said]
    return quorum_columns(pa.concat_tables(wanted)) if wanted else (0, None)


def _as_table(batch: Any) -> pa.Table:
    return pa.Table.from_batches([batch])


# Chains --------------------------------------------------------------------------------------------


def write_increment(
    changes: pa.Table, directory: Path, *, base: OffsetAndEpoch, target: OffsetAndEpoch, timestamp_ms: int = 0
) -> Path:
    """Write what changed from `base` to `target`, as `latest(…, keep_deleted=True)` says; return the file."""
    check_chain(base, [(target, base)])
    path = directory / names.increment_name(target)
    partial = path.with_name(path.name + ".tmp")
    files.remove(partial)
    descriptor = files.create(partial, mode=files.FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as stream, files.storage_errors("write", partial):
            writer = IncrementWriter(
                stream.write, base=base, epoch=target.epoch, last_contained_log_timestamp=timestamp_ms
            )
            writer.append(_changes(changes))
            writer.freeze()
            stream.flush()
            os.fsync(stream.fileno())
        with IncrementReader(FileSnapshotSource(partial), epoch=target.epoch) as reader:
            reader.verify()
        files.rename(partial, path)
    finally:
        files.remove(partial)
    files.sync_directory(directory)
    return path


def _changes(table: pa.Table) -> Iterable[Change]:
    for batch in table.to_batches(max_chunksize=BLOCK_ROWS):
        yield from zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)


def timestamp_of(increment: Path) -> int:
    """Return the time of the last record that an increment covers, in ms. Raises: CorruptBatchError."""
    with IncrementReader(FileSnapshotSource(increment)) as reader:
        return reader.header.last_contained_log_timestamp


def merge_chain(
    base: Path, increments: Sequence[Path], options: CheckpointOptions, *, key_of: Callable[[bytes], bytes]
) -> Written:
    """Write the checkpoint to which a base and its increments lead: the very bytes of one that was built in full.

    `key_of` says the key of a value of the base, in whose order they stand there.
    Raises: ConfigError, if the increments do not lead on from each other to `options.snapshot_id`; CorruptBatchError.
    """
    base_id = names.parse_checkpoint_name(base.name)
    ids = [names.parse_increment_name(path.name) for path in increments]
    if base_id is None or None in ids:
        raise ConfigError(
            f"a chain is a checkpoint and increments, not {[base.name, *(path.name for path in increments)]}"
        )
    with SnapshotReader(FileSnapshotSource(base), epoch=base_id.epoch) as reader, ExitStack() as opened:
        readers = [
            opened.enter_context(IncrementReader(FileSnapshotSource(path), epoch=one.epoch))
            for path, one in zip(increments, ids, strict=True)
            if one
        ]
        end = check_chain(base_id, [(one, found.base) for one, found in zip(ids, readers, strict=True) if one])
        if end != options.snapshot_id:
            raise ConfigError(f"the chain leads to {end}, and the checkpoint is to be {options.snapshot_id}")
        values = (value for batch in reader.batches() for value in batch.values())
        rows = merge(keyed(values, key_of), *(found.changes() for found in readers))
        return write_rows(_tables(rows), options)


def _tables(rows: Iterable[tuple[bytes, bytes]]) -> Iterable[Any]:
    block: list[tuple[bytes, bytes]] = []
    for row in rows:
        block.append(row)
        if len(block) == BLOCK_ROWS:
            yield _table(block)
            block = []
    if block:
        yield _table(block)


def _table(block: list[tuple[bytes, bytes]]) -> pa.Table:
    keys, values = ([row[column] for row in block] for column in (0, 1))
    return checked(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}))
