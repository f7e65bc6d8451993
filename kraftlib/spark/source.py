"""The data source `kraft`: Spark plans with `analysis.splits` and reads with `analysis.reading`.

Streams and checkpoints have modules of their own, which are loaded when they are asked for.

Spark calls this in short-lived processes: an object of these classes is pickled, plans or reads, and is gone. Rows
leave as Arrow batches; as tuples they would be slower than one process without Spark.

Filters reach the source only where the session allows it, and a reader that could take them makes the query fail where
it does not: hence two classes of readers. What is pushed down only prunes; Spark's own filter stays on top. It prunes
whatever else is asked of that DataFrame, too, filtered or not: so it is for `kraftlib.spark.lookup`, which asks once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import attrs
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from kraftlib.analysis.options import Bounds, Range, ReadOptions, parse_options, to_millis
from kraftlib.analysis.reading import read_splits, schema_for
from kraftlib.analysis.reports import report_for
from kraftlib.analysis.schemas import REPORTS
from kraftlib.analysis.splits import Split, plan
from kraftlib.errors import ConfigError
from kraftlib.spark.catalog import metadata_of, options_in, without_properties
from kraftlib.spark.sessions import prepare_worker
from kraftlib.spark.stream_options import without_stream_options
from kraftlib.spark.types import ddl_of, same_type, struct_of

FORMAT: Final = "kraft"

_PRUNED_BY: Final = {
    "records": {"offset": "offset", "epoch": "epoch", "timestamp": "timestamp"},
    "batches": {"epoch": "epoch"},
}
"""View -> column -> the bound that a filter on it narrows."""


class KraftDataSource(DataSource):
    """Logs and snapshots of a metadata quorum, ours or Kafka's, as tables."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options, self.is_table = without_properties(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> Any:
        """Return the columns that the options ask for; for a table in a catalog the options stand with them."""
        schema = schema_for(self.asked(without_stream_options(self.options)))
        return struct_of(schema, metadata_of(self.options)) if self.is_table else ddl_of(schema)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return what plans and reads; `schema` may hold fewer columns than were offered."""
        options = narrowed(self.asked(options_in(schema) | dict(self.options)), schema)
        return PushdownReader(options) if options.pushdown else Reader(options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return what follows an archive, or a live quorum by way of one."""
        from kraftlib.spark.stream import stream_reader

        given = options_in(schema) | dict(self.options)
        narrowed(self.asked(without_stream_options(given)), schema)
        return stream_reader(given, schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """Return what writes a checkpoint."""
        from kraftlib.spark.sink import checkpoint_writer

        return checkpoint_writer(self.options, schema, overwrite=overwrite)

    def asked(self, given: Mapping[str, str]) -> ReadOptions:
        """Return the options, checked."""
        options = parse_options(given)
        if not options.path:
            raise ConfigError(
                "there is no path: .load(path) or the option 'path' says where the logs are; a table that was created"
                " with a list of columns has none: leave them out, and name them in the option 'columns'"
            )
        return options


def narrowed(options: ReadOptions, schema: Any) -> ReadOptions:
    """Return the options with the columns of a Spark schema. Raises: ConfigError for a column of another type."""
    names = tuple(schema.names)
    ours = schema_for(attrs.evolve(options, columns=names))
    for field, wanted in zip(ours, schema.fields, strict=True):
        if not same_type(field.type, wanted.dataType):
            raise ConfigError(f"the column {field.name!r} is {ddl_of([field])}, not {wanted.dataType.simpleString()}")
    return attrs.evolve(options, columns=names)


class Splits(InputPartition):
    """The work of one task."""

    def __init__(self, splits: list[Split]) -> None:
        self.splits = splits


class Report(InputPartition):
    """The one task of a report."""

    def __init__(self) -> None:
        """Hold nothing: the options say everything."""


class Reader(DataSourceReader):
    """Plans and reads, unaware of filters."""

    def __init__(self, options: ReadOptions) -> None:
        self.read_options = options
        self.pruning = Bounds()

    def partitions(self) -> list[Splits | Report]:
        """Return the work of each task."""
        if self.read_options.view in REPORTS:
            return [Report()]
        return [Splits(group) for group in plan(self.read_options, self.pruning)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches. Where nothing was planned, Spark makes up an empty partition."""
        prepare_worker()
        options = self.read_options
        if isinstance(partition, Report):
            yield from report_for(options).select(options.columns).to_batches()
        elif isinstance(partition, Splits):
            yield from read_splits(partition.splits, options, schema_for(options), self.pruning)


class PushdownReader(Reader):
    """Plans fewer tasks and reads fewer batches, where filters allow it."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 (Spark's name)
        """Narrow what is read. Every filter is handed back, for Spark to have the last word."""
        self.pruning = pruning_of(filters, _PRUNED_BY.get(self.read_options.view, {}))
        yield from filters


def pruning_of(filters: list[Filter], columns: Mapping[str, str]) -> Bounds:
    """Return bounds within which every row lies that passes all filters."""
    bounds = Bounds()
    for one in filters:
        name = columns.get(one.attribute[0]) if len(getattr(one, "attribute", ())) == 1 else None
        if name is not None:
            bounds &= Bounds(**{name: _range_of(one)})
    return bounds


def _range_of(one: Filter) -> Range:
    """Return the range of whole numbers outside of which a filter lets nothing pass."""
    if isinstance(one, In):
        numbers = [number for value in one.value if (number := _number(value)) is not None]
        if len(numbers) != len(one.value) or not numbers:
            return Range()
        return Range(start=min(numbers), end=max(numbers) + 1)
    value = _number(getattr(one, "value", None))
    if value is None:
        return Range()
    match one:
        case EqualTo() | EqualNullSafe():
            return Range(start=value, end=value + 1)
        case GreaterThan() | GreaterThanOrEqual():
            return Range(start=value)  # a timestamp was rounded down, so "greater" may be equal here
        case LessThan() | LessThanOrEqual():
            return Range(end=value + 1)
    return Range()


def _number(value: object) -> int | None:
    if isinstance(value, datetime):
        return to_millis(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
