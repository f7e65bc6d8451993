"""Keeps `docs/reference/security.md` honest: every row is there, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.simulation.test_scenario_list import functions

TESTS = Path(__file__).resolve().parent.parent
PAGE = TESTS.parent / "docs" / "reference" / "security.md"


def test_every_row_is_there_and_shown_or_says_why_not() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| \d+ \|", line)
    ]

    assert [int(row[0]) for row in rows] == list(range(1, 29))
    for _, _, shown, missing in rows:
        tests = re.findall(r"`([^`]+)`", shown)
        assert tests or re.match(r"not (yet|there): \w", missing)
        for path, _, name in (test.partition("::") for test in tests):
            assert name in functions(path)
