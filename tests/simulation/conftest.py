"""`pytest tests/simulation --seed=N` runs one seed; `--seeds=A:B` others than the usual ones."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

USUAL = range(2)
"""The seeds of every run. Longer campaigns: `dev.py simulate --seeds A:B --jobs 2`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, default=None, help="simulate this one seed")
    group.addoption("--seeds", default=None, metavar="A:B", help="simulate the seeds from A up to, not with, B")


@pytest.fixture(scope="session")
def seeds(pytestconfig: pytest.Config) -> Iterable[int]:
    """The seeds to simulate."""
    one = pytestconfig.getoption("--seed", default=None)
    if one is not None:
        return [one]
    some = pytestconfig.getoption("--seeds", default=None)
    if some is not None:
        first, _, last = some.partition(":")
        return range(int(first), int(last))
    return USUAL
