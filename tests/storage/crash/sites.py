"""Every line of `kraftlib.storage` from which a call goes to the operating system that changes files.

Found in the syntax tree, so that a new one cannot be forgotten: a test compares them with those that the stories reach.
A call of a helper in `files` counts as well as the call inside the helper.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import ModuleType

from kraftlib.storage import files
from tools.storage_proof.os_watch import CHANGING, Site, aliases_in, modules_of

PACKAGE = "kraftlib.storage"
ELSEWHERE = {
    "kraftlib.storage.new_quorum": "it makes a new directory, for the operator who watches it",
    "kraftlib.storage.seeding": "it fills a new directory, which counts as formatted when that is done",
    "kraftlib.storage.snapshots.increment_files": "a torn one is none, and its checkpoint stands; see its tests",
    "kraftlib.storage.reserve": "it holds space and no data; its tests fill disks",
    "kraftlib.storage.damage.scrub": "it only reads",
    "kraftlib.storage.descriptors": "it opens the null device, and changes no file; see its tests",
}
"""Modules whose calls no story needs to reach, and why."""

OF_TOOLS = {"rename_new": "backups and conversions use it, for a file that is whole by then; see its tests"}
"""Functions of which the same is true."""


def call_sites() -> dict[Site, str]:
    """Return every such line, and what is called there."""
    helpers = _helpers()
    return {
        Site(module=module.__name__, line=line): name
        for module in modules_of(PACKAGE)
        if module.__name__ not in ELSEWHERE
        for line, name in _calls(module, helpers)
    }


def _helpers() -> frozenset[str]:
    """Return the functions of `files` that lead to a call, directly or by another of them."""
    tree = _tree(files)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found: set[str] = set(aliases_in(files))
    while True:
        more = {
            name
            for name, node in functions.items()
            if name not in found and any(_is_change(call, found) for call in ast.walk(node))
        }
        if not more:
            return frozenset(found)
        found |= more


def _calls(module: ModuleType, helpers: frozenset[str]) -> Iterator[tuple[int, str]]:
    parts = [part for part in _tree(module).body if getattr(part, "name", None) not in OF_TOOLS]
    for node in (node for part in parts for node in ast.walk(part)):
        if isinstance(node, ast.Call) and _is_change(node, helpers):
            yield node.lineno, ast.unparse(node.func)


def _is_change(node: ast.AST, helpers: frozenset[str] | set[str]) -> bool:
    """Whether this is a call of `os` or of a C library that changes files, or of a helper that makes one."""
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Attribute(value=ast.Name(id="os" | "libc"), attr=name):
            return name in CHANGING
        case ast.Attribute(value=ast.Name(id="files"), attr=name) | ast.Name(id=name):
            return name in helpers
        case _:
            return False


def _tree(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    with open(module.__file__, "rb") as source:
        return ast.parse(source.read())
