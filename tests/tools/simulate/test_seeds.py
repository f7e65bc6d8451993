"""Seeds with the rules as judges, of which every pair is counted."""

from __future__ import annotations

import pytest

from kraftlib.errors import ConfigError
from kraftlib.testing import campaign
from kraftlib.testing.campaign import Finding
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import planted
from tools.simulate.program import COMMAND, PROGRAM
from tools.simulate.seeds import run_seed, run_seeds


def test_a_seed_is_the_same_run_with_judges_and_without() -> None:
    for seed in (2, 3):
        judged = run_seed(seed, profile="crashes", trouble_ms=300)
        alone = campaign.run_seed(seed, profile="crashes", trouble_ms=300, program=PROGRAM)

        assert not isinstance(judged, Finding)
        assert judged.pairs["leader FetchRequest records"] > 0
        assert judged.trace_hash == alone.trace_hash


def test_a_broken_rule_is_a_finding_with_the_command_that_shows_it() -> None:
    """The bug does no harm in a run without trouble, so no invariant sees it there."""
    wide = next(mutant for mutant in MUTANTS if mutant.name == "second-vote-in-an-epoch")
    with planted(wide):
        found = [result for result in run_seeds(range(0, 12, 2), profile="crashes") if isinstance(result, Finding)]

    assert found
    assert found[0].invariant.startswith("R")
    assert found[0].replay == f"{COMMAND} --seed {found[0].seed} --profile crashes"


def test_only_every_second_seed_of_short_profiles_is_judged() -> None:
    judged = [(seed, name) for seed in (4, 5) for name in ("swarm", "hours") if PROGRAM.judge_of(seed, name)]

    assert judged == [(4, "swarm")]


def test_a_profile_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no profile"):
        run_seed(1, profile="core-nothing")
