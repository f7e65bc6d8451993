"""`kraftlib spark`: the verbs without Spark; with it, they are tested in tests/spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlib.cli import main
from tests.captured import DATA

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

NODE = str(DATA / "kafka-4.3.1" / "n1")


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_an_audit_says_who_was_compared_and_its_status_whether_all_is_well(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["spark", "audit", str(DATA / "kafka-4.3.1"), "--local"]) == 0
    assert capsys.readouterr().out.endswith("157 batches of 2 replicas compared, 0 findings\n")
    log = tmp_path / "00000000000000000000.log"
    data = bytearray((Path(NODE) / "__cluster_metadata-0" / log.name).read_bytes())
    data[700] ^= 1
    log.write_bytes(data)
    assert main(["spark", "audit", str(tmp_path), "--local", "--output", "json"]) == 1
    found = lines(capsys.readouterr().out)
    findings = [row["finding"] for row in found if "finding" in row]
    assert [(row["kind"], row["start_offset"]) for row in findings] == [("crc", 12)]


def test_a_report_is_a_table_or_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "report", "brokers", NODE, "--local", "--at-offset", "100"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("10  25 ")
    assert main(["spark", "report", "topics", NODE, "--local", "--output", "json"]) == 0
    assert {row["name"] for row in lines(capsys.readouterr().out)} >= {"events-1"}


def test_a_history_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "history", "topic:events-0", NODE, "--local", "--output", "json"]) == 0
    assert next(iter(lines(capsys.readouterr().out)))["offset"] == 46


def test_parquet_is_written(tmp_path: Path) -> None:
    assert main(["spark", "to-parquet", NODE, str(tmp_path / "out"), "--local", "--bucket", "100"]) == 0
    assert len(list(tmp_path.glob("out/*/*/*.parquet"))) == 3


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["compact", NODE, "out", "--local"], 1, "records have no key"),
        (["compact", NODE, "out", "--local", "--key", "value"], 2, "leave out --local"),
        (["compact", NODE, "out", "--metadata", "--local", "--end-offset", "82"], 1, "the batch ends at 95"),
        (["compact", NODE, "out", "--metadata", "--local", "-w", "voter=1"], 2, "of kraftVersion, voters"),
        (["merge", "--metadata", "a.checkpoint", "out"], 2, "then its increments in order"),
        (["report", "groups", NODE, "--local"], 1, "__consumer_offsets"),
        (["audit", NODE, "--local", "-o", "tial=fail"], 1, "did you mean 'tail'"),
        (["audit", NODE, "--local", "-o", "tail"], 2, "expected NAME=VALUE"),
        (["sweep", "--seeds", "9"], 2, "no range of seeds"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    status: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["spark", *words]) == status
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["pyarrow", "numpy"])
def test_a_module_that_is_missing_is_one_line(missing: str) -> None:
    """None in sys.modules is how Python says that a module cannot be imported."""
    program = (
        f"import sys; sys.modules[{missing!r}] = None; from kraftlib.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", program, "spark", "audit", "--local", NODE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "needs numpy and pyarrow: pip install 'kraftlib[spark]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
