"""What a driver does on a cluster whose executors are killed and stopped under it, over a log in an object store.

Before each job it says so, and waits for a line: whoever reads along is ready then to do harm in the midst of it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from kraftlib import spark as kraft
from kraftlib.spark.jobs.audit import audit
from kraftlib.spark.jobs.compact import compact
from tests.spark.cluster_job import SETTINGS
from tests.spark.drill import write

MORE: Final = {
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "2",
    "spark.task.maxFailures": "8",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
EXECUTORS: Final = 2
PATIENCE_S: Final = 240.0
VALUE: Final = "substring(value, 1, 1)"


class Jobs:
    """Runs jobs one after the other, and counts what became of their tasks."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.found: dict[str, Any] = {}
        self.lost = self.speculative = 0

    def run(self, name: str, work: Any) -> None:
        context = self.spark.sparkContext
        self.wait_for_executors()
        context.setJobGroup(name, name)
        say({"begin": name})
        if not sys.stdin.readline():
            raise SystemExit("whoever started this is gone")
        self.found[name] = work()
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        for job in tracker.getJobIdsForGroup(name):
            for stage in tracker.getJobInfo(job).stageIds:
                for attempt in range(4):
                    tasks = store.taskList(stage, attempt, 100_000)
                    for number in range(tasks.size()):
                        task = tasks.apply(number)
                        self.speculative += bool(task.speculative())
                        self.lost += task.status() == "FAILED"
        say({"end": name})

    def wait_for_executors(self) -> None:
        """Wait until those that were killed have been replaced."""
        until = time.monotonic() + PATIENCE_S
        while self.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < EXECUTORS + 1:
            if time.monotonic() > until:
                raise TimeoutError("an executor was killed and not replaced")
            time.sleep(0.05)


def jobs(master: str, uri: str, out: str, parallelism: str) -> None:
    """Run every kind of job over the same log, and print what was found."""
    spark = session(master)
    given: dict[str, Any] = {"parallelism": parallelism, "maxPartitionBytes": "2k"}
    all_of_them = Jobs(spark)

    def scan() -> list[int]:
        log = kraft.read(spark, uri, columns="offset,epoch,value", **given)
        wanted = ("count(*)", "count(DISTINCT offset)", "sum(offset)", "sum(crc32(value))")
        return list(log.selectExpr(*wanted).first() or ())

    def checked() -> list[int]:
        result = audit(spark, uri, **given)
        return [len(result.findings), result.batches]

    def state() -> list[str]:
        last = compact(spark, uri, key=VALUE, value="value", include="log", **given)
        return sorted(bytes(row.value).hex() for row in last.collect())

    def written(where: Path) -> str:
        log = kraft.read(spark, uri, columns="value", **given).selectExpr("value AS key", "value")
        log.write.format("kraft").mode("append").options(endOffset="100000", epoch="1").save(str(where))
        (path,) = where.iterdir()  # and nothing that a task left behind
        return path.read_bytes().hex()

    all_of_them.run("scan", scan)
    all_of_them.run("audit", checked)
    all_of_them.run("compact", state)
    all_of_them.run("write", lambda: written(Path(out) / "killed"))
    all_of_them.run("write twice", lambda: written(Path(out) / "stopped"))
    spark.stop()
    say({**all_of_them.found, "lost": all_of_them.lost, "speculative": all_of_them.speculative})


def stream(master: str, log: str, home: str, records: str) -> None:
    """Follow the log batch by batch, each into a file of its number, until there is no more; or until killed."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    spark = session(master)

    def take(frame: Any, number: int) -> None:
        rows = [[row.offset, bytes(row.value).hex()] for row in frame.sort("offset").collect()]
        output = Path(home) / "output" / str(number)
        if output.exists() and json.loads(output.read_text()) != rows:
            write(Path(home) / "differs", number)
        write(output, rows)

    options = {"columns": "offset,value", "visibility": "uncommitted", "maxRecordsPerTrigger": records}
    kraft.register(spark)
    query = spark.readStream.format("kraft").options(**options).load(log).writeStream.foreachBatch(take)
    started = query.option("checkpointLocation", f"{home}/checkpoint").trigger(availableNow=True).start()
    started.awaitTermination()
    spark.stop()


def session(master: str) -> Any:
    """Return a session of the cluster."""
    spark = kraft.session(master, config={**SETTINGS, **MORE}, app_name="kraftlib-store")
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def say(told: dict[str, Any]) -> None:
    """Print one line."""
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    run = jobs if sys.argv[1] == "jobs" else stream
    run(*sys.argv[2:])
