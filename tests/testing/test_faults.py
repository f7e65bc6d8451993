"""Every kind of trouble can be made, ended and survived."""

from __future__ import annotations

import random

import pytest

from kraftlib.testing.faults import FAULTS
from kraftlib.testing.trace import Step
from tests.testing.worlds import world


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_begun_and_ended_and_the_quorum_goes_on(name: str) -> None:
    with world(3, voters=3) as made:
        made.workload.start()
        for number in range(4):
            undo = FAULTS[name].begin(made, random.Random(number))
            made.run_for(300)
            if undo is not None:
                undo()
            made.run_for(300)
        made.start()
        made.run_until_leader()
        acknowledged = made.workload.acknowledged
        made.run_for(3_000)

        assert made.workload.acknowledged > acknowledged
        assert made.trace.counts[Step.ROLE] > 0


def test_the_names_are_those_of_the_table() -> None:
    assert {name: fault.name for name, fault in FAULTS.items()} == {name: name for name in FAULTS}
    assert len(FAULTS) >= 14
