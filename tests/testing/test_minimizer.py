"""A failing run is made smaller, down to what it takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import ConfigError
from kraftlib.testing.campaign import quiet
from kraftlib.testing.minimizer import minimize, smallest
from kraftlib.testing.profiles import profile_of
from kraftlib.testing.simulation import Simulation
from kraftlib.testing.violation import InvariantViolation
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import planted

RESTARTS = {"kill", "power-loss", "power-loss-everywhere", "restart-all-in-turn"}
"""What lets a replica begin a new life."""
VOTE_IS_FORGOTTEN = next(mutant for mutant in MUTANTS if mutant.name == "vote-is-forgotten-at-start")


def failing_seed() -> int:
    """Return a seed that finds the planted bug, and makes more trouble than that takes."""
    for seed in range(100):
        simulation = Simulation(seed, profile_of("crashes"), trouble_ms=1_000)
        try:
            with quiet():
                simulation.run()
        except InvariantViolation:
            if len(simulation.nemesis.made) > 2:
                return seed
    raise AssertionError("no seed found it")


NUMBERS = st.lists(st.integers(1, 60), unique=True, max_size=40)


@given(NUMBERS, st.data())
def test_what_is_needed_together_is_found_and_nothing_else(numbers: list[int], data: st.DataObject) -> None:
    needed = set(data.draw(st.lists(st.sampled_from(numbers), unique=True))) if numbers else set()

    assert set(smallest(numbers, lambda some: needed <= set(some))) == needed


@given(NUMBERS, st.randoms(use_true_random=False))
def test_of_what_is_found_nothing_can_be_left_out(numbers: list[int], random: object) -> None:
    """Whatever fails: also where leaving more out fails again."""
    answers: dict[tuple[int, ...], bool] = {tuple(numbers): True}

    def fails(some: Sequence[int]) -> bool:
        return answers.setdefault(tuple(some), bool(random.getrandbits(1)))  # type: ignore[attr-defined]

    found = smallest(numbers, fails)
    assert fails(found)
    for left_out in range(len(found)) if len(found) > 1 else ():
        assert not fails(found[:left_out] + found[left_out + 1 :])


def test_a_planted_bug_is_shown_with_the_one_strike_that_it_takes() -> None:
    """One restart is enough, whatever else the seed does; and the command shows it again."""
    told: list[str] = []
    with planted(VOTE_IS_FORGOTTEN):
        small = minimize(failing_seed(), "crashes", trouble_ms=1_000, progress=told.append)

    assert small is not None
    assert small.complete
    assert [strike.name in RESTARTS for strike in small.strikes] == [True]
    assert small.began_with > 1
    assert f"--profile crashes --until-ms {small.trouble_ms} --only {small.strikes[0].number}" in small.replay
    assert f"{small.violation.invariant} takes 1 of" in str(small)
    assert told


def test_there_is_not_always_time_for_everything() -> None:
    with planted(VOTE_IS_FORGOTTEN):
        small = minimize(failing_seed(), "crashes", trouble_ms=1_000, runs_max=1)

    assert small is not None
    assert not small.complete
    assert small.began_with == len(small.strikes) > 1


def test_what_breaks_nothing_is_not_minimized() -> None:
    assert minimize(1, "crashes", trouble_ms=200) is None
    with pytest.raises(ConfigError, match="makes no trouble"):
        minimize(1, "calm")
