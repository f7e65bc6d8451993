"""The readers of the data source `kraft`: Spark plans with `analysis.splits` and reads with `analysis.reading`.

Filters reach the source only where the session allows it, and a reader that could take them makes the query fail where
it does not: hence two classes of readers. A comparison of a column with values is taken over, to the row; everything
else is handed back to Spark. A comparison that was taken over holds for all other uses of that DataFrame, too, filtered
or not: so it is for `kraftlib.spark.lookup`, which asks once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import attrs
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from kraftlib.analysis.conditions import IN, IS_NOT_NULL, IS_NULL, Condition, Pruning, condition_on
from kraftlib.analysis.options import Bounds, Range, ReadOptions, parse_options, to_millis
from kraftlib.analysis.reading import read_splits, schema_for
from kraftlib.analysis.schemas import REPORTS, Schema, stands_for_many
from kraftlib.analysis.splits import Split, plan
from kraftlib.errors import ConfigError
from kraftlib.spark.brief import brief, brief_rows
from kraftlib.spark.sessions import prepare_worker
from kraftlib.spark.types import same_type, type_name

_PRUNED_BY: Final = {
    "records": {"offset": "offset", "epoch": "epoch", "timestamp": "timestamp"},
    "batches": {"epoch": "epoch"},
}
"""View -> column -> the bound that a filter on it narrows."""

_SIGNS: Final[dict[type[Filter], str]] = {
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


def asked(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a table, checked. Raises: ConfigError that names the option and the remedy."""
    options = parse_options(given)
    if not options.path:
        raise ConfigError(
            "there is no path: .load(path) or the option 'path' says where the logs are; a table that was created"
            " with a list of columns has none: leave them out, and name them in the option 'columns'"
        )
    return options


def reader_of(given: Mapping[str, str], schema: Any) -> DataSourceReader:
    """Return the reader for these options; `schema` may hold fewer columns than were offered. Raises: ConfigError."""
    options = narrowed(asked(given), schema)
    return PushdownReader(options) if options.pushdown else Reader(options)


def narrowed(options: ReadOptions, schema: Any) -> ReadOptions:
    """Return the options with the columns of a Spark schema. Raises: ConfigError for a column of another type."""
    names = tuple(schema.names)
    ours = schema_for(attrs.evolve(options, columns=names))
    for field, wanted in zip(ours, schema.fields, strict=True):
        if not same_type(field.type, wanted.dataType):
            kind = wanted.dataType.simpleString()
            raise ConfigError(
                f"the column {field.name!r} is {type_name(field.type)}, not {kind}; read it so, and"
                f" cast({field.name} as {kind})"
            )
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
        self.pruning = Pruning()

    @brief
    def partitions(self) -> list[Splits | Report]:
        """Return the work of each task."""
        if self.read_options.view in REPORTS:
            return [Report()]
        return [Splits(group) for group in plan(self.read_options, self.pruning)]

    @brief_rows
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches. Where nothing was planned, Spark makes up an empty partition."""
        prepare_worker()
        options = self.read_options
        if isinstance(partition, Report):
            from kraftlib.analysis.reports import report_for

            yield from report_for(options).select(options.columns).to_batches()
        elif isinstance(partition, Splits):
            yield from read_splits(partition.splits, options, schema_for(options), self.pruning)


class PushdownReader(Reader):
    """Plans fewer tasks and reads fewer batches, where filters allow it."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 (Spark's name)
        """Narrow what is read, and yield the filters that Spark has to judge itself."""
        options = self.read_options
        self.pruning, left = pruning_of(filters, options.view, schema_for(options))
        yield from left


def pruning_of(filters: list[Filter], view: str, schema: Schema) -> tuple[Pruning, list[Filter]]:
    """Return what of filters a reader of `schema` does itself, and the filters that it does not do to the row."""
    if stands_for_many(schema.names):  # a filter on the rows is none on the records that they stand for
        return Pruning(), filters
    bounds, conditions, left = Bounds(), [], []
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        name = path[0] if len(path) == 1 else ""
        narrowed_by = _PRUNED_BY.get(view, {}).get(name)
        if narrowed_by is not None:
            bounds &= Bounds(**{narrowed_by: _range_of(one)})
        index = schema.get_field_index(name)
        condition = _condition_of(one, schema.field(index)) if index >= 0 and view not in REPORTS else None
        if condition is None:
            left.append(one)
        else:
            conditions.append(condition)
    return Pruning(bounds=bounds, conditions=tuple(conditions)), left


def _condition_of(one: Filter, field: Any) -> Condition | None:
    """Return a filter on a column as a condition; None, if there is no such one."""
    value: Any = getattr(one, "value", None)
    match one:
        case IsNull():
            return condition_on(field, IS_NULL)
        case IsNotNull():
            return condition_on(field, IS_NOT_NULL)
        case In():
            return condition_on(field, IN, [each for each in value if each is not None])  # nothing equals null
        case EqualTo() | EqualNullSafe():
            return condition_on(field, IN, [value])
        case LessThan() | LessThanOrEqual() | GreaterThan() | GreaterThanOrEqual():
            return condition_on(field, _SIGNS[type(one)], [value])
    return None


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
