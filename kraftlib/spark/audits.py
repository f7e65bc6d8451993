"""The data source of an audit: the batches of logs in stretches, a row each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kraftlib.analysis.audit_stretches import STRETCHES, stretches
from kraftlib.analysis.reading import read_splits, schema_for
from kraftlib.spark.readers import Reader, Splits, asked
from kraftlib.spark.sessions import prepare_worker
from kraftlib.spark.source import KraftDataSource
from kraftlib.spark.types import ddl_of

FORMAT: Final = "kraft-audit"


class AuditSource(KraftDataSource):
    """The table that `kraftlib.spark.jobs.audit` reads; the options are those of the view `batches`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of stretches."""
        return ddl_of(STRETCHES)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return what plans and reads."""
        return AuditReader(asked(self.options))


class AuditReader(Reader):
    """Plans as for the view `batches`, and tells what it reads in stretches."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the stretches of one task."""
        prepare_worker()
        if isinstance(partition, Splits):
            options = self.read_options
            yield from stretches(read_splits(partition.splits, options, schema_for(options)))
