"""Ninety-nine things that can go wrong, as far as a simulation can show them, each as a story under its id.

    python3 dev.py simulate --scenario list
    python3 dev.py simulate --scenario E4 --seeds 0:50

A story knows what it provokes and at which point of the protocol; the swarm of `kraftlib.testing.simulation` does not.
So a story that fails says which rule was broken, and a rule that no run breaks in a thousand seeds is tried all the
same. `docs/contributing/scenarios.md` lists all of them, and where those are shown that no simulation can show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftlib.errors import ConfigError
from tools.scenarios import (
    clients,
    elections,
    epochs,
    machines,
    membership,
    replication,
    snapshots,
    storage,
    truncation,
)
from tools.scenarios.scenario import NotProvokedError, Scenario, ScenarioReport
from tools.scenarios.story import Story

__all__ = ["SCENARIOS", "NotProvokedError", "Scenario", "ScenarioReport", "Story", "run_scenario", "scenario_of"]

CHAPTERS: Final = (elections, epochs, truncation, replication, clients, snapshots, membership, storage, machines)

GROUPS: Final = "ELCNMSP"
"""Elections, logs, clients, snapshots, membership, storage, processes."""


def place_of(scenario_id: str) -> tuple[int, int]:
    """Return where an id stands in the list."""
    return GROUPS.index(scenario_id[0]), int(scenario_id[1:])


SCENARIOS: Final[Mapping[str, Scenario]] = {
    scenario.id: scenario
    for scenario in sorted(
        (scenario for chapter in CHAPTERS for scenario in chapter.scenario.scenarios),
        key=lambda scenario: place_of(scenario.id),
    )
}
"""Every story by its id, in the order of the list."""


def scenario_of(scenario_id: str) -> Scenario:
    """Return the scenario of this id. Raises: ConfigError, which says how to see what there is."""
    if scenario_id not in SCENARIOS:
        raise ConfigError(f"there is no scenario {scenario_id!r}: dev.py simulate --scenario list shows all")
    return SCENARIOS[scenario_id]


def run_scenario(scenario_id: str, seed: int) -> ScenarioReport:
    """Tell one story with one seed. Raises: InvariantViolation; NotProvokedError; ConfigError for an unknown id."""
    return Story(scenario_of(scenario_id), seed).run()
