"""The latest changes, up to a bound: the source of answers to watches and to questions for the history of a key.

The bound counts what the records changed and nothing else. So every replica forgets the same changes at the same
record, and a restored one holds those that the writer held.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from kraftlib.coordination.access import BEFORE_ALL
from kraftlib.coordination.messages import Answer, Event, Selector, Watched
from kraftlib.types import Offset

BEFORE_NAME = "\0"
CHANGES_MAX = 10_000
BYTES_MAX = 8 * 1024 * 1024
"""Bytes of the names and values in it."""

Row = Answer.Row


def row_size(row: Row) -> int:
    """Return what a change counts for."""
    value = row.value
    return 64 + len(row.name) + len(row.owner) + (0 if value is None else len(value))


def selects(selector: Selector, row: Row) -> bool:
    """Whether a selector takes a change."""
    if row.event > Event.DELETED:
        return selector.watched == Watched.LOCK and row.name == selector.name
    if selector.watched == Watched.PREFIX:
        return row.name.startswith(selector.name)
    return selector.watched == Watched.KEY and row.name == selector.name


def _names_of(rows: Iterable[Row]) -> str:
    return "".join([BEFORE_NAME + row.name for row in rows])


class History:
    """Rows by the offset of their record, ascending."""

    def __init__(self, start: Offset = BEFORE_ALL, records: Iterable[tuple[Offset, Sequence[Row]]] = ()) -> None:
        self.start = start
        """All that the records after this one have changed is here."""
        self.records: list[tuple[Offset, tuple[Row, ...]]] = [(offset, tuple(rows)) for offset, rows in records]
        self._names = [_names_of(rows) for _, rows in self.records]
        """The names of each record as one text, which is searched faster than its rows."""
        self._changes = sum(len(rows) for _, rows in self.records)
        self._bytes = sum(row_size(row) for _, rows in self.records for row in rows)

    def add(self, offset: Offset, rows: tuple[Row, ...]) -> None:
        """Take what a record has changed, and forget what is beyond the bound."""
        self.records.append((offset, rows))
        self._names.append(BEFORE_NAME + rows[0].name if len(rows) == 1 else _names_of(rows))
        self._changes += len(rows)
        for row in rows:
            self._bytes += row_size(row)
        if self._changes > CHANGES_MAX or self._bytes > BYTES_MAX:
            self._forget()

    def _forget(self) -> None:
        """Forget a quarter at once: taking one out of the front of a list costs as much as taking a thousand."""
        gone = 0
        while gone < len(self.records) and (self._changes > CHANGES_MAX * 3 // 4 or self._bytes > BYTES_MAX * 3 // 4):
            self.start, rows = self.records[gone]
            self._changes -= len(rows)
            self._bytes -= sum(map(row_size, rows))
            gone += 1
        del self.records[:gone], self._names[:gone]

    def after(self, since: Offset, selector: Selector, *, most: int) -> list[tuple[Offset, list[Row]]]:
        """Return the selected rows of the records after `since`, of at most `most` records."""
        found: list[tuple[Offset, list[Row]]] = []
        begin, name = bisect_right(self.records, since, key=itemgetter(0)), BEFORE_NAME + selector.name
        for at in [at for at in range(begin, len(self._names)) if name in self._names[at]]:
            offset, rows = self.records[at]
            selected = [row for row in rows if selects(selector, row)]
            if selected:
                found.append((offset, selected))
                if len(found) == most:
                    break
        return found
