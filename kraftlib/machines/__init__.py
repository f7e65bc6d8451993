"""Several state machines on one log: each has a name, a part of the snapshot, and a level that the quorum raises.

    machines = Machines({"orders": Orders(), "stock": Stock()}, serde=JsonSerde())
    async with RaftClient(config, state_machine=machines) as client:
        await client.propose(machines.command("orders", {"buy": 1}))

The *level* of a machine is the highest version of its commands that may be applied, and the version of its part of a
snapshot. It is replicated: it changes with a record, at the same offset on every replica.

1. A release says by `VersionedMachine.supports` how high a level it can apply. Each replica announces that by a record.
2. A replica proposes `machines.want_level("orders", 2)`.
3. The leader raises the level once every voter, and every observer that it knows, has announced support.

A command above the level is refused where it is made, and again where it is applied, on every replica alike. A replica
that meets a level which its release lacks stops applying; it goes on from the same record after its upgrade.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from kraftlib.machines.access import MachineAccess, ServedMachines
    from kraftlib.machines.incremental import IncrementalMachines
    from kraftlib.machines.machines import Machines
    from kraftlib.machines.versioned import VersionedMachine

__all__ = ["IncrementalMachines", "MachineAccess", "Machines", "ServedMachines", "VersionedMachine"]


def __getattr__(name: str) -> Any:
    module: ModuleType
    match name:
        case "Machines":
            from kraftlib.machines import machines as module
        case "VersionedMachine":
            from kraftlib.machines import versioned as module
        case "IncrementalMachines":
            from kraftlib.machines import incremental as module
        case "MachineAccess" | "ServedMachines":
            from kraftlib.machines import access as module
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)
