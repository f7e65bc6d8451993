"""Suppositions find what a run never comes to, and leave it as it is."""

from __future__ import annotations

import attrs
import pytest

from tests.simulation.mutation import Edit, Mutant, planted
from tools.core_fuzz import suppositions
from tools.core_fuzz.themes import THEMES
from tools.core_fuzz.world import CoreWorld
from tools.rules import BrokenRuleError

STEPS, SEEDS_MAX = 1_200, 12
LAST_EPOCH = Mutant(
    "last-epoch",
    "the last epoch that peers may raise a replica to is not believed",
    (Edit("consensus.extensions.epoch_budget.raises_too_far", "<= left", "< left"),),
)
FORGETFUL_UPGRADE = Mutant(
    "forgetful-upgrade",
    "when the disks of static voters become known, the leader forgets how far they are",
    (Edit("consensus.fetch_leader._progress_of", "key.matches(voter.key) or", "key.matches(voter.key) and"),),
)


def lived(monkeypatch: pytest.MonkeyPatch, share: float, *, seed: int, theme: str) -> tuple[object, ...]:
    """Run for a while; return what has come of it."""
    monkeypatch.setattr(suppositions, "SHARE", share)
    world = CoreWorld(seed, THEMES[theme])
    for _ in range(STEPS):
        world.step()
    assert (world.counts["supposition"] > 10) is (share > 0.0)
    ends = [(host.store.end, host.running.state.election, host.running.state.now_ms) for host in world.up()]
    return world.now_ms, world.events, sorted(world.promises.committed.items()), ends, world.random.random()


@pytest.mark.parametrize(("seed", "theme"), [(1, "core"), (2, "core-voters"), (3, "core-lies")])
def test_a_run_goes_on_as_if_nothing_had_been_supposed(monkeypatch: pytest.MonkeyPatch, seed: int, theme: str) -> None:
    without = lived(monkeypatch, 0.0, seed=seed, theme=theme)

    assert lived(monkeypatch, 0.05, seed=seed, theme=theme) == without


def suppose_much() -> None:
    """Run static quorums in which much is supposed."""
    for seed in range(SEEDS_MAX):
        world = CoreWorld(seed, attrs.evolve(THEMES["core"], dynamic=0.0))
        for _ in range(STEPS):
            world.step()


@pytest.mark.parametrize(("mutant", "rule"), [(LAST_EPOCH, "RV"), (FORGETFUL_UPGRADE, "RC9")])
def test_a_twin_shows_a_bug_that_the_run_does_not_come_to(
    monkeypatch: pytest.MonkeyPatch, mutant: Mutant, rule: str
) -> None:
    monkeypatch.setattr(suppositions, "SHARE", 0.1)
    with planted(mutant), pytest.raises(BrokenRuleError) as broken:
        suppose_much()

    assert broken.value.rule.startswith(rule)
