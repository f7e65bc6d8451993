"""Increments of several machines: what changed in each of them, in one chain."""

from __future__ import annotations

import random as chance
from collections.abc import Callable

import pytest

from kraftlib.errors import ConfigError
from kraftlib.machines import IncrementalMachines
from kraftlib.machines.messages import Announce, Command, Raise, encode
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.testing import Subject
from kraftlib.testing.incremental import Shelves
from kraftlib.testing.machine_contract import MACHINE_CHECKS, the_state_is_equal_in_every_process
from tests.machines.shop import Stock
from tests.testing.test_incremental import lives
from tests.testing.worlds import world

ANNOUNCED = encode(Announce(replica_id=1, supports=(Announce.Level(machine="late", level=1),)))


def shelves() -> IncrementalMachines:
    return IncrementalMachines({"a": Shelves(), "ab": Shelves(), "late": Shelves()}, added=["late"])


def some_record(random: chance.Random, number: int) -> bytes:
    if number == 30:
        return ANNOUNCED
    if number in (31, 81, 131):  # in the epochs that the kit numbers so
        return encode(Raise(machine="late", level=1, epoch=1 + number // 50, replicas=(1,)))
    return encode(Command(machine=random.choice(("a", "ab", "late")), version=1, value=random.randbytes(8)))


SUBJECT = Subject(machine=shelves, value=some_record)


CHECKS = [check for check in MACHINE_CHECKS if check is not the_state_is_equal_in_every_process]
"""Processes are compared in test_machines.py: these machines write the same values."""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_incremental_machines_keep_the_contract(check: Callable[[Subject], None]) -> None:
    check(SUBJECT)


def test_replicas_come_back_with_what_a_checkpoint_and_its_increments_say() -> None:
    with world(subject=SUBJECT) as made:
        lives(made)
        assert made.increments_loaded > 2
        assert made.violation is None


def test_changes_lead_from_one_state_to_the_next_also_where_a_machine_is_new() -> None:
    random, machines, copy = chance.Random(5), shelves(), dict[bytes, bytes]()
    for number in range(100):
        machines.apply(CommittedRecord(number, 1, 0, some_record(random, number)))
        if number % 7 == 0:
            for key, changed in machines.freeze_changes():
                copy.pop(key, None)
                if changed is not None:
                    assert machines.key_of(changed) == key
                    copy[key] = changed
            state = sorted(machines.snapshot(), key=machines.key_of)
            assert [value for _, value in sorted(copy.items())] == state
    assert machines.levels.of("late") == 1


def test_a_machine_that_does_not_know_its_changes_is_refused() -> None:
    with pytest.raises(ConfigError, match="machine 'stock' is no IncrementalStateMachine: use Machines"):
        IncrementalMachines({"a": Shelves(), "stock": Stock()})  # type: ignore[dict-item]
