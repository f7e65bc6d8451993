"""The benchmark under test, called as a function."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Command as Bench
from tests.cli.conftest import Result
from tools.bench.__main__ import main


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for that of a Unix socket, which has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="kraftlib-", dir="/tmp") as name:
        yield Path(name)


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
