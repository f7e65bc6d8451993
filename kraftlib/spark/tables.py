"""Opening tables: registration with a session, and reading with what the session allows."""

from __future__ import annotations

import os
from typing import Any

import attrs

from kraftlib.analysis.files import absolute
from kraftlib.analysis.options import pin_text
from kraftlib.analysis.reading import options_of, text_options
from kraftlib.analysis.splits import pin as pinned_files
from kraftlib.spark.sessions import PUSHDOWN


def register(spark: Any) -> None:
    """Make the format `kraft` known to a session. Workers must be able to import kraftlib."""
    from kraftlib.spark.source import KraftDataSource

    spark.dataSource.register(KraftDataSource)


def read(spark: Any, path: str | os.PathLike[str], **options: object) -> Any:
    """Return what is at `path` as a DataFrame; options are those of the format, as keywords.

    Filters are pushed down where the session allows it. Raises: ConfigError for an unknown option.
    """
    register(spark)
    given = text_options(options)
    if "pushdown" not in {name.lower() for name in given}:
        given["pushdown"] = str(spark.conf.get(PUSHDOWN, "false")).lower()
    if "parallelism" not in {name.lower() for name in given}:
        given["parallelism"] = str(_parallelism(spark))
    options_of(path, **given)  # to fail here, in the caller's own traceback
    # Planners are processes of their own, which need not be where this one is.
    return spark.read.format("kraft").options(**given).load(absolute(path))


def pin(path: str | os.PathLike[str], **options: object) -> str:
    """Return which files are at `path` and how long they are now, for the option `pin`.

    A log grows while it is read, and each action of Spark plans anew: pinned, all of them see the same rows.
    """
    return pin_text(pinned_files(attrs.evolve(options_of(path, **options), pin=None)))


def _parallelism(spark: Any) -> int:
    """Return how many tasks run at once, 0 if the session does not say: through Spark Connect."""
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return 0
