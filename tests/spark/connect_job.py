"""What a client of Spark Connect does whose server has no kraftlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kraftlib import spark as kraft
from kraftlib.spark.jobs.audit import audit
from kraftlib.spark.jobs.compact import metadata
from kraftlib.spark.jobs.history import history
from kraftlib.spark.jobs.reports import report
from kraftlib.spark.jobs.sweep import sweep
from kraftlib.spark.shipping import knows_format


def main(remote: str, path: str, out: str) -> None:
    """Print what was found."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(remote).getOrCreate()
    before = knows_format(spark)
    log = kraft.read(spark, path)
    metadata(spark, path).write.format("kraft").mode("append").options(endOffset="275", epoch="4").save(out)
    found = {
        "before": before,
        "after": knows_format(spark),
        "rows": log.count(),
        "lookup": [row.offset for row in kraft.lookup(spark, path, "offset = 100").collect()],
        "findings": len(audit(spark, path).findings),
        "brokers": report(spark, path, "brokers").count(),
        "history": history(spark, path, "broker:10").count(),
        "checkpoint": next(Path(out).iterdir()).read_bytes().hex(),
        "seeds": [row.outcome for row in sweep(spark, range(2), tasks=2, until_ms=100).collect()],
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
