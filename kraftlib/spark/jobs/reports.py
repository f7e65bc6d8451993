"""The state of a Kafka cluster as of an offset, on Spark: executors read, and one of them folds.

A fold is one record after the other, and what it makes fits into a controller's heap: so it is one task. What is spread
is the reading before it and whatever is asked of the table behind it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import reduce
from typing import Any

from kraftlib.analysis.options import ReadOptions, pin_text
from kraftlib.analysis.reading import options_of
from kraftlib.analysis.replicas import check_one_log
from kraftlib.analysis.reports import FOLDED, SCHEMAS, check_report, folded, offset_at, parts_as_of, rows_of
from kraftlib.spark.tables import read
from kraftlib.spark.types import ddl_of


def report(
    spark: Any,
    path: str | os.PathLike[str],
    what: str,
    *,
    at_offset: int | None = None,
    at_timestamp: object = None,
    **options: object,
) -> Any:
    """Return a DataFrame of `what` (topics, partitions, brokers …) as of an offset, which is exclusive, or a time.

    The answer is that of `kraftlib.analysis.reports.report`, and so are the errors.
    """
    check_report(what)
    asked = options_of(path, **options)
    check_one_log(asked)
    parts = parts_as_of(asked, offset_at(asked, at_offset, at_timestamp))
    # A checkpoint's rows come before the log's; its offsets are places in the file.
    frames = [_read_part(spark, part) for part in parts]
    records = reduce(lambda one, other: one.unionByName(other), frames)

    def fold(batches: Iterator[Any]) -> Iterator[Any]:
        yield from rows_of(folded(batches, parts), what).to_batches()

    ordered = records.repartition(1).sortWithinPartitions(records.origin.desc(), "offset")
    return ordered.select(*FOLDED).mapInArrow(fold, ddl_of(SCHEMAS[what]))


def _read_part(spark: Any, part: ReadOptions) -> Any:
    offset = part.bounds.offset
    return read(
        spark,
        part.path,
        columns=FOLDED,
        include=part.include,
        pin=pin_text(part.pin or ()),
        startOffset=offset.start,
        endOffset=offset.end,
        mode=part.mode,
        tail=part.tail,
    )
