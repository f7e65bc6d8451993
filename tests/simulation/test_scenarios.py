"""Every story of `kraftlib.testing.scenarios`, under its id; and bugs that the story of their kind must find.

Longer: `kraftlib simulate --scenario all --seeds 0:100`.
"""

from __future__ import annotations

from typing import Final

import pytest

from kraftlib.testing.campaign import quiet
from kraftlib.testing.scenario import NotProvokedError
from kraftlib.testing.scenarios import SCENARIOS, run_scenario
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import planted

SEEDS: Final = range(3)
SEEDS_TO_FIND_A_BUG: Final = 8

FOUND_BY: Final[dict[str, tuple[str, ...]]] = {
    "E1": ("vote-is-not-written", "vote-is-spoken-first", "vote-is-forgotten-at-start"),
}
"""Bugs of `mutants.py` that a scenario finds within a few seeds."""

PLANTED: Final = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("scenario_id", SCENARIOS)
def test_scenario(scenario_id: str) -> None:
    for seed in SEEDS:
        with quiet():
            report = run_scenario(scenario_id, seed)
        assert report.provoked


@pytest.mark.parametrize(
    ("scenario_id", "name"), [(scenario_id, name) for scenario_id, names in FOUND_BY.items() for name in names]
)
def test_a_planted_bug_is_found_by_the_scenario_of_its_kind(scenario_id: str, name: str) -> None:
    found: list[str] = []
    with planted(PLANTED[name]), quiet():
        for seed in range(SEEDS_TO_FIND_A_BUG):
            try:
                run_scenario(scenario_id, seed)
            except NotProvokedError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever the bug does: it shows
                found.append(repr(error))
                break

    assert found, f"{scenario_id} does not notice: {PLANTED[name].what}"
