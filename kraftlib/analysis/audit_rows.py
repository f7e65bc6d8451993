"""The rows that an audit judges: the batches of each replica of a log, and what cannot be read there.

Long stretches in which nothing changes, on any replica, are one row of many batches (`collapsed`): the work and the
report do not grow with the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import attrs

from kraftlib.analysis.log_files import Log
from kraftlib.records.checksum import crc32c

RUN_MIN: Final = 64
"""Shorter runs of batches are judged one by one."""

Content = tuple[int, int | None, int | None, int | None, int | None]
"""Base offset, last offset, epoch, length, CRC: equal for equal batches."""


@attrs.frozen(kw_only=True, order=True)
class ReplicaRange:
    """The offsets that one replica of a log has: [start, end). Equal, if it has no record."""

    log: Log = attrs.field(order=lambda log: tuple(map(str, log)))
    replica: str
    start: int
    end: int
    lag: int = 0
    """Number of offsets that the most advanced replica has beyond this one."""


@attrs.frozen(kw_only=True)
class Row:
    """A batch of one replica, or a place where one should be and cannot be read (`length` is None)."""

    replica: str
    segment: str
    position: int
    base_offset: int | None
    last_offset: int | None
    epoch: int | None
    length: int | None
    crc: int | None
    crc_ok: bool | None
    problem: str | None
    batches: int = 1
    """Of several batches in a row, `length` is that of all, and `crc` a sum over what they are."""
    end: tuple[str, int] | None = None
    """Segment and position where several batches in a row end."""

    @property
    def content(self) -> Content:
        """The fields that must be equal on all replicas."""
        return self.base_offset or 0, self.last_offset, self.epoch, self.length, self.crc

    @property
    def is_sound(self) -> bool:
        """Whether it is a batch whose CRC fits."""
        return self.length is not None and self.crc_ok is True

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong with it as far as its own replica tells."""
        return self.is_sound and self.problem is None

    @property
    def size(self) -> int:
        """Bytes of a batch."""
        return self.length or 0

    @property
    def end_offset(self) -> int | None:
        """One past its last offset; for an unreadable range, its beginning."""
        return self.base_offset if self.last_offset is None else self.last_offset + 1

    def leads_to(self, following: Row) -> bool:
        """Whether nothing stands between the two in the log."""
        segment, position = self.end or (self.segment, self.position + self.size)
        return self.length is None or segment != following.segment or position == following.position


def collapsed(rows: Iterable[Row]) -> list[Row]:
    """Return rows with long runs as one row each: sound batches in a row that the same replicas have.

    A run begins and ends in all replicas where it does in one, so that equal runs stay equal.
    """
    by_replica: dict[str, list[Row]] = defaultdict(list)
    holders: dict[Content, set[str]] = defaultdict(set)
    for row in sorted(rows, key=lambda row: (row.segment, row.position)):
        by_replica[row.replica].append(row)
        if row.is_clean:
            holders[row.content].add(row.replica)
    breaks: set[int | None] = set()
    for own in by_replica.values():
        breaks |= {own[0].base_offset, own[-1].end_offset}
        for before, row in pairwise(own):
            if not _is_run(before, row) or holders[before.content] != holders[row.content]:
                breaks |= {before.end_offset, row.base_offset}
    out: list[Row] = []
    for own in by_replica.values():
        run: list[Row] = []
        for row in own:
            if run and (row.base_offset in breaks or not _is_run(run[-1], row)):
                out += _as_one(run)
                run = []
            run.append(row)
        out += _as_one(run)
    return out


def _is_run(before: Row, row: Row) -> bool:
    return before.is_clean and row.is_clean and before.leads_to(row) and before.end_offset == row.base_offset


def _as_one(run: Sequence[Row]) -> list[Row]:
    if len(run) < RUN_MIN:
        return list(run)
    first, last = run[0], run[-1]
    return [
        attrs.evolve(
            first,
            last_offset=last.last_offset,
            length=sum(row.size for row in run),
            crc=crc32c(repr([row.content for row in run]).encode()),
            batches=sum(row.batches for row in run),
            end=(last.segment, last.position + last.size),
        )
    ]


def rows_of(table: Any) -> list[Row]:
    """Return the rows of a table with the columns of an audit."""
    names = [field.name for field in attrs.fields(Row) if field.name not in ("batches", "end")]
    return [Row(**row) for row in table.select(names).to_pylist()]
