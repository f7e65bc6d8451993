"""The demo, shortened: it holds, it says so, and it says when it does not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlib.cli import demo
from tests.cli.conftest import Command
from tests.cli.processes import COMMAND, running, wait_for_end


@pytest.mark.parametrize("kill_after_ms", [pytest.param(0, marks=pytest.mark.slow), 60])
def test_a_short_demo_holds(kill_after_ms: int, kraftlib: Command, tmp_path: Path) -> None:
    result = kraftlib("demo", "--records", 300, "--kill-after-ms", kill_after_ms, "--directory", tmp_path)

    assert (result.status, result.err) == (0, "")
    for says in (
        "300 records acknowledged",
        "read back from voters 1, 2 and 3: 300 records each, all equal",
        "kill -9 of the leader",
        "is back, on its old directory",
        "equal byte for byte on all three disks",
    ):
        assert says in result.out
    assert result.out.splitlines()[-1].endswith("all of it held")
    for pid in re.findall(r"process (\d+)", result.out):
        wait_for_end(int(pid))


def test_a_missing_record_is_a_failure(kraftlib: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "missing", lambda acknowledged, items: ["key-0000007"])
    result = kraftlib("demo", "--records", 50, "--directory", tmp_path)

    assert result.status == 1
    assert "it did not hold: voter 1 lacks 1 acknowledged records, among them 'key-0000007'" in result.out
    assert "all of it held" not in result.out
    for pid in re.findall(r"process (\d+)", result.out):
        wait_for_end(int(pid))


@pytest.mark.slow
def test_a_voter_killed_outside_the_script_is_started_again(tmp_path: Path) -> None:
    """Whoever plays with kill -9 while it runs sees the demo go on, and hold."""
    with running("demo", "--records", 2_000, "--kill-after-ms", 100, "--directory", tmp_path) as process:
        match = re.search(r"process (\d+)", process.line_with("voter 2 is process"))
        process.line_with("is elected")
        assert match is not None
        os.kill(int(match[1]), signal.SIGKILL)
        process.line_with("voter 2 died outside the script (status -9): started again")
        process.line_with("all of it held")
        assert process.end()[0] == 0


@pytest.mark.slow
def test_the_whole_demo_in_a_process_of_its_own(tmp_path: Path) -> None:
    """As the README has it, without rich's help and from an empty directory."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    result = subprocess.run(
        [*COMMAND, "demo"], capture_output=True, text=True, timeout=120, check=False, env=environment
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "10,000 records acknowledged" in result.stdout
    assert list(tmp_path.iterdir()) == []
    assert sys.executable == COMMAND[0]
