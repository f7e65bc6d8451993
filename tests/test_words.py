"""Sentences in plain English: each one names its subject.

A sentence that begins with a question word ("What is stored stays", "Who has voted waits") hides the thing that it is
about: it says "A stored record", or "A voter", instead. So do "nobody" and "whoever", which stand for replicas, peers,
callers or users. Docstrings, texts below fields, comments, messages and pages are looked at, sentence by sentence.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent

BEGINNING: Final = re.compile(
    r"(who|whom|whose|whoever|what|whatever|nobody|somebody|how (many|much|long|far|old|often|soon)|so (much|long)"
    r"|(for|from|under) (how|what|where|which|whom)\b|for so)\b",
    re.IGNORECASE,
)
ANYWHERE: Final = re.compile(r"\b(nobody|somebody|anybody|whoever|for so long|(from|to) where)\b", re.IGNORECASE)

CODE: Final = re.compile(r"`[^`]*`")
END: Final = re.compile(r"(?<=[.;:!])[)*\"']*\s+")

ALLOWED: Final = frozenset({"`nobody` has the roles of a peer without a principal."})
"""Sentences that are about a name in the code."""


def subjectless(text: str) -> list[str]:
    """Return the sentences, and the clauses behind a colon or semicolon, that hide their subject."""
    clauses = (clause.strip("*\"'(): ") for clause in END.split(re.sub(r"\s+", " ", CODE.sub("it", text))))
    return [
        clause
        for clause in clauses
        if not clause.endswith("?") and (BEGINNING.match(clause) or ANYWHERE.search(clause))
    ]


def texts_of_code(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring, comment, and string of several words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    lines: list[str] = []
    start, end = 0, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != end + 1:
                yield start, " ".join(lines)
                start, lines = token.start[0], []
            end = token.start[0]
            lines.append(token.string.lstrip("# "))
    yield start, " ".join(lines)


def texts_of_page(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each paragraph and list item of a page, without its code, tables and headings."""
    lines: list[str] = []
    inside, start = False, 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        if inside or not line.strip() or re.match(r"\s*(```|\||#|[-*] |\d+\. )", line):
            yield start, " ".join(lines)
            start, lines = number, []
        if not inside and not line.lstrip().startswith(("#", "|", "```")):
            lines.append(line.strip().lstrip("-*0123456789. "))
    yield start, " ".join(lines)


@functools.cache
def found() -> list[str]:
    modules = [*(ROOT / "kraftlib").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return [
        f"{path.relative_to(ROOT).as_posix()}:{line}: {sentence}"
        for path in sorted([*modules, *pages])
        for line, text in (texts_of_code if path.suffix == ".py" else texts_of_page)(path.read_text(encoding="utf-8"))
        for sentence in subjectless(text)
        if sentence not in ALLOWED
    ]


def test_every_sentence_names_its_subject() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("source", "sentences"),
    [
        ('"""What a module is for."""', ["What a module is for."]),
        (
            '"""It leads: whoever asks is told.\n\nFor so long it waits."""',
            ["whoever asks is told.", "For so long it waits."],
        ),
        ('class A:\n    field: int\n    """How long, in ms."""\n', ["How long, in ms."]),
        ("x = 1  # nobody waits\n", ["nobody waits"]),
        ('raise ValueError(f"{x}: nobody listens there")\n', ["nobody listens there"]),
        ('def f():\n    """Whether it is so, and what it costs."""\n', []),
        ('def f():\n    """However it comes. What is it?"""\n', []),
        ("x = 1  # `nobody` is a name\n", []),
    ],
    ids=["module", "clauses", "field", "comment", "message", "noun-clause", "question", "code"],
)
def test_sentences_without_a_subject_are_found(source: str, sentences: list[str]) -> None:
    assert [sentence for _, text in texts_of_code(source) for sentence in subjectless(text)] == sentences


def test_pages_are_read_without_their_code() -> None:
    page = "# What is new\n\nA leader waits. Who asks,\nwaits.\n\n```\nwhat is code\n```\n\n- It asks nobody.\n"
    assert [sentence for _, text in texts_of_page(page) for sentence in subjectless(text)] == [
        "Who asks, waits.",
        "It asks nobody.",
    ]
