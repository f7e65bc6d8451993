"""The model's page says where each rule stands in kraftlib, its runner says what it lacks, its lock names no mirror."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.model.__main__ import lack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = (ROOT / "docs" / "explanation" / "model.md").read_text(encoding="utf-8")
RULES = (HERE / "src" / "rules.rs").read_text(encoding="utf-8")
WORLDS = (HERE / "src" / "worlds.rs").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| `") and "kraftlib/" in line
]
"""Of the table that maps the rules: the model's functions, kraftlib's file, kraftlib's functions, the rule."""


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def functions_of(path: Path) -> set[str]:
    """The functions of a module, and the methods of its classes as `Class.method`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            found |= {f"{owner.name}.{node.name}" for node in owner.body if isinstance(node, ast.FunctionDef)}
    return found


def test_the_page_maps_the_rules() -> None:
    assert len(ROWS) >= 15


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_functions_that_exist(row: list[str]) -> None:
    ours, file, theirs, rule = row
    (path,) = names(file)

    assert (ROOT / path).is_file()
    assert names(theirs)
    assert set(names(theirs)) <= functions_of(ROOT / path)
    assert all(re.search(rf"fn {name}\b", RULES) for name in names(ours))
    assert rule


def test_every_rule_of_the_model_stands_on_the_page() -> None:
    """But for the few that only say what holds, or how a replica starts again."""
    mapped = {name for row in ROWS for name in names(row[0])}
    rules = set(re.findall(r"^pub fn (\w+)", RULES, re.MULTILINE))

    assert rules - mapped == {"can_elect", "logs_match", "question"}


def test_every_planted_bug_and_every_world_stands_on_the_page() -> None:
    plants = re.findall(r'plant\(\s*"([^"]+)"', RULES)
    worlds = re.findall(r'\bworld\(\s*"([^"]+)"|forgetful\(rules, "([^"]+)"', WORLDS)

    assert {"1", "3", "4", "6"} <= set(plants)
    assert all(f"| `{plant}` |" in PAGE for plant in plants)
    assert all(f"| `{one or other}` |" in PAGE for one, other in worlds)
    assert len(worlds) >= 8


def test_the_lock_names_no_mirror() -> None:
    lock = (HERE / "Cargo.lock").read_text(encoding="utf-8")
    sources = set(re.findall(r'^source = "(.*)"$', lock, re.MULTILINE))

    assert sources == {"registry+https://github.com/rust-lang/crates.io-index"}


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (None, "there is no cargo"),
        ("cargo 1.63.0 (fd9c4297c 2022-07-01)", "needs cargo 1.75 or newer"),
        ("who knows", "needs cargo 1.75 or newer"),
    ],
)
def test_what_is_lacking_is_said_with_a_remedy(version: str | None, words: str) -> None:
    said = lack(version)

    assert said is not None
    assert words in said
    assert "apt install cargo" in said


def test_a_cargo_that_is_new_enough_lacks_nothing() -> None:
    assert lack("cargo 1.75.0 (1d8b05cdd 2023-11-20)") is None
