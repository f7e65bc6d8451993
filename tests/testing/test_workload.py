"""Applications in a simulation: they remember what they were told."""

from __future__ import annotations

import pytest

from kraftlib.testing.process import Ending
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.workload import Outcome
from tests.simulation.mutation import Edit, Mutant, planted
from tests.testing.worlds import world


def test_an_append_to_the_leader_is_acknowledged_and_to_another_refused() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        call = made.workload.append_to(leader, count=3)
        assert call is not None
        assert call.outcome is Outcome.PENDING
        other = next(node for node in made.nodes.values() if node is not leader)
        assert made.workload.append_to(other) is None
        made.run_for(100)

        assert [call.outcome for call in made.workload.appends] == [Outcome.ACKNOWLEDGED, Outcome.REFUSED]
        assert made.workload.acknowledged == 1
        assert len(set(call.values)) == 3


def test_who_dies_with_his_replica_hears_nothing() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        call = made.workload.append_to(leader)
        leader.end(Ending.KILLED)
        made.run_for(100)

        assert call is not None
        assert call.outcome is Outcome.PENDING
        assert made.workload.append_to(leader) is None


def test_a_lost_leadership_leaves_the_outcome_unknown() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        links = [made.network.link(other, leader.key.id) for other in made.nodes if other != leader.key.id]
        for link in links:
            link.cut = True
        call = made.workload.append_to(leader)
        made.run_for(8_000)

        assert call is not None
        assert call.outcome is Outcome.UNKNOWN


def test_a_workload_appends_while_it_runs() -> None:
    with world() as made:
        made.workload.start()
        made.run_for(1_000)
        made.workload.stop()
        count = len(made.workload.appends)
        made.run_for(1_000)

        assert 5 < count == len(made.workload.appends)


def test_an_append_that_waits_for_nothing_is_a_violation() -> None:
    forgets = Edit("runtime.appends.Appends.append_one", "self._wake()", "pass")
    with world() as made, planted(Mutant("one", "nobody is woken", (forgets,))):
        leader = made.leader()
        assert leader is not None
        made.workload.append_to(leader)
        with pytest.raises(InvariantViolation, match=r"V10 .*leaves append 0 waiting"):
            made.run_for(1)
