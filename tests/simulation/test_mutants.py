"""The simulator must bite: every planted bug is found within a bounded number of seeds.

`dev.py campaign`, which CI runs, looks for some, other ones for each commit, and `dev.py mutants` for all of them.
"""

from __future__ import annotations

import pytest

from kraftlib.consensus import voters
from kraftlib.testing.campaign import Finding
from tests.simulation.hunt import SEEDS_MAX, Catch, EndlessError, coming_to_an_end, hunt
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import Edit, Mutant, OutdatedMutantError, planted, resolve


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_code_and_leaves_it_as_it_was(mutant: Mutant) -> None:
    before = [getattr(resolve(edit.where)[1], resolve(edit.where)[2]) for edit in mutant.edits]
    with planted(mutant):
        pass

    assert [getattr(resolve(edit.where)[1], resolve(edit.where)[2]) for edit in mutant.edits] == before


def test_names_are_unique_and_there_are_enough() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len([mutant for mutant in MUTANTS if not mutant.equivalent]) >= 40
    assert SEEDS_MAX <= 2_000


def test_an_edit_that_does_not_fit_fails_loudly() -> None:
    mutant = Mutant("outdated", "nothing", (Edit("consensus.voters.majority_offset", "no such text", ""),))
    with pytest.raises(OutdatedMutantError, match="does not contain"), planted(mutant):
        pass


MAJORITY_OF_NONE = Mutant(
    "majority-of-none",
    "the greatest offset counts, whoever has it",
    (Edit("consensus.voters.majority_offset", "// 2]", "// 99]"),),
    profiles=("core",),
)


@pytest.mark.parametrize("finds_without", [False, True])
def test_a_seed_counts_only_if_it_finds_nothing_without_the_bug(
    monkeypatch: pytest.MonkeyPatch, finds_without: bool
) -> None:
    alarm = Finding(seed=0, profile="core", invariant="I8", what="", time_ms=0, replay="", trace_hash="")
    is_planted: list[bool] = []

    def run_seed(seed: int, *, profile: str) -> Finding | None:
        is_planted.append(voters.majority_offset([1, 2, 3]) == 3)
        return alarm if is_planted[-1] or finds_without else None

    monkeypatch.setattr("tests.simulation.hunt.run_seed", run_seed)
    caught = hunt(MAJORITY_OF_NONE, seeds_max=2)

    assert is_planted == [True, False] * (2 if finds_without else 1)
    assert caught == (None if finds_without else Catch(1, 10_000, "core", "I8", ""))


def spin() -> None:
    while True:
        pass


def test_a_seed_without_an_end_comes_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulation.hunt.SEED_CPU_SECONDS", 0.05)
    with pytest.raises(EndlessError), coming_to_an_end():
        spin()
