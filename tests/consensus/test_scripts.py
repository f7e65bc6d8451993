"""Every script in tests/scripts has the outcome that is written below its `---`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.consensus.script_runner import Script

SCRIPTS = sorted((Path(__file__).parent.parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_has_its_outcome(path: Path) -> None:
    """The conversation is, to the message, the one that was reviewed."""
    commands, _, expected = path.read_text(encoding="utf-8").partition("\n---\n")
    actual = "\n".join(Script().run(commands)) + "\n"
    if os.environ.get("KRAFTLIB_REWRITE"):
        path.write_text(f"{commands}\n---\n{actual}", encoding="utf-8")
        return

    assert expected == actual


def test_there_are_scripts() -> None:
    """An empty folder would pass everything."""
    assert len(SCRIPTS) >= 10
