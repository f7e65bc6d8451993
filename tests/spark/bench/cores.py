"""How much faster a scan is with a second task at once: local[1] and local[2], sessions in turns.

A task of a Python source keeps two processes busy, a worker that decodes and the JVM that takes its rows. So local[1]
on a machine with two idle processors uses more than one of them, and cannot become twice as fast by a second task. What
a second processor is worth is seen where local[1] has one processor and local[2] has two: that figure has the goal.

The plan, the start of the tasks and the compiler of the JVM take as long for a small log as for a large one, and hardly
less with a second processor. So the log has four times the size of the others.

    python -m tests.spark.bench.cores PATH MASTER ROUNDS
"""

from __future__ import annotations

import json
import sys
import time
from typing import Final

from tests.spark.bench import data
from tests.spark.bench.frame import Context, Figure
from tests.spark.bench.whole import whole

LOGS: Final = 4
"""The size of the log, in sizes of the logs of other figures."""

SESSIONS = {"one processor": ("local[1]", 1), "local[1]": ("local[1]", 2), "local[2]": ("local[2]", 2)}


def scan(path: str, master: str, rounds: int) -> float:
    """Return the least seconds of a full scan in a session that is warm."""
    from kraftlib import spark as kraft
    from tests.spark.bench.first import COLUMNS, aggregated

    spark = kraft.session(master, app_name="kraftlib-cores")
    seconds = []
    for _ in range(rounds + 2):  # the first two warm up
        began = time.perf_counter()
        aggregated(kraft.read(spark, path, columns=COLUMNS))
        seconds.append(time.perf_counter() - began)
    spark.stop()
    return min(seconds[2:])


def measure(context: Context) -> list[Figure]:
    """Return the ratio of the least seconds of each kind of session; every kind runs once in each of two turns."""
    path = context.directory / "log"
    data.log(path, LOGS * context.megabytes)
    seconds: dict[str, list[float]] = {name: [] for name in SESSIONS}
    for _ in range(2):
        for name, (master, processors) in SESSIONS.items():
            words = (str(path), master, str(context.rounds))
            seconds[name].append(whole("tests.spark.bench.cores", *words, processors=processors)["seconds"])
    one, alone, two = (min(seconds[name]) for name in SESSIONS)
    return [
        Figure(name="local[2] on two processors, of local[1] on one", value=one / two, unit="x faster", goal=">= 1.8",
               beside=f"{two:.2f} s, {one:.2f} s"),
        Figure(name="  of local[1] on two", value=alone / two, unit="x faster", beside=f"{alone:.2f} s"),
    ]  # fmt: skip


if __name__ == "__main__":
    print(json.dumps({"seconds": scan(sys.argv[1], sys.argv[2], int(sys.argv[3]))}))
