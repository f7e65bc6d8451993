"""Every path, symbol, page and KIP section that a comment, a docstring or a page of the documentation cites exists."""

from __future__ import annotations

import ast
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "kraftlib"
CODE: Final = ("kraftlib", "tests", "tools", "examples")
PATH: Final = re.compile(r"(?<![\w./:<>*{}$…-])((?:[\w.-]+/)*[\w-]+\.(?:py|md|rs|java))(?![\w*])")
SYMBOL: Final = re.compile(r"`(kraftlib(?:\.(?!json\b)\w+)+)(?:\(\))?`")
IN_FILE: Final = re.compile(r"`(\w+)` in `([\w/.]+\.py)`")
KIP: Final = re.compile(r"KIP-(\d+), (?!KIP|KAFKA)([A-Z][A-Za-z]+(?: [A-Z][A-Za-z]+)*)")

SECTIONS: Final = {
    "595": "Vote; BeginQuorumEpoch; EndQuorumEpoch; Fetch; DescribeQuorum; LeaderChangeMessage; Configurations; "
    "Persistent State; Leader Progress Timeout; Quorum Metrics; Cluster Bootstrapping",
    "630": "Fetch; FetchSnapshot; Snapshot Format; When to Snapshot; When to Delete Snapshots",
    "631": "Record Schemas",
    "853": "Vote; BeginQuorumEpoch; EndQuorumEpoch; Fetch; FetchSnapshot; DescribeQuorum; AddRaftVoter; "
    "RemoveRaftVoter; UpdateRaftVoter; UpdateFeatures; VotersRecord; Reference explanation; High Watermark; Snapshots",
}
"""Sections of KIPs that are cited, by the number of the KIP."""

NOT_FILES: Final = {
    "counter.py": "the reader makes it",
    "bank.py": "the reader makes it",
    "FILE.py": "stands for any file",
    "docs/page.md": "stands for any page",
}
"""Names that look like files of the repository and are none."""


def pages() -> list[Path]:
    docs = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    return sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *docs])


def sources() -> list[Path]:
    return sorted([ROOT / "dev.py", *(path for name in CODE for path in (ROOT / name).rglob("*.py"))])


def remarks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every comment and docstring of a Python file."""
    text = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of a page, without what stands in fenced blocks."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            yield number, line


@cache
def file_names() -> frozenset[str]:
    ends = (".py", ".md", ".rs", ".java")
    tops = (*CODE, "docs", ".ci")
    found = [path for top in tops for path in (ROOT / top).rglob("*") if path.suffix in ends]
    return frozenset(path.name for path in [*found, *ROOT.glob("*")])


def exists(cited: str, where: Path) -> bool:
    """Whether `cited` is a file: from the root, from `where`, below a top folder, or a bare name of any file."""
    if cited in NOT_FILES:
        return True
    if "/" not in cited:
        return cited in file_names()
    places = [ROOT, where.parent, *(ROOT / name for name in (*CODE, "docs")), *where.parents[: len(where.parts) - 2]]
    return any((place / cited).exists() for place in places)


def resolves(symbol: str) -> bool:
    """Whether `symbol` is a module of ours, or an attribute of one."""
    parts = symbol.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            if name in getattr(found, "__annotations__", {}):
                return True
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False


def wrong(text: str, where: Path) -> Iterator[str]:
    """Yield what `text` cites and is not there."""
    yield from (cited for cited in PATH.findall(text) if not exists(cited, where))
    yield from (symbol for symbol in SYMBOL.findall(text) if not resolves(symbol))
    for name, file in IN_FILE.findall(text):
        places = [place for place in (ROOT / file, PACKAGE / file) if place.is_file()]
        if not any(re.search(rf"\b{name}\b", place.read_text(encoding="utf-8")) for place in places):
            yield f"{name} in {file}"
    for number, section in KIP.findall(text):
        if not any(
            section.startswith(known) or known.startswith(section) for known in SECTIONS.get(number, "-").split("; ")
        ):
            yield f"KIP-{number}, {section}"


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_cites_exists(page: Path) -> None:
    assert [f"line {line}: {cited}" for line, text in prose(page) for cited in wrong(text, page)] == []


def test_what_comments_and_docstrings_cite_exists() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {cited}"
        for path in sources()
        # The whole text first: most files hold nothing wrong, and reading them as Python takes seconds.
        if any(wrong(path.read_text(encoding="utf-8"), path))
        for line, text in remarks(path)
        for cited in wrong(text, path)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "see states.md, section 4",
        "`kraftlib/consensus/nowhere.py`",
        "`kraftlib.config.NoSuchThing`",
        "`no_such_function` in `kraftlib/config.py`",
        "(KIP-595, Elections)",
    ],
)
def test_a_citation_of_nothing_is_found(text: str) -> None:
    assert len(list(wrong(text, Path(__file__)))) == 1


def test_every_extra_is_imported_somewhere() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    imports = {"cli": "rich", "uvloop": "uvloop", "snappy": "cramjam", "spark": "pyspark", "kazoo": "kazoo"}
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "kraftlib").rglob("*.py"))
    assert set(extras) - {"test", "dev", "docs"} == set(imports)
    for name in imports.values():
        assert re.search(rf"^\s*(import|from) {name}\b", source, re.MULTILINE) or f'import_module("{name}")' in source
