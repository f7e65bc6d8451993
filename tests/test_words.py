"""Docstrings in plain English: each one names its subject.

A docstring that begins with a question word ("What is stored", "Who may vote") hides the thing that it is about: it
says "The records", or "The voters", instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "kraftlib"

QUESTION: Final = re.compile(r"\s*(Who|Whom|Whose|Whoever|What|Whatever|How|Nobody)\b")

NOT_YET: Final[frozenset[str]] = frozenset("tools/core_fuzz tools/rules".split())
"""Packages in which some docstrings still begin so. The list only shrinks."""


def beginnings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and first line of each docstring, and of each text below a variable or field, that begins so."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if QUESTION.match(text):
                    yield statement.lineno, text.splitlines()[0]


def found() -> list[str]:
    return [
        f"{path.relative_to(base).as_posix()}:{line}: {text}"
        for base, top in ((PACKAGE, PACKAGE), (ROOT, ROOT / "tools"))
        for path in sorted(top.rglob("*.py"))
        for line, text in beginnings(path.read_text(encoding="utf-8"))
    ]


def test_no_docstring_begins_with_a_question_word() -> None:
    excused = tuple(f"{package}/" for package in NOT_YET)
    assert [place for place in found() if not place.startswith(excused)] == []


def test_the_list_of_packages_only_shrinks() -> None:
    """A package that has no such docstring any more must leave the list."""
    places = found()
    assert [package for package in sorted(NOT_YET) if not any(p.startswith(f"{package}/") for p in places)] == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""What a module is for."""', [1]),
        ('class A:\n    """Nobody knows."""\n\n    field: int\n    """How long, in ms."""\n', [2, 5]),
        ('def f():\n    """Whether it is so."""\n', []),
        ('def f():\n    """However it comes."""\n', []),
        ('text = "What is this?"\n', []),
    ],
    ids=["module", "class-and-field", "whether", "however", "no-docstring"],
)
def test_question_words_are_found(source: str, lines: list[int]) -> None:
    assert [line for line, _ in beginnings(source)] == lines
