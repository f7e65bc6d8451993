"""Readers that hold the log: what they were given must hold, also in the next life."""

from __future__ import annotations

from random import Random

import pytest

from kraftlib.testing.log_faults import hold_log
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.world import World
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import planted
from tests.testing.worlds import world


def hold_for_a_while(made: World, random: Random) -> None:
    undo = hold_log(made, random)
    assert undo is not None
    made.run_for(300)
    undo()
    made.run_for(300)


def test_holds_are_stored_and_those_of_a_healthy_replica_hold() -> None:
    with world() as made:
        made.workload.start()
        for seed in range(5):
            hold_for_a_while(made, Random(seed))

        assert made.violation is None


def test_a_hold_that_is_not_stored_is_found() -> None:
    bug = next(mutant for mutant in MUTANTS if mutant.name == "holds-end-with-the-process")
    with planted(bug), world() as made, pytest.raises(InvariantViolation, match="HOLD"):
        hold_for_a_while(made, Random(1))


def test_a_hold_that_is_over_when_it_is_given_out_is_found() -> None:
    bug = next(mutant for mutant in MUTANTS if mutant.name == "expired-holds-are-given-out")
    with planted(bug), world() as made:
        for node in made.nodes.values():
            assert node.process is not None
            for number in range(3):
                node.process.retention.hold(f"reader {number}", None, None).expire()
        with pytest.raises(InvariantViolation, match="HOLD"):
            hold_for_a_while(made, Random(1))
