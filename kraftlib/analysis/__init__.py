"""Logs and snapshots as tables: record batches become Arrow columns, in one process and without Spark.

    files      paths, globs and URIs; the files below them; ranged reads
    splits     which byte ranges hold what is asked for; never found by scanning for something like a batch
    headers    the headers of a chunk of batches as columns
    decoder    the records of a chunk as columns, thousands at a time
    reading    one split to Arrow batches, with CRC, chain rules and a policy for damage
    tail       following a log as it grows
    compacting from a log to the state that it leads to
    checkpoint from a state to the file from which a node starts

Everything that `kraftlib.spark` runs on executors is a function of this package, and each job has its twin here that
gives the same answer in one process: for small data that is all one needs, and for Spark it is the oracle.

Needs numpy and pyarrow: `pip install 'kraftlib[spark]'`.
"""

from __future__ import annotations

try:
    import numpy as _numpy
    import pyarrow as _pyarrow
except ImportError as _error:
    raise ImportError("kraftlib.analysis needs numpy and pyarrow: pip install 'kraftlib[spark]'") from _error

__all__: list[str] = []
del _numpy, _pyarrow
