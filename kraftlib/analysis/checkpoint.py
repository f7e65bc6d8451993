"""Checkpoints from tables: the bulk way into a quorum, for data from a database, a dump, or a folded log.

The file has the bytes that `kraftlib.records.snapshot.SnapshotWriter` makes of the sorted values: equal rows, equal
bytes. It is read back before it gets its name, and it gets its name at once or not at all.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from kraftlib.analysis.ahead import ahead
from kraftlib.analysis.checkpoint_rows import BLOCK_ROWS, checked, in_order, merged
from kraftlib.analysis.encoder import encoded
from kraftlib.codec.declared import read, write
from kraftlib.errors import ConfigError, KraftError, StorageError
from kraftlib.records.control_messages import VotersRecord
from kraftlib.records.snapshot import SnapshotReader, SnapshotWriter
from kraftlib.storage import files, names, seeding
from kraftlib.storage.bootstrap import first_voters, parse_initial_controllers
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSource
from kraftlib.types import OffsetAndEpoch

BATCH_MAX_BYTES: Final = 1 << 20
BATCH_MAX_BYTES_LIMIT: Final = 8 << 20
"""Kafka's readers take no larger ones."""

_NAMES: Final = ("path", "endOffset", "epoch", "lastContainedLogTimestamp", "kraftVersion", "voters", "batchMaxBytes")
VOTERS_RECORD: Final = "record:"
"""Begins the option `voters` where it is a record of a log, in base64: with all listeners of each voter."""


@attrs.frozen(kw_only=True)
class CheckpointOptions:
    """The header of a checkpoint: everything except its rows."""

    path: Path
    """Directory in which it gets its name, `<end offset>-<epoch>.checkpoint`."""
    snapshot_id: OffsetAndEpoch
    last_contained_log_timestamp: int = 0
    """Ms since 1970: of the last record that it covers. Every batch is stamped with it."""
    kraft_version: int = 0
    voters: VotersRecord | None = None
    batch_max_bytes: int = BATCH_MAX_BYTES

    @property
    def target(self) -> Path:
        """The file that will be written."""
        return self.path / names.checkpoint_name(self.snapshot_id)


def parse_checkpoint_options(options: Mapping[str, str]) -> CheckpointOptions:
    """Read the options of a writer; names are compared without regard to case. Raises: ConfigError."""
    known = {name.lower(): name for name in _NAMES}
    given: dict[str, str] = {}
    for name, text in options.items():
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f", did you mean {known[near[0]]!r}?" if near else f"; known are {', '.join(_NAMES)}"
            raise ConfigError(f"unknown option {name!r}{hint}")
        given[known[name.lower()]] = text
    path = given.get("path", "")
    if not path:
        raise ConfigError("there is no path: .save(path) says in which directory the checkpoint is written")
    kraft_version = _number(given, "kraftVersion", 0, most=1)
    voters = _voters(given.get("voters", ""))
    if kraft_version >= 1 and not voters:
        raise ConfigError(
            "kraftVersion=1 without voters: a node that loads such a checkpoint knows of no quorum and stops; give"
            " voters=id@host:port:directoryId,…"
        )
    if voters and kraft_version < 1:
        raise ConfigError("voters stand in a checkpoint of kraftVersion=1 only: set it, or leave voters out")
    return CheckpointOptions(
        path=local_path(path),
        snapshot_id=OffsetAndEpoch(
            offset=_number(given, "endOffset", None, most=2**63 - 1),
            epoch=_number(given, "epoch", None, most=2**31 - 1),
        ),
        last_contained_log_timestamp=_number(given, "lastContainedLogTimestamp", 0, most=2**63 - 1),
        kraft_version=kraft_version,
        voters=voters,
        batch_max_bytes=_number(given, "batchMaxBytes", BATCH_MAX_BYTES, least=1_024, most=BATCH_MAX_BYTES_LIMIT),
    )


def voters_text(voters: VotersRecord) -> str:
    """Return the voters of a log as the text of the option `voters`."""
    return VOTERS_RECORD + base64.b64encode(write(voters, voters.version)).decode("ascii")


def _voters(text: str) -> VotersRecord | None:
    if not text.startswith(VOTERS_RECORD):
        return first_voters(parse_initial_controllers(text), listener_name="CONTROLLER") if text else None
    try:
        return read(VotersRecord, base64.b64decode(text.removeprefix(VOTERS_RECORD), validate=True), 0, expect_end=True)
    except (ValueError, KraftError) as error:
        raise ConfigError(f"voters={text!r} is no VotersRecord in base64: {error}") from error


def local_path(text: str) -> Path:
    """Return the path of a directory on this machine, or on a file system that is mounted. Raises: ConfigError."""
    text = text.removeprefix("file://") if text.startswith("file:///") else text.removeprefix("file:")
    if "://" in text:
        raise ConfigError(
            f"{text}: checkpoints are written where files can be renamed; write it to a mounted directory"
        )
    return Path(text)


