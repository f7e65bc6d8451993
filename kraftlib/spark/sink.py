"""`df.write.format("kraft")`: a table becomes a checkpoint, in two phases.

Tasks check and sort what they get and leave it as runs, Arrow files in a staging directory beside the target, each
attempt under a name of its own. The commit merges the runs of the attempts that Spark accepted, writes the checkpoint,
reads it back and gives it its name. So the order of rows, the number of tasks and what adaptive execution makes of them
change nothing: equal rows, equal bytes. In any case the staging directory of this job goes, and no other.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kraftlib.analysis.checkpoint import (
    CheckpointOptions,
    parse_checkpoint_options,
    prepare,
    write_rows,
)
from kraftlib.analysis.checkpoint_rows import BLOCK_ROWS, merged, sorted_runs
from kraftlib.errors import ConfigError
from kraftlib.spark.brief import brief
from kraftlib.spark.sessions import prepare_worker
from kraftlib.storage import files

_STAGING: Final = ".kraft-"
_COLUMNS: Final = {
    "key": {"binary", "string"},
    "value": {"binary", "string"},
    "type": {"tinyint", "smallint", "int", "bigint"},
    "version": {"tinyint", "smallint", "int", "bigint"},
}


def checkpoint_writer(options: Mapping[str, str], schema: Any, *, overwrite: bool) -> CheckpointWriter:
    """Return the writer of a checkpoint. Raises: ConfigError, before anything runs, and StorageError."""
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise ConfigError(
                f"a checkpoint is written from {', '.join(_COLUMNS)}; the column {field.name!r} is none of them: select"
                " those first"
            )
        if field.dataType.simpleString() not in _COLUMNS[field.name]:
            raise ConfigError(f"the column {field.name!r} is {field.dataType.simpleString()}, which does not fit")
    missing = {"key", "value"} - set(schema.names)
    if missing:
        raise ConfigError(f"a checkpoint is written from key and value, and {sorted(missing)} is missing")
    parsed = parse_checkpoint_options(options)
    prepare(parsed, overwrite=overwrite)
    writer = CheckpointWriter(parsed, overwrite=overwrite)
    # Here and not by the tasks: one that runs on while its job is given up must not make it again.
    with files.storage_errors("make the directory", writer.staging):
        writer.staging.mkdir(parents=True)
    return writer


class Runs(WriterCommitMessage):
    """The paths of the sorted runs that one task wrote."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths


class CheckpointWriter(DataSourceArrowWriter):
    """Made once and pickled, so that its job id is the same in all tasks and at the commit."""

    def __init__(self, options: CheckpointOptions, *, overwrite: bool) -> None:
        self.checkpoint_options = options
        self.overwrite_existing = overwrite
        self.staging = options.path / f"{_STAGING}{uuid.uuid4().hex}"

    @brief
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Leave the rows of one task as sorted runs."""
        prepare_worker()
        paths = []
        for run in sorted_runs(iterator):
            path = self.staging / f"{uuid.uuid4().hex}.arrow"
            with (
                files.storage_errors("write", path),
                pa.OSFile(str(path), "wb") as sink,
                pa.ipc.new_file(sink, run.schema) as writer,
            ):
                writer.write_table(run, max_chunksize=BLOCK_ROWS)
            paths.append(str(path))
        return Runs(paths)

    @brief
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Merge the runs into the checkpoint. Fails as a whole, and then nothing but the runs was written."""
        try:
            self.checkpoint_options.path.mkdir(parents=True, exist_ok=True)
            paths = [path for message in messages if isinstance(message, Runs) for path in message.paths]
            runs = [_blocks(Path(path)) for path in paths]
            write_rows(merged(runs), self.checkpoint_options, overwrite=self.overwrite_existing)
        finally:
            self._sweep()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks of this job left, those included that died without a message."""
        self._sweep()

    def _sweep(self) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)


def _blocks(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])
