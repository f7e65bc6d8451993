"""Simulation seeds as a data source: each task runs its share, and yields a row a seed as it comes.

It is a source, and no function over a DataFrame, since those of Arrow want pandas, which nothing else here needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kraftlib.spark.seed_runs import RESULTS, SweepOptions, parts_of, results
from kraftlib.spark.sessions import prepare_worker
from kraftlib.spark.types import ddl_of


class SeedSource(DataSource):
    """The table that `kraftlib.spark.jobs.sweep` reads."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kraft-seeds"

    def schema(self) -> str:
        """Return the columns of a sweep."""
        return ddl_of(RESULTS)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return what runs the seeds."""
        options, until_ms = self.options, self.options.get("until_ms")
        chosen = SweepOptions(
            profile=options["profile"],
            subject=options.get("subject"),
            until_ms=None if until_ms is None else int(until_ms),
            seed_timeout_s=float(options["seed_timeout_s"]),
        )
        return SeedReader(parts_of(range(int(options["first"]), int(options["end"])), int(options["tasks"])), chosen)


class SeedReader(DataSourceReader):
    """Runs seeds in children of the worker."""

    def __init__(self, parts: list[range], options: SweepOptions) -> None:
        self.parts = parts
        self.sweep_options = options

    def partitions(self) -> list[InputPartition]:
        """Return the seeds of each task."""
        return [InputPartition(part) for part in self.parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield what the seeds of one task did."""
        prepare_worker()
        for row in results(partition.value, self.sweep_options):
            yield pa.RecordBatch.from_pylist([row], schema=RESULTS)
