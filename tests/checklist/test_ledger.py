"""Keeps `docs/contributing/test-checklist.md` honest: no row is missing, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import attrs
import pytest

TESTS = Path(__file__).resolve().parent.parent
PAGE = TESTS.parent / "docs" / "contributing" / "test-checklist.md"
ROWS = Path(__file__).parent / "rows.txt"


@attrs.frozen
class Row:
    """A behaviour of Kafka's tests, and what the page says of it."""

    section: str
    name: str
    tests: tuple[str, ...]
    status: str

    @property
    def key(self) -> str:
        """What a test of `tests/checklist` must say of it: the name, without what follows a colon or in brackets."""
        return re.split(r": | \(", self.name)[0]


@cache
def page() -> tuple[Row, ...]:
    """The rows of the page, in order."""
    rows: list[Row] = []
    section = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"## (\d+)\. ", line):
            section = match[1]
        elif line.startswith("| ") and not line.startswith("| row |"):
            name, tests, status = (cell.strip() for cell in line.strip("| ").split(" | "))
            rows.append(Row(section, name, tuple(re.findall(r"`([^`]+)`", tests)), status))
    return tuple(rows)


@cache
def functions(path: str) -> dict[str, str]:
    """The test functions of a module, each with the source of its tables and of itself."""
    source = (TESTS / path).read_text(encoding="utf-8")
    lines, tree = source.splitlines(), ast.parse(source)

    def text(node: ast.stmt | ast.expr) -> str:
        return "\n".join(lines[node.lineno - 1 : node.end_lineno])

    tables = {
        target.id: text(node)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            parts = [text(part) for part in (*node.decorator_list, node)]
            used = {name.id for part in node.decorator_list for name in ast.walk(part) if isinstance(name, ast.Name)}
            found[node.name] = "\n".join([*parts, *(tables[name] for name in sorted(used & set(tables)))])
    return found


def test_the_page_has_every_row_once_and_in_order() -> None:
    expected = [tuple(line.split("\t")) for line in ROWS.read_text(encoding="utf-8").splitlines()]

    assert len(set(expected)) == len(expected) > 300
    assert [(row.section, row.name) for row in page()] == expected


def test_every_test_that_the_page_names_exists() -> None:
    missing = []
    for row in page():
        for test in row.tests:
            path, _, name = test.partition("::")
            is_script = path.startswith("scripts/") and not name
            if not (TESTS / path).is_file() or (not is_script and name not in functions(path)):
                missing.append(f"{row.name}: {test}")

    assert missing == []


def test_a_row_is_pinned_by_a_test_or_says_why_not() -> None:
    wrong = [
        row
        for row in page()
        if not (
            row.tests if re.match(r"pinned(,|:|$)", row.status) else re.match(r"not (applicable|there): \w", row.status)
        )
    ]

    assert wrong == []


def test_the_tests_of_the_checklist_bear_the_names_of_their_rows() -> None:
    wrong = []
    for row in page():
        for test in row.tests:
            path, _, name = test.partition("::")
            if path.startswith("checklist/") and row.key not in functions(path)[name]:
                wrong.append(f"{test} does not say {row.key}")

    assert wrong == []


def test_every_test_of_the_checklist_that_names_a_row_is_on_the_page() -> None:
    named = {test for row in page() for test in row.tests}
    kafkas = re.compile(r'"""\s*(test[A-Z]\w+|can[A-Z]\w+|[A-Z]\w+Test\b)')
    wrong = [
        f"checklist/{path.name}::{name}"
        for path in sorted(Path(__file__).parent.glob("test_*.py"))
        for name, source in functions(f"checklist/{path.name}").items()
        if kafkas.search(source) and f"checklist/{path.name}::{name}" not in named
    ]

    assert wrong == []


def test_the_page_counts_its_rows() -> None:
    text = PAGE.read_text(encoding="utf-8")
    differs = sum(row.status.startswith("pinned, ours differs") for row in page())
    absent = sum(row.status.startswith("not ") for row in page())
    pinned = len(page()) - differs - absent

    assert f"{len(page())} rows: {pinned} pinned, {differs} pinned where ours differs on purpose, {absent} not" in text


@pytest.mark.parametrize("section", [str(number) for number in range(1, 14)])
def test_no_section_is_empty(section: str) -> None:
    assert [row for row in page() if row.section == section]
