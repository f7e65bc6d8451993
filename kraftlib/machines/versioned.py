"""`VersionedMachine`, and the demands on machines that share a log."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kraftlib.errors import ConfigError
from kraftlib.machines.messages import LEVEL_MAX, MACHINES_MAX, NAME_BYTES_MAX
from kraftlib.runtime.client.arguments import check_state_machine
from kraftlib.runtime.listener import StateMachine


class VersionedMachine(StateMachine):
    """A machine with more than one version of its commands or of its snapshot.

    `record.version` is the version of a command, 1 to `level`. `snapshot` writes what every release can read that
    supports `level`, and `restore` reads what was written at `level`.
    """

    supports: int = 1
    """The highest level that this release can apply. Raise it by one with each change that older ones cannot apply."""

    level: int = 1
    """The level of the quorum at the record that is applied, or at the end of the snapshot. `Machines` sets it."""


def supported_by(machine: StateMachine) -> int:
    """Return the highest level that this release of a machine can apply."""
    return machine.supports if isinstance(machine, VersionedMachine) else 1


def check_machines(machines: Mapping[str, StateMachine], added: Collection[str]) -> None:
    """Return if these can share a log. Raises: ConfigError."""
    if not isinstance(machines, Mapping) or not 1 <= len(machines) <= MACHINES_MAX:
        raise ConfigError(f"machines={machines!r:.80} must have 1 to {MACHINES_MAX} state machines by name")
    for name, machine in machines.items():
        if not isinstance(name, str) or not 1 <= len(name.encode()) <= NAME_BYTES_MAX or "\0" in name:
            raise ConfigError(f"{name!r} is no name of a machine: expected text of 1 to {NAME_BYTES_MAX} bytes")
        try:
            check_state_machine(machine, is_durable=True)
        except ConfigError as error:
            raise ConfigError(f"machine {name!r}: {error}") from None
        supports = supported_by(machine)
        if isinstance(supports, bool) or not isinstance(supports, int) or not 1 <= supports <= LEVEL_MAX:
            raise ConfigError(f"machine {name!r}: supports={supports!r} must be a whole number, at least 1")
    if len({id(machine) for machine in machines.values()}) < len(machines):
        raise ConfigError(f"one state machine has two names among {list(machines)}: make one for each name")
    unknown = sorted(set(added) - set(machines))
    if isinstance(added, str) or unknown or len(set(added)) == len(machines):
        raise ConfigError(f"added={added!r} must name some of {list(machines)}, and not all of them")
