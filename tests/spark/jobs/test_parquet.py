"""Parquet holds the rows of the log, whoever wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlib import spark as kraft
from kraftlib.analysis import export
from kraftlib.errors import ConfigError
from kraftlib.spark.jobs.parquet import to_parquet
from tests.captured import DATA

NODE = DATA / "kafka-4.3.1" / "n1"


def test_the_rows_of_spark_and_of_the_twin_are_those_of_the_log(spark: Any, tmp_path: Path) -> None:
    to_parquet(spark, NODE, tmp_path / "spark", bucket=100)
    export.to_parquet(NODE, tmp_path / "twin", bucket=100)
    rows = kraft.read(spark, NODE).selectExpr("*", "CAST(offset DIV 100 AS int) AS bucket")
    for name in ("spark", "twin"):
        written = spark.read.parquet(str(tmp_path / name)).select(*rows.columns)
        assert written.exceptAll(rows).count() == rows.exceptAll(written).count() == 0
        assert {path.name for path in (tmp_path / name).glob("cluster=*/*")} == {"bucket=0", "bucket=1", "bucket=2"}


def test_a_directory_that_exists_is_left_alone(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists: name a new directory"):
        to_parquet(spark, NODE, tmp_path)
