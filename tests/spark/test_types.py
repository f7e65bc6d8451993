"""Our tables in Spark's words."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kraftlib.analysis.metadata_columns import struct_type
from kraftlib.analysis.schemas import VIEWS
from kraftlib.errors import ConfigError
from kraftlib.metadata import RECORDS
from kraftlib.spark.types import ddl_of, type_name


def test_every_table_has_a_ddl() -> None:
    ddl = ddl_of(VIEWS["records"])
    assert "`offset` bigint" in ddl
    assert "`timestamp` timestamp" in ddl
    assert "`headers` array<struct<key:string,value:binary>>" in ddl
    assert all(ddl_of(view) for view in VIEWS.values())
    assert all(type_name(struct_type(cls.__name__)) for cls in RECORDS.values())


def test_a_type_that_spark_gets_from_nobody_here_is_named() -> None:
    with pytest.raises(ConfigError, match="large_binary"):
        type_name(pa.large_binary())
