"""The pages about Spark, run as a reader would: with the blocks that other runs leave out because of the JVM."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.captured import DATA
from tests.snippets import ROOT, blocks


@pytest.mark.parametrize("page", ["tutorial/history-in-sql.md", "howto/ask-a-log-with-spark.md"])
def test_the_code_of_a_page_about_spark_runs(
    spark: Any, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__", "HISTORY": os.fspath(DATA / "kafka-4.3.1" / "n1")}
    ran = 0
    for block in blocks((ROOT / "docs" / page).read_text(encoding="utf-8")):
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), names)
            ran += 1
    assert ran
    assert names["spark"] is spark
