"""The sweep makes every small change of the core, and knows what is noticed."""

from __future__ import annotations

import ast

from tests.simulation.changes import changes, changes_of
from tests.simulation.mutation import replaced, resolve
from tests.simulation.sweep import MODULES, noticed_by_seeds


def test_every_change_compiles_and_is_taken_back() -> None:
    for module in ("deadlines", "extensions.failed_state_machine"):
        found = list(changes(module))
        assert len({(change.where, change.what, change.source) for change in found}) == len(found) > 5
        for change in found:
            _, owner, name = resolve(change.where)
            before = getattr(owner, name)
            with replaced(change.where, change.source):
                pass
            assert getattr(owner, name) == before


def test_the_small_changes_of_a_function_are_all_there() -> None:
    tree = ast.parse(
        "def f(state):\n"
        "    if state.end_offset <= 1 and state.granted:\n"
        "        state.x = max(state.y, 2) - 1\n"
        "    return [A(), B()]\n"
    )
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)

    assert {change.what for change in changes_of("f", function)} == {
        "if state.end_offset <= 1 and state.granted  ~>  True",
        "if state.end_offset <= 1 and state.granted  ~>  False",
        "state.end_offset <= 1 and state.granted  ~>  without state.end_offset <= 1",
        "state.end_offset <= 1 and state.granted  ~>  without state.granted",
        "state.end_offset <= 1  ~>  Lt",
        "state.end_offset  ~>  flushed_offset",
        "state.granted  ~>  rejected",
        "without: state.x = max(state.y, 2) - 1",
        "max(state.y, 2)  ~>  state.y alone",
        "max(state.y, 2)  ~>  2 alone",
        "max(state.y, 2)  ~>  min",
        "max(state.y, 2) - 1  ~>  max(state.y, 2)",
        "[A(), B()]  ~>  without A()",
        "[A(), B()]  ~>  without B()",
        "[A(), B()]  ~>  the last one first",
    }


def test_the_modules_are_there() -> None:
    assert all(next(changes(module), None) is not None for module in MODULES)


def test_a_majority_that_is_none_is_noticed() -> None:
    change = next(change for change in changes("voters") if change.what.startswith("len(self.granted) >= "))

    assert noticed_by_seeds(change, seeds=3, first=50_000) is not None
