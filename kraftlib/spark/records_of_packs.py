"""The rows of records, made in the JVM out of rows that stand for many: runs of equal ones, and packs of any.

Spark copies each row that it receives from Python into a row of its own before anything is computed. Of a run or a pack
it copies one, and what it compiles for a query takes the records out: a value is a part of the bytes of its pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kraftlib.analysis.options import ReadOptions
from kraftlib.analysis.schemas import ONCE_A_PACK, RUN_LENGTH, TOLD_BY_HEADERS, default_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ALWAYS: Final = ("packed_bytes", "packed_count")
_NEEDED: Final = {
    "timestamp": ("packed_time", "packed_times"),
    "type": ("packed_types",),
    "version": ("packed_versions",),
    "key": ("packed_key_places", "packed_key_sizes"),
    "value": ("packed_step", "packed_size", "packed_value_places", "packed_value_sizes"),
}
"""The columns of a pack that a column of its records is taken from."""

_TAKEN: Final = {
    "offset": "offset + _nth AS offset",
    "timestamp": "coalesce(get(packed_times, _nth), packed_time) AS timestamp",
    "type": "get(packed_types, _nth) AS type",
    "version": "get(packed_versions, _nth) AS version",
    "key": "substring(packed_bytes, get(packed_key_places, _nth), get(packed_key_sizes, _nth)) AS key",
    "value": (
        "substring(packed_bytes, coalesce(get(packed_value_places, _nth), 1 + _nth * packed_step),"
        " coalesce(get(packed_value_sizes, _nth), packed_size)) AS value"
    ),
}
"""The expression that takes a column of record number `_nth` out of a pack: by lists, or by numbers. An absent value is
null in a list, and a pack of absent values has null as size."""


def columns_of_runs(options: ReadOptions) -> tuple[str, ...] | None:
    """Return what to read instead, if all records of a batch have the same row, but for their offsets."""
    columns = options.columns or ()
    if not columns or not TOLD_BY_HEADERS.issuperset(columns) or not _is_plain(options):
        return None
    return (*columns, RUN_LENGTH)


def columns_of_packs(options: ReadOptions) -> tuple[str, ...] | None:
    """Return what to read instead, if values are asked for, and no more than a pack can hold.

    Without values, columns cost less than the bytes that they would be taken from.
    """
    if not _is_plain(options) or options.decode is not None or options.value_decoder is not None:
        return None
    columns = options.columns or default_columns(options.view)
    if "value" not in columns or not (ONCE_A_PACK | _NEEDED.keys()).issuperset(columns):
        return None
    once = [name for name in columns if name in ONCE_A_PACK]
    return (*once, *_ALWAYS, *(needed for name in columns for needed in _NEEDED.get(name, ())))


def _is_plain(options: ReadOptions) -> bool:
    """Whether each row is a record, and is filtered by Spark alone: no reports of damage, no conditions taken over."""
    return options.view == "records" and options.mode != "PERMISSIVE" and not options.pushdown


def records_of_runs(runs: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return a row for each record of `runs`. To make them in the JVM costs a third of sending them there."""
    if "offset" not in columns:
        return runs.selectExpr(*columns, f"explode(array_repeat(true, {RUN_LENGTH})) AS _one").select(*columns)
    made = runs.selectExpr(*columns, f"posexplode(array_repeat(true, {RUN_LENGTH})) AS (_nth, _one)")
    return made.selectExpr(*("offset + _nth AS offset" if name == "offset" else name for name in columns))


def records_of_packs(packs: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return a row for each record of `packs`.

    The filter, which holds for each pack, is what makes the compiled query fetch a pack's bytes once: without it they
    would be fetched, which is a copy, where they are used, for each record.
    """
    made = packs.where("packed_bytes IS NOT NULL")
    made = made.selectExpr("*", "posexplode(array_repeat(true, packed_count)) AS (_nth, _one)")
    return made.selectExpr(*(_TAKEN.get(name, name) for name in columns))
