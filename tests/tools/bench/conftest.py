"""The benchmark under test, called as a function."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command as Bench
from tests.cli.conftest import Result
from tools.bench.__main__ import main


@pytest.fixture
def long_path(tmp_path: Path) -> Path:
    """A directory in which no Unix socket fits: a path of one has 107 bytes at most."""
    path = tmp_path / ("x" * 100)
    path.mkdir()
    return path


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    """Run the benchmark in this process."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:  # a wrong command line
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return run
