"""Listeners that come and go: they are fed as any other, and the replica must let go of them."""

from __future__ import annotations

from random import Random

import pytest

from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.visitors import Visitor, Visitors
from kraftlib.testing.world import World
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import planted
from tests.testing.worlds import world


def pair_at_the_leader(made: World, *, raises: bool) -> list[Visitor]:
    made.workload.start()
    made.run_for(300)
    leader = made.leader()
    assert leader is not None
    assert leader.process is not None
    pair = [Visitor(made, leader.process, calls=3, raises=raises and first) for first in (True, False)]
    pair[0].companion = pair[1]
    for one in pair:
        leader.process.applier.register(one)
    return pair


def test_a_visitor_takes_both_away_amid_what_it_is_given() -> None:
    with world() as made:
        pair = pair_at_the_leader(made, raises=False)
        made.run_for(500)

        assert [one.is_gone for one in pair] == [True, True]
        assert made.violation is None


def test_a_visitor_that_raises_stops_nobody_else() -> None:
    with world() as made:
        pair = pair_at_the_leader(made, raises=True)
        acknowledged = made.workload.acknowledged
        made.run_for(500)

        assert pair[0].is_gone
        assert made.violation is None
        assert made.workload.acknowledged > acknowledged


def test_a_visitor_that_is_told_of_more_when_it_is_gone_says_so() -> None:
    with world() as made:
        pair = pair_at_the_leader(made, raises=False)
        made.run_for(10)
        pair[1].is_gone = True
        pair[0].companion = None
        with pytest.raises(InvariantViolation, match="I15"):
            made.run_for(500)


def test_a_replica_that_feeds_who_left_is_found() -> None:
    bug = next(mutant for mutant in MUTANTS if mutant.name == "who-left-is-fed-on")
    with planted(bug), world() as made:
        pair = pair_at_the_leader(made, raises=False)
        with pytest.raises(InvariantViolation, match="I15"):
            made.run_for(500)

        assert [one.is_gone for one in pair] == [True, True]


def test_some_runs_have_visitors_and_they_stop_coming() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        assert leader.process is not None
        came: list[object] = []
        register = leader.process.applier.register
        leader.process.applier.register = lambda one, **more: (came.append(one), register(one, **more))[1]  # type: ignore[method-assign]
        some = next(seed for seed in range(100) if Random(seed).random() < 0.3)
        visitors = Visitors(made, Random(some), pace=0.1)
        visitors.start()
        made.run_for(2_000)
        visitors.stop()
        made.run_for(300)
        before = len(came)
        made.run_for(2_000)

        assert len(came) == before > 0
        assert made.violation is None
