"""Simulation seeds over executors; the result of a seed is a row, even if it took its process with it.

Without Spark: `kraftlib simulate --seeds A:B --jobs J`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from kraftlib.errors import ConfigError
from kraftlib.spark.seed_runs import SweepOptions
from kraftlib.spark.tables import parallelism, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_CORE: Final = 2


def sweep(spark: SparkSession, seeds: range, *, tasks: int | None = None, **options: object) -> DataFrame:
    """Return a DataFrame with a row for each of `seeds`, which ascend by one; options are those of SweepOptions.

    Raises: ConfigError, if there are no seeds.
    """
    if not seeds or seeds.step != 1:
        raise ConfigError(f"{seeds} are no seeds: a range that ascends by one is expected")
    from kraftlib.spark.seeds import SeedSource

    register(spark)  # which brings kraftlib to executors that lack it
    many = min(len(seeds), tasks or TASKS_PER_CORE * max(parallelism(spark), 1))
    given = {
        "first": seeds.start,
        "end": seeds.stop,
        "tasks": many,
        **attrs.asdict(SweepOptions(**cast("dict[str, Any]", options))),
    }
    spark.dataSource.register(SeedSource)
    said = {name: str(value) for name, value in given.items() if value is not None}
    return spark.read.format(SeedSource.name()).options(**said).load()
