"""Keeps `docs/contributing/scenarios.md` honest: all 99 are there, and whatever it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import attrs
import pytest

from tools.scenarios import SCENARIOS

TESTS = Path(__file__).resolve().parent.parent
PAGE = TESTS.parent / "docs" / "contributing" / "scenarios.md"

COUNTS: Final = {"E": 20, "L": 17, "C": 7, "N": 13, "M": 13, "S": 16, "P": 13}
IDS: Final = [f"{group}{number}" for group, count in COUNTS.items() for number in range(1, count + 1)]


@attrs.frozen
class Row:
    """What the page says of one scenario."""

    id: str
    title: str
    is_story: bool
    tests: tuple[str, ...]
    missing: str


@cache
def page() -> tuple[Row, ...]:
    rows = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if re.match(r"\| [A-Z]\d+ \|", line):
            scenario_id, title, shown, missing = (cell.strip() for cell in line.strip("|").split("|"))
            tests = tuple(re.findall(r"`([^`]+)`", shown))
            rows.append(Row(scenario_id, title, shown.startswith("**story**"), tests, missing))
    return tuple(rows)


@cache
def functions(path: str) -> set[str]:
    """The test functions of a module."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_all_ninety_nine_are_there_in_order() -> None:
    assert len(IDS) == 99
    assert [row.id for row in page()] == IDS


def test_stories_are_those_of_the_simulator_with_their_titles() -> None:
    assert [row.id for row in page() if row.is_story] == list(SCENARIOS)
    assert [row.title for row in page() if row.is_story] == [scenario.title for scenario in SCENARIOS.values()]


@pytest.mark.parametrize("row", page(), ids=lambda row: row.id)
def test_whatever_shows_it_exists_or_the_page_says_why_not(row: Row) -> None:
    for test in row.tests:
        path, _, name = test.partition("::")
        assert (TESTS / path).is_file()
        assert not name or name in functions(path)
    assert row.is_story or row.tests or re.match(r"not yet: \w", row.missing)


def test_the_page_counts_its_rows() -> None:
    missing = sum(bool(row.missing) for row in page())
    stories = sum(row.is_story and not row.missing for row in page())
    expected = f"99 scenarios: {stories} as stories, {99 - stories - missing} by other tests, {missing} not yet."

    assert expected in PAGE.read_text(encoding="utf-8")
