"""Keeps `docs/reference/storage-promises.md` honest: every promise names what shows it, and all of that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
PAGE = TESTS.parent / "docs" / "reference" / "storage-promises.md"


def rows() -> list[tuple[str, tuple[str, ...]]]:
    """The promises, each with what shows it."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| promise |"):
            promise, shown = line.strip("| ").split(" | ")
            found.append((promise, tuple(re.findall(r"`([^`]+)`", shown))))
    return found


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("promise", "shown"), rows())
def test_whatever_shows_a_promise_exists(promise: str, shown: tuple[str, ...]) -> None:
    assert shown
    for test in shown:
        path, _, name = test.partition("::")
        assert (TESTS / path).is_file()
        assert not name or name in functions(path)
