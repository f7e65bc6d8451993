"""The sweep finds every comparison of the core, and knows what is noticed."""

from __future__ import annotations

from tests.simulation.mutation import replaced, resolve
from tests.simulation.sweep import MODULES, changes, survives


def test_every_change_compiles_and_is_taken_back() -> None:
    for module in ("quorum", "contact"):
        found = list(changes(module))
        assert len({(change.where, change.what, change.source) for change in found}) == len(found) > 5
        for change in found:
            _, owner, name = resolve(change.where)
            before = getattr(owner, name)
            with replaced(change.where, change.source):
                pass
            assert getattr(owner, name) == before


def test_the_modules_are_there() -> None:
    assert all(next(changes(module), None) is not None for module in MODULES)


def test_a_majority_that_is_none_is_noticed() -> None:
    change = next(change for change in changes("quorum") if change.what.startswith("len(self.granted) >= "))

    assert survives(change, seeds=3, first=50_000) is not None
