"""What a driver does on a cluster whose executors have no kraftlib, and with a program that they cannot import."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from kraftlib import spark as kraft
from kraftlib.spark.jobs.audit import audit
from kraftlib.spark.jobs.compact import fold, metadata
from kraftlib.spark.jobs.sweep import sweep

FRUGAL: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: Final = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": FRUGAL,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": FRUGAL,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


class Sizes:
    """Adds up the sizes of values, by their second byte, which says what they are about."""

    def group_of(self, value: bytes) -> bytes:
        return value[1:2]

    def fold(self, state: dict[bytes, bytes], value: bytes) -> None:
        state[value[1:2]] = b"%d" % (int(state.get(value[1:2], b"0")) + len(value))


def main(master: str, path: str, out: str) -> None:
    """Print what was found."""
    spark = kraft.session(master, config=SETTINGS, app_name="kraftlib-cluster")
    spark.sparkContext.setLogLevel("ERROR")
    log = kraft.read(spark, path, columns="offset,epoch", maxPartitionBytes="8k")
    sizes = {bytes(row.key).hex(): int(bytes(row.value)) for row in fold(spark, path, Sizes(), include="log").collect()}
    state = metadata(spark, path)
    state.write.format("kraft").mode("append").options(endOffset="275", epoch="4").save(out)
    found = {
        "several_tasks": log.rdd.getNumPartitions() > 1,
        "epochs": {row.epoch: row["count"] for row in log.groupBy("epoch").count().collect()},
        "one": [row.offset for row in kraft.lookup(spark, path, "offset = 100").collect()],
        "sizes": sizes,
        "findings": len(audit(spark, path).findings),
        "seeds": [row.outcome for row in sweep(spark, range(2), until_ms=100).collect()],
        "checkpoint": next(Path(out).iterdir()).read_bytes().hex(),
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
