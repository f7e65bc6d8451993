"""A wrong command line is exit status 2 and one line on stderr."""

from __future__ import annotations

import pytest

from kraftlib.cli import main


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["backup", "only-one"], "kraftlib: name a stopped replica's directory and the backup, or --bootstrap"),
        (
            ["quorum", "status", "--bootstrap", "h:1", "--timeout-ms", "9" * 20],
            "kraftlib: --bootstrap names at least one",
        ),
        (["format", "-t", "blue"], "kraftlib: format needs either a directory or -c CONFIG"),
    ],
)
def test_arguments_that_do_not_go_together_are_told(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(line)
