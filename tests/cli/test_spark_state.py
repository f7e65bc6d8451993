"""`kraftlib spark compact`, `increment` and `merge`, without Spark; with it, the jobs are tested in tests/spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlib.cli import main
from tests.captured import DATA

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

NODE = str(DATA / "kafka-4.3.1" / "n1")


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_log_becomes_a_checkpoint_and_increments_lead_from_one_to_the_next(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def spark(*words: str) -> dict[str, object]:
        assert main(["spark", *words, "--output", "json"]) == 0
        return lines(capsys.readouterr().out)[0]

    compact = ("compact", "--local", "--metadata", NODE)
    base = str(spark(*compact, str(tmp_path), "--end-offset", "81")["path"])
    assert base == str(tmp_path / f"{81:020d}-{1:010d}.checkpoint")
    (tmp_path / "full").mkdir()
    full = spark(*compact, str(tmp_path / "full"), "-w", "kraftVersion=0")
    assert (full["end_offset"], full["epoch"]) == (275, 4)
    increment = ("increment", "--local", "--metadata", NODE, str(tmp_path), "--base")
    steps = [spark(*increment, "81", "--end-offset", "115"), spark(*increment, "115")]
    merged = spark("merge", "--metadata", base, *(str(step["path"]) for step in steps), str(tmp_path / "merged"))
    assert Path(str(merged["path"])).read_bytes() == Path(str(full["path"])).read_bytes()
