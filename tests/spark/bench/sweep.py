"""Seeds over executors beside a pool of processes on the same processors."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from kraftlib.spark.jobs.sweep import sweep
from kraftlib.testing.campaign import run_seeds
from tests.spark.bench.frame import Context, Figure

SEEDS: Final = 200
ROUND: Final = 100
"""Both run so many in turn, since what else the machine does disturbs both alike then; fewer would measure the start of
processes, which a sweep of thousands does not notice."""
WARM: Final = 4


def measure(context: Context) -> list[Figure]:
    """Return the time of a sweep by that of the pool, on the same seeds."""
    jobs = os.cpu_count() or 1
    runs = {"sweep": lambda seeds: swept(context.spark, seeds), "pool": lambda seeds: pooled(seeds, jobs)}
    for run in runs.values():
        run(range(WARM))
    seconds = dict.fromkeys(runs, 0.0)
    for first in range(0, SEEDS, ROUND):
        for name, run in runs.items():
            began = time.perf_counter()
            if run(range(first, first + ROUND)) != ROUND:
                raise RuntimeError(f"not every seed of {ROUND} said something")
            seconds[name] += time.perf_counter() - began
    beside = f"{seconds['sweep']:.1f} s, pool {seconds['pool']:.1f} s"
    ratio = seconds["sweep"] / seconds["pool"]
    return [Figure(name=f"sweep of {SEEDS} seeds, of a process pool", value=ratio, unit="x", goal="<= 1.1",
                   beside=beside)]  # fmt: skip


def swept(spark: Any, seeds: range) -> int:
    """Run seeds on executors; return how many rows came."""
    return len(sweep(spark, seeds).collect())


def pooled(seeds: range, jobs: int) -> int:
    """Run seeds in a pool; return how many came back."""
    return sum(1 for _ in run_seeds(seeds, profile="swarm", jobs=jobs))
