"""The simulator must bite: every planted bug is found within a bounded number of seeds.

`dev.py campaign`, which CI runs, looks for some, other ones for each commit, and `dev.py mutants` for all of them.
"""

from __future__ import annotations

import pytest

from tests.simulation.hunt import SEEDS_MAX, EndlessError, coming_to_an_end
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


def spin() -> None:
    while True:
        pass


def test_a_seed_without_an_end_comes_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulation.hunt.SEED_CPU_SECONDS", 0.05)
    with pytest.raises(EndlessError), coming_to_an_end():
        spin()
