"""The pages about Spark, run as a reader would: with the blocks that other runs leave out because of the JVM."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.archive.archives import a_writer, an_archive
from tests.captured import DATA
from tests.snippets import ROOT, blocks
from tests.storage.builders import some_batches

pytestmark = pytest.mark.slow


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


def test_a_log_is_kept_as_parquet_once_and_answers(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with a_writer(an_archive(tmp_path / "archive")) as writer:
        writer.write(some_batches(1, 1, 2, 2, 3, records=5, size=40))
    names: dict[str, Any] = {"ARCHIVE": os.fspath(tmp_path / "archive"), "OUT": os.fspath(tmp_path / "out")}
    page = (ROOT / "docs" / "howto" / "keep-a-log-as-tables.md").read_text(encoding="utf-8")
    for block in blocks(page):
        if "Delta Lake" not in block.remark:  # which supports no Spark that is here
            exec(compile("\n" * (block.line - 1) + block.text, "keep-a-log-as-tables.md", "exec"), names)
    assert [(row.epoch, row.records) for row in names["answer"].collect()] == [(1, 10), (2, 10), (3, 5)]
    assert f"epoch   3  {'#' * 20:<40}  5 until" in capsys.readouterr().out


def test_the_queries_about_elections_answer_for_a_real_quorum(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "howto" / "elections-with-spark.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__", "HISTORY": os.fspath(DATA / "kafka-4.3.1" / "n1")}
    for block in blocks(page):
        exec(compile("\n" * (block.line - 1) + block.text, "elections-with-spark.md", "exec"), names)

    # As `kafka-dump-log` tells them: nobody won epoch 2.
    assert [(row.epoch, row.leader, row.epochs_nobody_won) for row in names["terms"]] == [
        (1, 3, 0),
        (3, 1, 1),
        (4, 2, 0),
    ]
    assert [(row.epoch, row.leader) for row in names["pauses"]] == [(3, 1), (4, 2)]
    queries = re.findall(r"\| `(SELECT [^`]+)` \|", page)
    assert len(queries) == 6
    answers = {query: spark.sql(query).collect() for query in queries}
    assert sum(row[1] for row in answers[queries[1]]) == 3
    assert [tuple(row) for row in answers[queries[4]]] == [(3, 1)]


def test_the_example_for_spark_submit_runs_a_job(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = os.fspath(DATA / "kafka-4.3.1" / "n1")
    program = os.fspath(ROOT / "examples" / "kraft_job.py")
    for words, expected in (
        (["report", "brokers", node], "10  25"),
        (["sql", "SELECT count(*) AS many FROM batches", node], "157"),
        (["history", "broker:10", node, "--output", "json"], '"offset": 25'),
        (["audit", node], "157 batches of 1 replicas compared, 0 findings"),
        (["compact", "--metadata", node, os.fspath(tmp_path)], "275         4"),
        (["increment", "--metadata", "--base", "115", node, os.fspath(tmp_path)], "115   275         4"),
        (["sweep", "--seeds", "0:2", "--until-ms", "100"], "2 seeds, 0 of them not well"),
    ):
        monkeypatch.setattr("sys.argv", [program, *words])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(program, run_name="__main__")
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out
