"""The data source `kraft`, as Spark finds it; the readers, streams and checkpoints have modules of their own.

Spark makes four processes for the first query of a session: one looks for data sources, one asks for the columns, one
plans, and the workers read. An object of this class is pickled from one to the next. So this module imports next to
nothing: numpy, pyarrow and `kraftlib.analysis` are imported by the method that needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from kraftlib.errors import ConfigError, KraftError
from kraftlib.spark.brief import brief
from kraftlib.spark.catalog import metadata_of, options_in, without_properties

FORMAT: Final = "kraft"

_ADMISSION: Final = "pyspark.sql.streaming.datasource"
"""The module that PySpark 4.1 lacks."""


class KraftDataSource(DataSource):
    """Logs and snapshots of a metadata quorum, ours or Kafka's, as tables."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options, self.is_table = without_properties(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    @brief
    def schema(self) -> Any:
        """Return the columns that the options ask for; for a table in a catalog the options stand with them."""
        with importing():
            from kraftlib.analysis.reading import schema_for
            from kraftlib.spark.readers import asked
            from kraftlib.spark.stream_options import without_stream_options
            from kraftlib.spark.types import ddl_of, struct_of
        schema = schema_for(asked(without_stream_options(self.options)))
        return struct_of(schema, metadata_of(self.options)) if self.is_table else ddl_of(schema)

    @brief
    def reader(self, schema: Any) -> DataSourceReader:
        """Return the reader that plans and reads; `schema` may hold fewer columns than were offered."""
        with importing():
            from kraftlib.spark.readers import reader_of
        return reader_of(options_in(schema) | dict(self.options), schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return the reader that follows an archive, or a live quorum by way of one."""
        with importing():
            from kraftlib.spark.readers import asked, narrowed
            from kraftlib.spark.stream_options import RefusedStream, without_stream_options
        given = options_in(schema) | dict(self.options)
        try:
            from kraftlib.spark.stream import stream_reader

            narrowed(asked(without_stream_options(given)), schema)
            return stream_reader(given, schema)
        except KraftError as error:
            return RefusedStream(error)
        except ModuleNotFoundError as error:
            if error.name != _ADMISSION:
                raise
            return RefusedStream(ConfigError(f"a stream needs PySpark 4.2 or newer, and this is {pyspark.__version__}"))

    @brief
    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a checkpoint."""
        with importing():
            from kraftlib.spark.sink import checkpoint_writer
        return checkpoint_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        """Refuse to write a stream."""
        raise ConfigError(
            "a checkpoint is a state, and no stream is written as one: write a table with df.write.format('kraft'), or"
            " the state of a log with kraftlib.spark.jobs.compact"
        )


@contextmanager
def importing() -> Iterator[None]:
    """Turn an error of the imports within, of any type, into one that names the remedy. Raises: ImportError."""
    try:
        yield
    except Exception as error:  # a broken package may raise anything at its import
        reason = f"{type(error).__name__}: {error}"
        raise ImportError(f"the format kraft needs what kraftlib[spark] installs: {reason}") from error
