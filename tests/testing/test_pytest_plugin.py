"""The plugin with which users simulate their own state machines, tried as they would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = 'pytest_plugins = ["kraftlib.testing.pytest_plugin"]\n'

GOOD = """
import pytest
from kraftlib.runtime.listener import StateMachine
from kraftlib.testing.subject import Subject


class Total(StateMachine):
    def __init__(self):
        self.total = 0

    def apply(self, record):
        self.total += int(record.value)
        return self.total

    def snapshot(self):
        return [b"%d" % self.total]

    def restore(self, values):
        (self.total,) = map(int, values)


@pytest.mark.kraft_simulation(seeds=range(3), profile="crashes", trouble_ms=100)
def test_total(kraft_simulation):
    subject = Subject(machine=Total, value=lambda random, number: b"%d" % random.randrange(1, 9))
    reports = kraft_simulation(subject)
    print("seeds", [report.seed for report in reports])
"""

BAD = GOOD.replace("self.total += int(record.value)", "self.total += id(self) % 1000")


def run_pytest(directory: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_total.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-s", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_sound_state_machine_passes_with_the_seeds_of_its_marker(tmp_path: Path) -> None:
    process = run_pytest(tmp_path, GOOD)

    assert process.returncode == 0, process.stdout + process.stderr
    assert "seeds [0, 1, 2]" in process.stdout


def test_the_command_line_chooses_other_seeds(tmp_path: Path) -> None:
    assert "seeds [7]" in run_pytest(tmp_path, GOOD, "--kraft-seed=7").stdout
    assert "seeds [5, 6]" in run_pytest(tmp_path, GOOD, "--kraft-seeds=5:7").stdout
    assert run_pytest(tmp_path, GOOD, "--kraft-seeds=x").returncode != 0


def test_a_state_machine_that_is_no_function_of_the_log_is_caught_and_its_seed_named(tmp_path: Path) -> None:
    process = run_pytest(tmp_path, BAD)

    assert process.returncode == 1
    assert "U1 is violated" in process.stdout
    assert "replay with: pytest 'test_total.py::test_total' --kraft-seed=0" in process.stdout
