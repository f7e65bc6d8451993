"""Simulate your own state machine from pytest.

Say so in the top `conftest.py`:

    pytest_plugins = ["kraftlib.testing.pytest_plugin"]

and write a test:

    @pytest.mark.kraft_simulation(seeds=range(50))
    def test_my_machine_survives(kraft_simulation):
        kraft_simulation(Subject(machine=MyMachine, value=make_value))

A seed that fails says how to run it again: `pytest TEST --kraft-seed=N`. `--kraft-seeds=A:B` runs others than the usual
ones, for longer campaigns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest

from kraftlib.testing.campaign import quiet
from kraftlib.testing.simulation import Report, simulate
from kraftlib.testing.subject import DEFAULT, Subject

USUAL_SEEDS: Final = range(20)

RunSimulations = Callable[..., Sequence[Report]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options that choose seeds."""
    group = parser.getgroup("kraftlib", "simulations of replicated state machines")
    group.addoption("--kraft-seed", type=int, default=None, metavar="N", help="simulate this one seed")
    group.addoption("--kraft-seeds", default=None, metavar="A:B", help="simulate the seeds from A up to, not with, B")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "kraft_simulation(seeds=range(20), profile='swarm', trouble_ms=None): seeds of the fixture",
    )


@pytest.fixture(name="kraft_simulation")
def kraft_simulation_fixture(request: pytest.FixtureRequest) -> RunSimulations:
    """Return a function that simulates a subject with the seeds of the marker; it returns a report for each."""
    marker = request.node.get_closest_marker("kraft_simulation")
    wanted: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    usual = wanted.pop("seeds", USUAL_SEEDS)
    seeds = chosen_seeds(request.config, usual)

    def run(subject: Subject = DEFAULT, **more: Any) -> Sequence[Report]:
        reports = []
        with quiet():
            for seed in seeds:
                replay = f"pytest '{request.node.nodeid}' --kraft-seed={seed}"
                reports.append(simulate(seed, subject=subject, replay=replay, **{**wanted, **more}))
        return reports

    return run


def chosen_seeds(config: pytest.Config, usual: Iterable[int]) -> Iterable[int]:
    """Return the seeds of the command line, if it has any."""
    one: int | None = config.getoption("--kraft-seed")
    if one is not None:
        return [one]
    some: str | None = config.getoption("--kraft-seeds")
    if some is None:
        return usual
    first, _, last = some.partition(":")
    if not first.isdecimal() or not last.isdecimal():
        raise pytest.UsageError(f"--kraft-seeds={some}: expected A:B")
    return range(int(first), int(last))
