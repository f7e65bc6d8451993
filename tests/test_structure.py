"""The shape of the source: no import circle, no private name of another file, no package beyond its budget of lines.

Each rule has a list of today's exceptions. The lists only shrink: an entry that is no longer true fails, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "kraftlib"

LINES: Final[Mapping[str, int]] = {
    "analysis": 5_500,
    "cli": 5_520,
    "compat": 2_300,
    "controller": 5_850,
    "consensus": 5_500,
    "coordination": 3_560,
    "machines": 1_100,
    "offline": 1_300,
    "recipes": 2_360,
    "runtime": 8_000,
    "storage": 6_500,
    "testing": 9_000,
}
"""The budget of a package, in lines of its Python files."""

OVER_BUDGET: Final[frozenset[str]] = frozenset("analysis consensus runtime storage testing".split())
"""Packages that are larger than their budget."""

CIRCLES: Final[frozenset[str]] = frozenset()
"""Modules that import each other, in alphabetical order, without `kraftlib.`."""

BORROWERS: Final[frozenset[str]] = frozenset()
"""Files that use a private name of another file."""

FOREIGN: Final[Mapping[str, str]] = {
    "_replace": "a method of every NamedTuple",
    "_exit": "a public function of os",
    "_jvm": "PySpark has no public name for it",
    "_gateway": "PySpark has no public name for it",
    "_ensure_initialized": "PySpark has no public name for it",
    **dict.fromkeys(
        (
            "_CONNECTION_DROP",
            "_SESSION_EXPIRED",
            "_child_watchers",
            "_data_watchers",
            "_pending",
            "_queue",
            "_session_callback",
            "_session_id",
            "_session_passwd",
            "_session_timeout",
            "_stopped",
        ),
        "kazoo's client shares it with its connection",
    ),
}
"""Private names that other projects make everybody use."""


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


def module_name(path: Path) -> str:
    """Return the name of the module below `kraftlib`, such as `storage.log`."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


# Circles -------------------------------------------------------------------------------------------


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes below `node` but those under `if TYPE_CHECKING:`, which never run."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from statements(child)


def imported_by(module: ast.Module, modules: frozenset[str]) -> Iterator[str]:
    """Yield the modules of ours that `module` imports, also within functions."""
    for node in statements(module):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "kraftlib":
                # `from package.module import name` and `from package import module`: the longest that is a module.
                ends = [".".join(parts[1:end]) for end in range(len(parts), 1, -1)]
                yield from [end for end in ends if end in modules][:1]


def circles(graph: Mapping[str, set[str]]) -> set[str]:
    """Return the groups of modules each of which reaches all others of its group."""

    @cache
    def reached(start: str) -> frozenset[str]:
        seen: set[str] = set()
        ahead = list(graph[start])
        while ahead:
            name = ahead.pop()
            if name not in seen:
                seen.add(name)
                ahead += graph[name]
        return frozenset(seen)

    return {
        ", ".join(sorted({name, *(other for other in reached(name) if name in reached(other))}))
        for name in graph
        if name in reached(name)
    }


def test_no_modules_import_each_other() -> None:
    paths = {module_name(path): path for path in sources() if path != PACKAGE / "__init__.py"}
    graph = {name: set(imported_by(tree(path), frozenset(paths))) - {name} for name, path in paths.items()}

    found = circles(graph)
    assert found - CIRCLES == set()
    assert CIRCLES - found == set(), "an exception that is no longer true"


def test_the_search_for_circles_finds_one() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"b, c"}


# Private names -------------------------------------------------------------------------------------


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def own_names(module: ast.Module) -> set[str]:
    """Return the private names that a file defines: functions, classes, variables, attributes."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            found.add(node.attr)
    return found


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def borrowed(module: ast.Module) -> set[str]:
    """Return the private names that a file uses and does not define."""
    used = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            used.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            used |= {alias.name for alias in node.names if is_private(alias.name)}
    return used - own_names(module) - set(FOREIGN)


def test_no_file_uses_a_private_name_of_another() -> None:
    found = {str(path.relative_to(PACKAGE)): borrowed(tree(path)) for path in sources()}
    assert {path: names for path, names in found.items() if names and path not in BORROWERS} == {}
    assert {path for path in BORROWERS if not found.get(path)} == set(), "an exception that is no longer true"


def test_every_foreign_name_is_used() -> None:
    used = {node.attr for path in sources() for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}
    assert set(FOREIGN) - used == set(), "an exception that is no longer true"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from kraftlib.storage.log import _read", {"_read"}),
        ("log._tail.clear()", {"_tail"}),
        ("class A(B):\n    def f(self):\n        return self._inherited", {"_inherited"}),
        (
            "class A:\n    def f(self):\n        self._own = 1\n    def g(self, other):\n        return other._own",
            set(),
        ),
        ("self.__class__.__name__", set()),
    ],
)
def test_the_search_for_private_names_finds_them(text: str, names: set[str]) -> None:
    assert borrowed(ast.parse(text)) == names


# Budgets -------------------------------------------------------------------------------------------


def test_every_package_keeps_to_its_budget_of_lines() -> None:
    sizes = {
        name: sum(len(path.read_bytes().splitlines()) for path in (PACKAGE / name).rglob("*.py")) for name in LINES
    }
    over = {name for name, size in sizes.items() if size > LINES[name]}
    assert {name: sizes[name] for name in over - OVER_BUDGET} == {}
    assert OVER_BUDGET - over == set(), "an exception that is no longer true"
