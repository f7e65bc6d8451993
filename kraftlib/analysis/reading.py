"""Reading: the work of Spark's tasks on their splits, and the same in one process.

    table = read_table("/data/__cluster_metadata-0", columns="offset,epoch,value", startOffset=1000)

`read_table` plans and reads as Spark would, one split after the other: for small data it is all one needs, and for the
Spark source it is the twin that must give the same rows. The modules that plan and decode are imported when they are
first used: the driver of a Spark session only checks options here, and a process that plans decodes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kraftlib.analysis.options import ReadOptions, parse_options
from kraftlib.analysis.schemas import REPORTS, Schema, schema_of
from kraftlib.errors import ConfigError

if TYPE_CHECKING:
    from kraftlib.analysis.columns import Table
    from kraftlib.analysis.conditions import Pruning
    from kraftlib.analysis.splits import Split


def read_table(path: str | os.PathLike[str], **options: object) -> Any:
    """Return what is at `path` as one Arrow table; options are those of the Spark source, as keywords."""
    asked = options_of(path, **options)
    return pa.Table.from_batches(read(asked), schema=schema_for(asked))


def read(options: ReadOptions) -> Iterator[Table]:
    """Yield what is asked for as Arrow batches, in one process.

    Raises: CorruptBatchError, ConfigError, StorageError.
    """
    from kraftlib.analysis.splits import plan

    schema = schema_for(options)
    if options.view in REPORTS:
        raise ConfigError(f"the view {options.view!r} is a report: kraftlib.analysis.reports.report makes it")
    for group in plan(options):
        yield from read_splits(group, options, schema)


def options_of(path: str | os.PathLike[str], **options: object) -> ReadOptions:
    """Return keywords as options: text, numbers, booleans, and lists of columns."""
    return parse_options({"path": os.fspath(path), **text_options(options)})


def text_options(options: Mapping[str, object]) -> dict[str, str]:
    """Return keywords as the text that Spark passes on; None is not given."""
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def schema_for(options: ReadOptions) -> Schema:
    """Return the columns that the options ask for."""
    return schema_of(options.view, options.columns, decode=options.decode, decoder=options.value_decoder)


def read_splits(
    splits: Iterable[Split], options: ReadOptions, schema: Schema, pruning: Pruning | None = None
) -> Iterator[Table]:
    """Yield the rows of the splits of one task, without those that fail a condition of `pruning`."""
    from kraftlib.analysis.conditions import Pruning

    pruning = pruning or Pruning()
    for table in _tables(splits, options, schema, pruning):
        left = pruning.apply(table)
        if left.num_rows or not pruning.conditions:
            yield left


def _tables(splits: Iterable[Split], options: ReadOptions, schema: Schema, pruning: Pruning) -> Iterator[Table]:
    from kraftlib.analysis.batch_columns import batch_tables, file_table
    from kraftlib.analysis.chunks import chunks
    from kraftlib.analysis.record_tables import RecordColumns
    from kraftlib.analysis.splits import settled

    for planned in splits:
        split = settled(planned)
        if split is None:
            continue
        if options.view == "files":
            yield file_table(split, options, schema)
        elif options.view == "batches":
            for chunk in chunks(split, options, reuse=True):
                yield from batch_tables(split, chunk, options, schema, pruning)
        else:
            columns = RecordColumns(split, options, schema, pruning)
            for chunk in chunks(split, options):
                yield from columns.tables(chunk)
