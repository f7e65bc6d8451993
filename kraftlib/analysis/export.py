"""Logs as Parquet: a second tier for questions that are asked again and again.

Parquet is read two to six times as fast, since columns that are not asked for are not read at all. Files are laid out
by cluster and by bucket of offsets, so that a range of offsets finds its files by their names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraftlib.analysis.reading import options_of, read
from kraftlib.errors import ConfigError

BUCKET: Final = 1_000_000
"""Offsets in one bucket."""

PARTITIONED_BY: Final = ("cluster", "bucket")
UNKNOWN: Final = "__HIVE_DEFAULT_PARTITION__"
"""The directory name for null, as in Spark."""


def to_parquet(
    path: str | os.PathLike[str], out: str | os.PathLike[str], *, bucket: int = BUCKET, **options: object
) -> int:
    """Write the records at `path` below the new directory `out`; return how many. The twin of the job of this name.

    Raises: ConfigError, if `out` exists.
    """
    check_new(out)
    check_bucket(bucket)
    rows = 0
    writers: dict[tuple[str, object], Any] = {}
    try:
        for table in read(options_of(path, **options)):
            rows += table.num_rows
            buckets = pc.divide(table["offset"], bucket)
            for cluster in pc.unique(table["cluster"]).to_pylist():
                same = _is(table["cluster"], cluster)
                for number in pc.unique(buckets.filter(same)).to_pylist():
                    chosen = pc.and_(same, _is(buckets, number))
                    _writer(writers, Path(out), cluster, number, table).write_batch(
                        table.filter(chosen).select([name for name in table.schema.names if name != "cluster"])
                    )
    finally:
        for writer in writers.values():
            writer.close()
    return rows


def check_new(out: str | os.PathLike[str]) -> None:
    """Refuse a directory that exists. Raises: ConfigError."""
    if Path(out).exists():
        raise ConfigError(f"{os.fspath(out)} exists: name a new directory")


def check_bucket(bucket: int) -> None:
    """Refuse a bucket that holds nothing. Raises: ConfigError."""
    if bucket < 1:
        raise ConfigError(f"bucket={bucket}: a bucket holds at least one offset")


def _is(values: Any, value: object) -> Any:
    """Return which of `values` are that one, be it null: of a damaged range the offset may be unknown."""
    return pc.is_null(values) if value is None else pc.fill_null(pc.equal(values, value), False)


def _writer(
    writers: dict[tuple[str, object], Any], out: Path, cluster: str | None, number: int | None, table: Any
) -> Any:
    key = (UNKNOWN if cluster is None else cluster, UNKNOWN if number is None else number)
    if key not in writers:
        directory = out / f"cluster={key[0]}" / f"bucket={key[1]}"
        directory.mkdir(parents=True)
        schema = pa.schema([field for field in table.schema if field.name != "cluster"])
        writers[key] = pq.ParquetWriter(directory / "part-0.zstd.parquet", schema, compression="zstd")
    return writers[key]
