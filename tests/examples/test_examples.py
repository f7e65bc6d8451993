"""Every example runs as it stands, ends by itself, and uses nothing but the public names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kraftlib
import kraftlib.archive
import kraftlib.controller
import kraftlib.metadata

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LISTED = {
    (module.__name__, name)
    for module in (kraftlib, kraftlib.archive, kraftlib.controller, kraftlib.metadata)
    for name in module.__all__
}
ELSEWHERE = {"kraft_job": "is run by tests/spark/test_pages.py, where there is a session"}
FILES = sorted(path for path in EXAMPLES.glob("*.py") if path.stem not in ELSEWHERE)
SERVING = {"consumer_groups", "job_scheduler", "service_registry"}
"""Those that run until they are told to end: each has a test of its own, which starts three and kills the leader."""

SAYS = {
    "archive": "problems: []",
    "custom_log": "all three databases hold [b'one', b'two', b'three', b'four']",
    "custom_transport": "another replica leads, and the log goes on with offset",
    "kafka_topics": "and now it has  {'orders': 3}",
    "key_value_store": "before it became green:  blue",
    "metadata_store": "metadata.version 30",
    "leader_election": "still believes in itself and tries: False",
}
"""What only a run that went well prints."""


def test_every_example_is_expected() -> None:
    assert {path.stem for path in FILES} == set(SAYS) | SERVING
    assert all((Path(__file__).parent / f"test_{name}.py").exists() for name in SERVING)


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in SERVING], ids=lambda path: path.stem)
def test_the_example_ends_well_and_quietly(path: Path) -> None:
    """Also from another directory, and with every warning an error."""
    command = [sys.executable, "-W", "error", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=path.anchor, timeout=60, check=False)

    assert (result.returncode, result.stderr) == (0, "")
    assert SAYS[path.stem] in result.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_example_uses_public_names_only(path: Path) -> None:
    used = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kraftlib")
        for alias in node.names
    }

    assert used != set()
    assert {use for use in used - LISTED if not is_documented(*use)} == set()


def is_documented(module: str, name: str) -> bool:
    """Whether a page of the reference describes `name` of `module`."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    members = re.search(rf"^\.\. automodule:: {re.escape(module)}\n   :members:(.*)$", pages, re.MULTILINE)
    if members and (not members[1].strip() or name in re.split(r"[,\s]+", members[1])):
        return True
    return f".. autoclass:: {module}.{name}\n" in pages


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_example_teaches_and_says_how_to_run_it(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_bytes())) or ""

    assert len(text.split()) > 60
    assert f"    python examples/{path.name}" in text.split("\n\n")[-1]
