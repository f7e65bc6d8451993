"""From which size on Spark is worth its start: the same questions in one process and on Spark."""

from __future__ import annotations

import shutil
import time
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kraftlib import spark as kraft
from kraftlib.analysis import audit as twin
from kraftlib.analysis.reading import options_of, read
from kraftlib.spark.jobs.audit import audit
from tests.spark.bench import data
from tests.spark.bench.first import COLUMNS, aggregated
from tests.spark.bench.frame import Context, Figure

SIZES_MB: Final = (16, 128, 1024)


def aggregated_here(path: object) -> object:
    """Answer the question of the scan in this process, with Arrow."""
    parts = []
    for table in read(options_of(str(path), columns=COLUMNS)):
        sized = table.append_column("size", pc.binary_length(table["value"]))
        parts.append(
            pa.Table.from_batches([sized])
            .group_by("epoch")
            .aggregate(
                [("offset", "count"), ("size", "sum"), ("offset", "max"), ("timestamp", "min"), ("key", "count")]
            )
        )
    whole = pa.concat_tables(parts).group_by("epoch")
    return whole.aggregate(
        [("offset_count", "sum"), ("size_sum", "sum"), ("offset_max", "max"), ("timestamp_min", "min")]
    )


def measure(context: Context) -> list[Figure]:
    """Return seconds for each size, here and on Spark; and those of Spark's own start."""
    began = time.perf_counter()
    spark = context.spark
    spark.range(1).collect()
    figures = [Figure(name="session and first job", value=time.perf_counter() - began, unit="s")]
    for size in SIZES_MB:
        if size > context.megabytes:
            break
        path = context.directory / f"log-{size}"
        data.log(path, size)
        frame = kraft.read(spark, path, columns=COLUMNS)
        here, there = context.best(lambda path=path: aggregated_here(path), lambda frame=frame: aggregated(frame))
        figures.append(
            Figure(name=f"scan of {size} MB, in one process", value=here, unit="s", beside=f"Spark {there:.2f} s")
        )
    root = context.directory / "two-replicas"
    for number in (1, 2):
        shutil.copytree(context.directory / "log-16", root / f"replica={number}" / "__cluster_metadata-0")
    here, there = context.best(lambda: twin.audit(root), lambda: audit(spark, root))
    figures.append(
        Figure(name="audit of 2 x 16 MB, in one process", value=here, unit="s", beside=f"Spark {there:.2f} s")
    )
    return figures
