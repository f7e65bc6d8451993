"""The state of a Kafka cluster as of an offset, on Spark: a view of the format, which one task folds.

A fold is one record after the other, and its result fits into a controller's heap: so it is one task. Spark adds the
queries of the table behind it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kraftlib.analysis.reading import options_of
from kraftlib.analysis.replicas import check_one_log
from kraftlib.analysis.reports import check_report, offset_at, parts_as_of
from kraftlib.spark.tables import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def report(
    spark: SparkSession,
    path: str | os.PathLike[str],
    what: str,
    *,
    at_offset: int | None = None,
    at_timestamp: object = None,
    **options: object,
) -> DataFrame:
    """Return a DataFrame of `what` (topics, partitions, brokers …) as of an offset, which is exclusive, or a time.

    The answer is that of `kraftlib.analysis.reports.report`, and so are the errors.
    """
    check_report(what)
    given = {**options, "view": what, "atOffset": at_offset, "atTimestamp": at_timestamp}
    asked = options_of(path, **given)
    check_one_log(asked)
    parts_as_of(asked, offset_at(asked))
    return read(spark, path, **given)
