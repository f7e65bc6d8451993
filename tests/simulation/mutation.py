"""Plants bugs: small edits of functions in memory, so that nothing of it ever stands in the product.

A mutant is a list of edits, each "in this function, this text becomes that text". The function is compiled anew from
its edited source in the namespace of its module, and put wherever the old one was referred to. A text that is not found
fails loudly: the code has changed, and the mutant must follow.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs

NUMBERS = itertools.count(1)


@attrs.frozen
class Edit:
    """In `where` (`module.function` or `module.Class.method`, below kraftlib) `old` becomes `new`, everywhere."""

    where: str
    old: str
    new: str


@attrs.frozen
class Mutant:
    """A bug that somebody could have written."""

    name: str
    what: str
    edits: tuple[Edit, ...]
    profiles: tuple[str, ...] = ("swarm",)
    """Where it is looked for."""

    slow: bool = False
    """Whether it takes so many seeds that only the long form looks for it."""

    equivalent: str = ""
    """Why it cannot be found, if it cannot: another part makes up for it."""


class OutdatedMutantError(AssertionError):
    """The text that a mutant edits is not there any more."""


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Let the bug be there for a while."""
    undo: list[Callable[[], None]] = []
    try:
        for edit in mutant.edits:
            undo += apply(edit)
        yield
    finally:
        for restore in reversed(undo):
            restore()


def apply(edit: Edit) -> list[Callable[[], None]]:
    """Make one edit; return how to take it back."""
    _, owner, name = resolve(edit.where)
    function = unwrapped(inspect.getattr_static(owner, name))
    source = textwrap.dedent(inspect.getsource(function))
    if edit.old not in source:
        raise OutdatedMutantError(f"{edit.where} does not contain {edit.old!r}:\n{source}")
    return put(edit.where, source.replace(edit.old, edit.new))


@contextmanager
def replaced(where: str, source: str) -> Iterator[None]:
    """Let a function have another source for a while."""
    undo = put(where, source)
    try:
        yield
    finally:
        for restore in reversed(undo):
            restore()


def put(where: str, source: str) -> list[Callable[[], None]]:
    """Compile `source` in the place of a function; return how to take it back."""
    module, owner, name = resolve(where)
    old = inspect.getattr_static(owner, name)
    namespace: dict[str, Any] = {}
    mutated = "from __future__ import annotations\n" + source
    file_name = f"<mutant {next(NUMBERS)} of {where}>"
    # So that the source of a mutant can be edited once more.
    linecache.cache[file_name] = (len(mutated), None, mutated.splitlines(keepends=True), file_name)
    exec(compile(mutated, file_name, "exec"), module.__dict__, namespace)
    new = namespace[name]
    if owner is module:
        return replace_everywhere(old, new)
    setattr(owner, name, new)
    return [lambda: setattr(owner, name, old)]


def resolve(where: str) -> tuple[types.ModuleType, Any, str]:
    """Return module, owner and name of a function."""
    parts = where.split(".")
    for count in range(len(parts) - 1, 0, -1):
        name = "kraftlib." + ".".join(parts[:count])
        try:
            __import__(name)
        except ImportError:
            continue
        module = sys.modules[name]
        owner: Any = module
        for part in parts[count:-1]:
            owner = getattr(owner, part)
        return module, owner, parts[-1]
    raise OutdatedMutantError(f"there is no module for {where}")


def unwrapped(value: Any) -> Any:
    """Return the function inside a property or class method."""
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value)


def replace_everywhere(old: Any, new: Any) -> list[Callable[[], None]]:
    """Put `new` in the place of `old` in every module of kraftlib and its tests, and in the tables that these have."""
    undo: list[Callable[[], None]] = []
    for name, module in list(sys.modules.items()):
        if not name.startswith(("kraftlib", "tests")):
            continue
        for attribute, value in list(vars(module).items()):
            if value is old:
                setattr(module, attribute, new)
                undo.append(lambda module=module, attribute=attribute: setattr(module, attribute, old))
            elif isinstance(value, dict) and attribute.isupper():
                for key, entry in list(value.items()):
                    if entry is old:
                        value[key] = new
                        undo.append(lambda value=value, key=key: value.__setitem__(key, old))
    return undo