def _number(given: Mapping[str, str], name: str, default: int | None, *, least: int = 0, most: int) -> int:
    text = given.get(name)
    if text is None and default is not None:
        return default
    if text is None:
        raise ConfigError(
            f"a checkpoint needs the option {name}: it stands for all records below endOffset, the last one of epoch"
        )
    if not text.strip().isdecimal() or not least <= int(text) <= most:
        raise ConfigError(f"{name}={text!r} must be a number from {least} to {most}")
    return int(text)


@attrs.frozen(kw_only=True)
class Written:
    """A checkpoint that was written."""

    path: Path
    records: int
    size: int
    sha256: str


def write_table(table: pa.Table, options: CheckpointOptions, *, overwrite: bool = False) -> Written:
    """Write the rows of a table, in whatever order they come: the whole job in one process."""
    rows = in_order(checked(table)) if len(table) else None
    return write_rows(merged([iter([rows])] if rows is not None else []), options, overwrite=overwrite)


def write_rows(rows: Iterable[pa.Table], options: CheckpointOptions, *, overwrite: bool = False) -> Written:
    """Write rows that are in order; all or nothing.

    Raises: StorageError, if there is a checkpoint of this id and it is not to be overwritten; RowError,
    RecordTooLargeError.
    """
    prepare(options, overwrite=overwrite)
    partial = options.path / names.partial_checkpoint_name(options.snapshot_id, secrets.randbelow(10**18))
    descriptor = files.create(partial, mode=files.FILE_MODE)
    try:
        try:
            with os.fdopen(descriptor, "wb", buffering=1 << 20) as stream, files.storage_errors("write", partial):
                records, digest = _write_into(stream, rows, options)
                stream.flush()
                os.fchmod(stream.fileno(), files.FILE_MODE & ~0o222)
                os.fsync(stream.fileno())
            _read_back(partial, options, records)
            size = files.size_of(partial)
            seeding.begin_in(options.path, options.snapshot_id.epoch, kraft_version=options.kraft_version)
            _name(partial, options.target, overwrite=overwrite)
        finally:
            files.remove(partial)
    finally:
        files.sync_directory(options.path)
    return Written(path=options.target, records=records, size=size, sha256=digest)


def prepare(options: CheckpointOptions, *, overwrite: bool) -> None:
    """Make the directory, and check that a checkpoint can be written there.

    Raises: StorageError, if it is there and is to stay; ConfigError, if a replica could not start with it.
    """
    with files.storage_errors("make the directory", options.path):
        options.path.mkdir(parents=True, exist_ok=True)
    seeding.check_voters(options.path, options.voters)
    if not overwrite and options.target.exists():
        raise StorageError(
            f"{options.target} exists, and a checkpoint never changes: choose another end offset or epoch, or the mode"
            " 'overwrite'",
            path=options.target,
        )


def _write_into(stream: Any, rows: Iterable[pa.Table], options: CheckpointOptions) -> tuple[int, str]:
    digest = hashlib.sha256()

    def write(data: bytes | memoryview) -> None:
        digest.update(data)
        stream.write(data)

    writer = SnapshotWriter(
        write,
        epoch=options.snapshot_id.epoch,
        last_contained_log_timestamp=options.last_contained_log_timestamp,
        kraft_version=options.kraft_version,
        voters=options.voters,
        batch_max_bytes=options.batch_max_bytes,
    )
    first = writer.next_offset
    batches = encoded(
        _values(ahead(rows)),
        first_offset=first,
        epoch=writer.epoch,
        timestamp_ms=writer.timestamp_ms,
        batch_max_bytes=options.batch_max_bytes,
    )
    # Three stages at a time: rows are merged, batches encoded, files written and hashed.
    with closing(ahead(batches)) as made:
        for batch in made:
            writer.put_batch(batch)
    records = writer.next_offset - first
    writer.freeze()
    return records, digest.hexdigest()


def _values(rows: Iterable[pa.Table]) -> Iterator[pa.BinaryArray]:
    """Yield the values in portions that stay in the processor's cache while they are encoded."""
    for table in rows:
        yield from (batch.column("value") for batch in table.to_batches(max_chunksize=BLOCK_ROWS))


def _read_back(path: Path, options: CheckpointOptions, records: int) -> None:
    """Read what was written: every checksum, header, footer and the number of records. Raises: StorageError."""
    with SnapshotReader(FileSnapshotSource(path), epoch=options.snapshot_id.epoch) as reader:
        found = sum(batch.record_count for batch in reader.batches())
    if found != records:
        raise StorageError(f"{path} reads back with {found} records, written were {records}", path=path)


def _name(partial: Path, target: Path, *, overwrite: bool) -> None:
    if overwrite:
        files.rename(partial, target)
        return
    with files.storage_errors("write", target):
        os.link(partial, target)  # unlike a rename it fails, if another process was faster
