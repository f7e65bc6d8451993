"""The coordination machine on simulated quorums: crashes, restarts, snapshots, changes of leader."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from kraftlib.coordination.commands import decode_command, encode_command
from kraftlib.coordination.machine import ServiceMachine
from kraftlib.coordination.snapshots import RESULT
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.testing import InvariantViolation, Subject, simulate
from tests.coordination.driver import commands_at_random

COMMANDS = list(commands_at_random(11, 4_000))


class Addressed(ServiceMachine):
    """Names the session of a command as it was opened here: nobody else knows the offsets of a simulated log."""

    def apply(self, record: CommittedRecord) -> bytes:
        command = decode_command(record.value)
        live = self._state.sessions.live.get(command.identity.session)
        identity = command.identity
        value = encode_command(
            command.body,
            session=identity.session,
            opened=-1 if live is None else live.opened,
            sequence=identity.sequence,
            acknowledged=identity.acknowledged,
        )
        return super().apply(CommittedRecord(record.offset, record.epoch, record.timestamp_ms, value))


def command(chance: random.Random, number: int) -> bytes:
    return COMMANDS[number % len(COMMANDS)]


@pytest.mark.parametrize("seed", [2, 6])
def test_every_replica_has_the_same_results_and_the_same_state(seed: int) -> None:
    """U1 to U3: also after restarts, and from snapshots."""
    simulate(seed, subject=Subject(machine=Addressed, value=command))


def test_a_machine_whose_snapshots_forget_the_results_of_calls_is_found() -> None:
    class Forgetful(Addressed):
        def freeze(self) -> Iterable[bytes]:
            return [part for part in super().freeze() if part[0] != RESULT]

    with pytest.raises(InvariantViolation, match="U1"):
        simulate(7, subject=Subject(machine=Forgetful, value=command))
