"""Conditions on columns: which rows a query wants, judged before the other columns of a row are made.

A condition means exactly what the same comparison means in SQL: a null passes none, except the one that asks for it. So
the caller need not check again. Conditions that are joined all have to hold.

They save work in three places. A file is not read at all if its labels (`replica = '1'`) do not meet them. Records
whose type, key or offset does not are dropped as soon as it is known where they begin: their values are neither copied
nor decoded. The rest, any column and any view, is judged in the finished table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import pyarrow as pa

from kraftlib.analysis.log_files import Kind, LogFile
from kraftlib.analysis.options import Bounds

IN: Final = "in"
IS_NULL: Final = "is null"
IS_NOT_NULL: Final = "is not null"

_COMPARED: Final = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_TESTS: Final = {IS_NULL: "is_null", IS_NOT_NULL: "is_valid"}
"""Tests, and the names of Arrow's functions for them."""
_PYTHON: Final[dict[Any, tuple[type, ...]]] = {
    pa.int32(): (int,),
    pa.int64(): (int,),
    pa.bool_(): (bool,),
    pa.string(): (str,),
    pa.binary(): (bytes, bytearray),
    pa.timestamp("us", tz="UTC"): (datetime,),
}


@attrs.frozen(kw_only=True)
class Condition:
    """A test of one column, of the type that the column has."""

    column: str
    test: str
    """IN, IS_NULL, IS_NOT_NULL, or one of `<`, `<=`, `>`, `>=`."""
    values: Any = None
    """An Arrow array: the value to compare with; one value, except for IN."""

    def holds(self, column: Any) -> Any:
        """Return for each value of an Arrow array whether it passes; never null."""
        import pyarrow.compute as pc  # 0.06 s of processor, which a task without conditions saves

        if self.test in _TESTS:
            return pc.call_function(_TESTS[self.test], [column])
        if self.test == IN:
            return pc.is_in(column, value_set=self.values)
        return pc.fill_null(pc.call_function(_COMPARED[self.test], [column, self.values[0]]), False)


@attrs.frozen(kw_only=True)
class Pruning:
    """The rows that a read leaves out: maybe those outside of the bounds, and always those that fail a condition."""

    bounds: Bounds = Bounds()
    conditions: tuple[Condition, ...] = ()

    def apply(self, table: Any) -> Any:
        """Return the rows of a table that meet all conditions."""
        for one in self.conditions:
            if table.num_rows:
                table = table.filter(one.holds(table.column(one.column)))
        return table

    def may_hold(self, file: LogFile) -> bool:
        """Whether a file can have a row that meets all conditions, by the facts that all its rows share."""
        known = place_values(file)
        return all(
            one.holds(pa.array([known[one.column]], type=None if one.values is None else one.values.type))[0].as_py()
            for one in self.conditions
            if one.column in known
        )


def condition_on(field: Any, test: str, values: Sequence[object] = ()) -> Condition | None:
    """Return a condition on a column, given as an Arrow field; None, if the values are not of its type."""
    if test in _TESTS:
        return Condition(column=field.name, test=test)
    expected = _PYTHON.get(field.type, ())
    if not values or any(type(value) not in expected or not _is_moment(value) for value in values):
        return None
    try:
        return Condition(column=field.name, test=test, values=pa.array(values, type=field.type))
    except (pa.ArrowInvalid, OverflowError):  # a number that the column cannot have
        return None


def place_values(file: LogFile) -> dict[str, Any]:
    """Return what is the same for all rows of a file, by column."""
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


def _is_moment(value: object) -> bool:
    """Whether a date says of which zone it is; true for all that is no date."""
    return not isinstance(value, datetime) or value.tzinfo is not None
