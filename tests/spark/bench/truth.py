"""What has to be true and not fast: chains that merge into full builds, and records that arrive exactly once."""

from __future__ import annotations

import random
import time
from typing import Final

from tests.analysis.test_compacting import check_history
from tests.spark.bench.frame import Context, Figure
from tests.spark.kills import KILLS, drill

HISTORIES: Final = 500


def measure_merges(context: Context) -> list[Figure]:
    """Return of how many random histories a base and its increments do not make the bytes of a full build."""
    wrong, began = 0, time.perf_counter()
    for seed in range(HISTORIES):
        directory = context.directory / "merges" / str(seed)
        directory.mkdir(parents=True)
        try:
            check_history(random.Random(seed), directory)
        except AssertionError:
            wrong += 1
    beside = f"{time.perf_counter() - began:.1f} s"
    return [
        Figure(name=f"of {HISTORIES} chains not the full build", value=float(wrong), unit="", goal="= 0", beside=beside)
    ]


def measure_kills(context: Context) -> list[Figure]:
    """Return how many records of a stream were lost or doubled through kills of a whole Spark process."""
    context.stop()  # the queries are processes of their own, with a JVM each
    began = time.perf_counter()
    (context.directory / "kills").mkdir()
    outcome = drill(context.directory / "kills", kills=KILLS, seed=20)
    beside = f"{outcome.records} records in {outcome.batches} batches, {time.perf_counter() - began:.0f} s"
    return [
        Figure(name=f"records not exactly once through {KILLS} kill -9 of Spark", value=float(outcome.wrong), unit="",
               goal="= 0", beside=beside)
    ]  # fmt: skip
