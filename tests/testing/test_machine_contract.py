"""The kit for state machines passes a sound one, and finds each planted bug."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftlib.errors import InvariantError
from kraftlib.records.serde import JsonSerde
from kraftlib.runtime.listener import StateMachine
from kraftlib.testing.machine_contract import MACHINE_CHECKS, the_state_is_equal_in_every_process
from kraftlib.testing.subject import Subject
from tests.testing.machines import PLANTED, Sums, word

Check = Callable[[Subject], None]


def subject(machine: type[StateMachine]) -> Subject:
    return Subject(machine=machine, value=word, serde=JsonSerde())


@pytest.mark.parametrize("check", MACHINE_CHECKS, ids=lambda check: check.__name__)
def test_a_sound_machine_keeps_the_contract(check: Check) -> None:
    check(subject(Sums))


@pytest.mark.parametrize("machine", PLANTED)
def test_a_planted_bug_is_found(machine: type[StateMachine]) -> None:
    found = []
    for check in MACHINE_CHECKS:
        try:
            check(subject(machine))
        except (InvariantError, ValueError, RuntimeError) as error:
            found.append(f"{check.__name__}: {error}")
    assert found != []


def test_what_cannot_be_checked_says_so() -> None:
    class Local(Sums):
        pass

    with pytest.raises(InvariantError, match="put it at the top of a module"):
        the_state_is_equal_in_every_process(subject(Local))
    with pytest.raises(InvariantError, match="a check needs values"):
        the_state_is_equal_in_every_process(Subject(machine=Sums))
