"""A program that asks a log is checked by mypy, strictly, with the types of PySpark."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

PROGRAM = """
from pyspark.sql import Column, DataFrame, SparkSession

from kraftlib import spark as kraft
from kraftlib.analysis.audit_findings import Finding
from kraftlib.spark.jobs.audit import audit
from kraftlib.spark.jobs.compact import compact, metadata
from kraftlib.spark.jobs.history import history
from kraftlib.spark.jobs.reports import report
from kraftlib.spark.jobs.sweep import sweep

spark: SparkSession = kraft.session()
log: DataFrame = kraft.read(spark, "/archive", columns=["offset", "epoch"], startOffset=3)
late: DataFrame = kraft.lookup(spark, "/archive", log.epoch > 3)
order: Column = kraft.order_key()
found: tuple[Finding, ...] = audit(spark, "/archive").findings
frames: list[DataFrame] = [
    compact(spark, "/archive"), metadata(spark, "/archive"), history(spark, "/archive", "topic:a"),
    report(spark, "/archive", "topics"), sweep(spark, range(3), profile="crashes"),
]
behind: int | None = kraft.lag(spark.streams.active[0].lastProgress)
"""
WRONG = """
many: int = kraft.read(spark, "/archive")
kraft.read("/archive", "/archive")
"""
SETTINGS = """
[mypy]
strict = true
[mypy-pyspark.*,kraftlib.*]
follow_imports = silent
[mypy-numpy.*,pandas.*,pyarrow.*]
follow_imports = skip
ignore_missing_imports = true
"""


@pytest.mark.slow
def test_the_faces_of_functions_have_types_of_pyspark(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(PROGRAM + WRONG)
    words = ["--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path / "cache")]
    said, _, status = api.run([*words, str(tmp_path / "right.py")])
    assert status == 0, said

    said, _, status = api.run([*words, str(tmp_path / "wrong.py")])
    assert status == 1
    wrong = [line.partition("  [")[2] for line in said.splitlines() if ": error:" in line]
    assert wrong == ["assignment]", "arg-type]"], said
