"""Reads in a simulation: behind a barrier, and remembered."""

from __future__ import annotations

import attrs
import pytest

from kraftlib.testing import histories
from kraftlib.testing.process import Ending
from kraftlib.testing.violation import InvariantViolation
from tests.testing.worlds import world


def test_a_read_on_any_replica_sees_what_was_acknowledged_before() -> None:
    with world(observers=1) as made:
        leader = made.leader()
        assert leader is not None
        call = made.workload.append_to(leader)
        made.run_for(300)
        reads = [made.workload.read_from(node) for node in made.nodes.values()]
        made.run_for(300)

        assert call is not None
        assert [read is not None and read.end_offset for read in reads] == [call.end_offset] * 4
        assert len([known for known in histories.history_of(made) if known.reads]) == 4
        histories.i21_history_is_linearizable(made)


def test_a_read_that_missed_something_is_a_violation() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        made.workload.append_to(leader)
        made.run_for(100)
        read = made.workload.read_from(leader)
        made.run_for(100)
        assert read is not None
        read.end_offset -= 1
        with pytest.raises(InvariantViolation, match=r"I21 .*append 0 .* over before read 0 on node"):
            histories.i21_history_is_linearizable(made)


def test_two_states_at_one_offset_are_a_violation() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        read = made.workload.read_from(leader)
        assert read is not None
        made.states = dict.fromkeys(range(100), -1)
        with pytest.raises(InvariantViolation, match=r"I21 .*saw another state"):
            made.run_for(100)


def test_a_read_that_nobody_confirms_is_given_up_and_one_on_a_dead_replica_hears_nothing() -> None:
    with world() as made:
        leader = made.leader()
        assert leader is not None
        for other in made.nodes.values():
            if other is not leader:
                other.end(Ending.POWER_LOST, silently=True)
        read = made.workload.read_from(leader)
        made.run_for(10_000)

        assert read is not None
        assert (read.failed, read.answered_us) == (True, None)
        last = made.workload.read_from(leader)
        leader.end(Ending.KILLED)
        made.run_for(1_000)
        assert last is not None
        assert (last.failed, last.done()) == (False, True)
        assert made.workload.read_from(leader) is None
        assert attrs.has(type(last))
