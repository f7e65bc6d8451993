"""Opening tables: registration with a session, and reading with the filters that the session allows."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from kraftlib.analysis.options import pin_text
from kraftlib.analysis.reading import options_of, schema_for, text_options
from kraftlib.analysis.schemas import default_columns
from kraftlib.spark.records_of_packs import columns_of_packs, columns_of_runs, records_of_packs, records_of_runs
from kraftlib.spark.sessions import PUSHDOWN
from kraftlib.spark.shipping import ship_to
from kraftlib.spark.types import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def register(spark: SparkSession, *, ship: str = "auto") -> None:
    """Make the format `kraft` known to a session.

    Executors of a cluster get this kraftlib as an archive, and so does a server of Spark Connect that has none, unless
    `ship` is never. The packages that kraftlib needs must be there: numpy, pyarrow, attrs, crc32c, lz4 and zstandard.
    """
    if ship_to(spark, ship=ship):
        from kraftlib.spark.source import KraftDataSource

        spark.dataSource.register(KraftDataSource)


def read(spark: SparkSession, path: str | os.PathLike[str], **options: object) -> DataFrame:
    """Return what is at `path` as a DataFrame; options are those of the format, as keywords.

    It can be asked any number of times. A filter on it does not prune what is read: options do (startOffset, …), and so
    does `lookup`. Raises: ConfigError for an unknown option.
    """
    register(spark)
    asked = options_of(path, **options)  # to fail here, in the caller's own traceback
    names = asked.columns or default_columns(asked.view)
    given = {name: value for name, value in options.items() if name.lower() != "columns"}
    if (columns := columns_of_runs(asked)) is not None:
        return records_of_runs(read(spark, path, **given, columns=columns), names)
    if (columns := columns_of_packs(asked)) is not None:
        return records_of_packs(read(spark, path, **given, columns=columns), names)
    # Spark asks a process of its own for the columns, which is spared numpy and pyarrow if they are given. The type of
    # a decoder's column is what its function returns, so that one is asked there.
    ddl = None if asked.value_decoder else ddl_of(schema_for(asked))
    return load(spark, "kraft", path, options, columns=ddl)


def load(
    spark: SparkSession,
    name: str,
    path: str | os.PathLike[str],
    options: Mapping[str, object],
    *,
    columns: str | None = None,
) -> DataFrame:
    """Return what is at `path` by the format of that name, with tasks for all processors of the session.

    `columns` is the DDL of the table, if it is known.
    """
    from kraftlib.analysis.files import absolute

    given = text_options(options)
    if "parallelism" not in {name.lower() for name in given}:
        given["parallelism"] = str(parallelism(spark))
    # Planners are processes of their own, which need not be where this one is.
    reader = spark.read.format(name).options(**given)
    return (reader if columns is None else reader.schema(columns)).load(absolute(path))


def lookup(spark: SparkSession, path: str | os.PathLike[str], condition: str | Column, **options: object) -> DataFrame:
    """Return the rows at `path` that meet `condition`, SQL or a Column, as a DataFrame that holds them.

    If the session allows it, the condition prunes: by offset, epoch and timestamp, files, splits and batches; by labels
    as replica, files; by any comparison of a column with values, records before their values are decoded.

    Rows are read now, and not when the DataFrame is asked. For Spark (4.1 to 4.3) keeps what was planned for a filter
    with the table, not with the query: another query of that table, or another part of the same, would lack rows.
    """
    once = read(spark, path, **{**options, "pushdown": "once" if is_pushdown_allowed(spark) else "never"})
    return once.where(condition).localCheckpoint()


def explain(
    spark: SparkSession, path: str | os.PathLike[str], condition: str | Column | None = None, **options: object
) -> str:
    """Return what a DataFrame of `read`, or of `lookup` with a condition, would read: files, bytes, splits and tasks.

    Spark's own explain says of a source in Python its name, its columns and the filters that it took over. Needs no
    more than names, sizes and indexes. Through Spark Connect it is unknown how many tasks a condition leaves.
    """
    from pyspark.errors import PySparkException

    from kraftlib.analysis.explain import explain as analysis_explain

    told = analysis_explain(path, **{"parallelism": parallelism(spark), **options})
    if condition is None:
        return told
    if not is_pushdown_allowed(spark):
        return f"{told}{'pruned':<8} nothing: the session has {PUSHDOWN}=false\n"
    asked = read(spark, path, **{**options, "pushdown": "once"}).where(condition)
    told += f"{'pushed':<8} {pushed_filters(asked)}\n"
    try:
        tasks = asked.rdd.getNumPartitions()
    except PySparkException:
        return told
    return f"{told}{'pruned':<8} to {tasks} tasks by the condition, with lookup\n"


def pushed_filters(frame: DataFrame) -> str:
    """Return the filters that the source does itself, as Spark writes them; Spark does the others."""
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        frame.explain("formatted")
    found = re.search(r"^PushedFilters: \[(.*)\]$", plan.getvalue(), re.MULTILINE)
    return re.sub(r"\[B@[0-9a-f]+", "bytes", found[1]) if found and found[1] else "no filter"


def is_pushdown_allowed(spark: SparkSession) -> bool:
    """Whether filters reach sources in Python."""
    return str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"


def pin(path: str | os.PathLike[str], **options: object) -> str:
    """Return which files are at `path` and how long they are now, for the option `pin`.

    A log grows while it is read, and each action of Spark plans anew: pinned, all of them see the same rows.
    """
    from kraftlib.analysis.splits import pin as pinned_files

    return pin_text(pinned_files(attrs.evolve(options_of(path, **options), pin=None)))


def order_key() -> Column:
    """Return the Column by which records of snapshots and logs (include=latest or all) stand in the order of a fold.

    A snapshot stands for everything before its end: its rows come where its last offset is, before the record there, in
    the order of the file. The columns origin, offset and snapshot_end_offset must be there.
    """
    from pyspark.sql import functions as f

    place = f.coalesce(f.col("snapshot_end_offset") - 1, f.col("offset"))
    return f.struct(place.alias("place"), (f.col("origin") != "snapshot").alias("is_log"), f.col("offset"))


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once, 0 if the session does not say: through Spark Connect."""
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return 0
