"""The command under test, called as a function or as a process."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from kraftlib.cli import main


@attrs.frozen
class Result:
    """What a command left behind."""

    status: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def kraftlib(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return run
