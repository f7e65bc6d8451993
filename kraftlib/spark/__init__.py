"""The data pipeline on Spark: `spark.read.format("kraft")`, streams, checkpoints and jobs, all thin over `analysis`.

    from kraftlib import spark as kraft

    spark = kraft.session()
    kraft.read(spark, "/archive").createOrReplaceTempView("log")
    spark.sql("SELECT epoch, count(*) FROM log GROUP BY epoch ORDER BY epoch").show()

Runs in local mode, on any cluster and through Spark Connect. Needs `pip install 'kraftlib[spark]'` and Java 17 or
newer. pyspark and the modules of this package are imported at first use, so that workers and planners load as little
as they can.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

for _name in ("pyspark", "numpy", "pyarrow"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(f"kraftlib.spark needs {_name}: pip install 'kraftlib[spark]'", name=_name)

if TYPE_CHECKING:
    from kraftlib.spark.progress import lag
    from kraftlib.spark.sessions import session
    from kraftlib.spark.tables import explain, lookup, order_key, pin, read, register

__all__ = ["explain", "lag", "lookup", "order_key", "pin", "read", "register", "session"]

_HOMES: Final = {"lag": "progress", "session": "sessions"}


def __getattr__(name: str) -> object:
    """Load the public `name` from its home; later uses find it here."""
    if name not in __all__:
        raise AttributeError(f"module 'kraftlib.spark' has no attribute {name!r}", name=name)
    value: object = getattr(importlib.import_module(f"kraftlib.spark.{_HOMES.get(name, 'tables')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
