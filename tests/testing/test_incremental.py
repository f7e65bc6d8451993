"""Increments in a simulation: real files, the real snapshotter, and a comparison with the log."""

from __future__ import annotations

import random

import pytest

from kraftlib.runtime.committed import CommittedRecord
from kraftlib.testing import final_checks, histories
from kraftlib.testing.incremental import INCREMENTAL, Shelves
from kraftlib.testing.process import Ending
from kraftlib.testing.violation import InvariantViolation
from kraftlib.testing.world import World
from tests.simulation.mutation import Edit, Mutant, planted
from tests.testing.worlds import world


def lives(made: World) -> None:
    """Append, and let every node die and come back now and then."""
    made.snapshot_interval_records = 7
    made.workload.start()
    for turn in range(12):
        made.run_for(700)
        node = made.nodes[turn % len(made.nodes) + 1]
        node.end(Ending.KILLED)
        made.run_for(50)
        node.start()
    made.workload.stop()
    made.run_for(2_000)
    histories.i14_snapshots_say_what_the_log_says(made)
    final_checks.u3_states_are_equal(made)


def test_replicas_come_back_with_what_a_checkpoint_and_its_increments_say() -> None:
    with world(subject=INCREMENTAL) as made:
        lives(made)

        assert made.increments_loaded > 2
        assert made.violation is None


@pytest.mark.parametrize(
    "edit",
    [
        Edit("runtime.snapshots.increments.Increments.write", "keep_tombstones=True", "keep_tombstones=False"),
        Edit(
            "runtime.snapshots.increments.Increments._merge",
            "for increment in increments)",
            "for increment in increments[1:])",
        ),
        Edit(
            "runtime.snapshots.increments.Increments.loaded", "for increment in chain]", "for increment in chain[:-1]]"
        ),
    ],
    ids=["what is gone", "the first of a chain", "the last of a chain"],
)
def test_an_increment_that_is_left_out_is_seen(edit: Edit) -> None:
    with planted(Mutant("one", "some of a chain is forgotten", (edit,))), world(subject=INCREMENTAL) as made:
        with pytest.raises(InvariantViolation) as caught:
            lives(made)

        assert caught.value.invariant in ("I14", "I21", "U1", "U2")


def test_changes_lead_from_one_state_to_the_next() -> None:
    dice, machine, copy = random.Random(3), Shelves(), dict[bytes, bytes]()
    for number in range(40):
        for _ in range(dice.randrange(9)):
            value = dice.randbytes(8)
            machine.apply(CommittedRecord(offset=number, epoch=1, timestamp_ms=0, value=value))
        for key, changed in machine.freeze_changes():
            copy.pop(key, None)
            if changed is not None:
                assert machine.key_of(changed) == key
                copy[key] = changed

        assert [value for _, value in sorted(copy.items())] == list(machine.snapshot())
