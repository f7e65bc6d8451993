"""The data pipeline on Spark: `spark.read.format("kraft")`, streams, checkpoints and jobs, all thin over `analysis`.

    from kraftlib import spark as kraft

    spark = kraft.session()
    kraft.read(spark, "/archive").createOrReplaceTempView("log")
    spark.sql("SELECT epoch, count(*) FROM log GROUP BY epoch ORDER BY epoch").show()

Runs in local mode, on any cluster and through Spark Connect. Needs `pip install 'kraftlib[spark]'` and Java 17 or
newer; pyspark itself is imported at first use, so that workers and planners load as little as they can.
"""

from __future__ import annotations

from importlib.util import find_spec

for _name in ("pyspark", "numpy", "pyarrow"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(f"kraftlib.spark needs {_name}: pip install 'kraftlib[spark]'", name=_name)

# What is missing is named before it is imported.
from kraftlib.spark.progress import lag  # noqa: E402
from kraftlib.spark.sessions import session  # noqa: E402
from kraftlib.spark.tables import explain, lookup, order_key, pin, read, register  # noqa: E402

__all__ = ["explain", "lag", "lookup", "order_key", "pin", "read", "register", "session"]
