"""The benchmark under test, called as a function."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Command as Bench
from tests.cli.conftest import Result
from tools.bench.__main__ import main


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
