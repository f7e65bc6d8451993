"""State machines in a simulation: what is wrong with them is found."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.testing.campaign import quiet
from kraftlib.testing.simulation import simulate
from kraftlib.testing.subject import HashChain, Subject, restored, state_of
from kraftlib.testing.violation import InvariantViolation


class Sum(StateMachine):
    """A sound one: the base of the others, each of which has one fault."""

    def __init__(self) -> None:
        self.total = 0

    def apply(self, record: CommittedRecord) -> Any:
        self.total += int(record.value)
        return self.total

    def snapshot(self) -> Iterable[bytes]:
        return [b"%d" % self.total]

    def restore(self, values: Iterable[bytes]) -> None:
        (self.total,) = map(int, values)


class Moody(Sum):
    """Its results depend on something else than state and record."""

    def apply(self, record: CommittedRecord) -> Any:
        return super().apply(record) + random.randrange(1_000_000)


class Forgetful(Sum):
    """Its snapshot lacks something."""

    def snapshot(self) -> Iterable[bytes]:
        return [b"%d" % (self.total // 2)]


class Fragile(Sum):
    """It raises for some records."""

    def apply(self, record: CommittedRecord) -> Any:
        return 1 // (int(record.value) % 2)


def number(chance: random.Random, count: int) -> bytes:
    return b"%d" % chance.randrange(1, 100)


def run(machine: type[StateMachine], **more: Any) -> str:
    """Simulate it; return the id of what is violated, if anything is."""
    try:
        with quiet():
            simulate(1, "crashes", trouble_ms=400, subject=Subject(machine=machine, value=number, **more))
    except InvariantViolation as violation:
        return violation.invariant
    return ""


def test_a_sound_state_machine_passes() -> None:
    assert run(Sum) == ""


@pytest.mark.parametrize(("machine", "invariant"), [(Moody, "U1"), (Fragile, "U2"), (Forgetful, "U3")])
def test_each_fault_is_found(machine: type[StateMachine], invariant: str) -> None:
    assert run(machine) == invariant


def test_a_check_of_ones_own_is_called_with_every_state_machine() -> None:
    def too_low(machine: StateMachine) -> None:
        if getattr(machine, "total", 0) < 10**9:
            raise ValueError("too low")

    assert run(Sum, check=too_low) == "U3"


def test_the_default_depends_on_every_record_and_their_order() -> None:
    def digest_of(*values: bytes) -> int:
        machine = HashChain()
        for offset, value in enumerate(values):
            machine.apply(CommittedRecord(offset, 1, 0, value))
        return machine.digest

    assert len({digest_of(b"a", b"b"), digest_of(b"b", b"a"), digest_of(b"a"), digest_of()}) == 4


def test_a_state_survives_its_snapshot() -> None:
    subject = Subject(machine=HashChain)
    machine = HashChain()
    machine.digest = 77
    copy = restored(subject, state_of(subject, machine))

    assert isinstance(copy, HashChain)
    assert copy.digest == 77
