"""States that are compared: a wrong one is found and healed, and bugs of the comparison show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftlib.testing.campaign import Finding
from tests.simulation.hunt import coming_to_an_end
from tests.simulation.mutation import Edit, Mutant, planted
from tools.core_fuzz.fuzz import fuzz
from tools.core_fuzz.healing import get_well
from tools.core_fuzz.themes import THEMES, Theme
from tools.core_fuzz.world import CoreWorld
from tools.simulate.seeds import run_seed

SEEDS_MAX = 60


def runs() -> Iterator[tuple[int, str]]:
    """Yield runs in which states are compared."""
    for seed in range(SEEDS_MAX):
        for theme in THEMES:
            if CoreWorld(seed, THEMES[theme]).states.are_compared:
                yield seed, theme


def test_a_wrong_state_is_found_and_healed() -> None:
    seen: set[str] = set()
    for seed, theme in runs():  # it ends as soon as each has come about
        seen |= fuzz(seed, theme).faults.keys()
        if seen >= {"wrong state", "quarantined replica", "healed replica"}:
            return
    pytest.fail(f"only {seen} have come about")


def test_a_replica_that_is_healed_by_the_only_voter_stays_so_though_that_is_wrong() -> None:
    """By its word the others are measured, and its snapshots hold its state: each error costs each of them one."""
    theme = Theme(name="only voter", what="one voter", steps={"snapshot": 5.0}, voters=(1,), replicas=(3,))
    quarantined = 0
    for seed in range(SEEDS_MAX):
        world = CoreWorld(seed, theme)
        for number in range(400):
            if number == 200:
                world.states.lead_astray(world.hosts[world.first_voters[0]], for_good=True)
            world.step()
        for _ in range(10):
            assert get_well(world) >= 0
        quarantined += world.counts["quarantined replica"]
        errors = world.counts["wrong state"] + world.counts["state that was wrong once"]
        assert world.counts["quarantined replica"] <= 2 * errors
    assert quarantined


BUGS = {
    "other-forms-are-compared": ("state_digests.judge", "if digest and digest.is_comparable(mine)", "if digest"),
    "anybody-speaks-for-a-voter": ("state_digests.handle_state_digest", "and not (is_voter and event.of_observer)", ""),
    "doubtful-snapshots-stay": ("quarantine.begin_quarantine", "one.offset > digests.agreed_offset and", "False and"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_the_comparison_is_found(bug: str) -> None:
    where, old, new = BUGS[bug]
    with planted(Mutant(bug, "", (Edit(f"consensus.extensions.{where}", old, new),))):
        for seed, theme in runs():
            with coming_to_an_end():
                found = run_seed(seed, profile=theme)
            if isinstance(found, Finding):
                return
    pytest.fail(f"{bug} is not found")
