"""Seeds over executors beside a pool of processes on the same processors."""

from __future__ import annotations

import os

from kraftlib.spark.jobs.sweep import sweep
from kraftlib.testing.campaign import run_seeds
from tests.spark.bench.frame import Context, Figure

SEEDS = range(200)


def measure(context: Context) -> list[Figure]:
    """Return the time of a sweep by that of the pool."""
    spark = context.spark

    def pooled() -> None:
        for _ in run_seeds(SEEDS, profile="swarm", jobs=os.cpu_count() or 1):
            pass

    ours, theirs = context.best(lambda: sweep(spark, SEEDS).collect(), pooled, rounds=1)
    return [Figure(name=f"sweep of {len(SEEDS)} seeds, of a process pool", value=ours / theirs, unit="x", goal="<= 1.1",
                   beside=f"{ours:.2f} s, pool {theirs:.2f} s")]  # fmt: skip
