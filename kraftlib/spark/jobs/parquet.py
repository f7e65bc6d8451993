"""Logs as Parquet, on Spark: each task writes what it reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kraftlib.analysis.export import BUCKET, PARTITIONED_BY, check_bucket, check_new
from kraftlib.analysis.options import pin_text
from kraftlib.analysis.reading import options_of
from kraftlib.analysis.splits import pin
from kraftlib.spark.tables import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def to_parquet(
    spark: SparkSession,
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    bucket: int = BUCKET,
    **options: object,
) -> None:
    """Write the records at `path` below the new directory `out`, by cluster and bucket of offsets.

    `spark.read.parquet(out)` then has the columns of the format and `bucket`. Raises: ConfigError, if `out` exists.
    """
    check_new(out)
    check_bucket(bucket)
    held = pin_text(pin(options_of(path, **options)))
    records = read(spark, path, **{**options, "pin": held})
    by_bucket = records.selectExpr("*", f"offset DIV {bucket} AS bucket")
    by_bucket.write.partitionBy(*PARTITIONED_BY).option("compression", "zstd").parquet(os.fspath(out))
