"""Several machines behind `kraftlib.open`, and the way in to one of them: commands, questions and watches by name.

machines = ServedMachines({"locks": ServiceMachine(), "orders": Orders()})
async with kraftlib.open("replica-1.toml", machine=machines) as kraft:
    orders = MachineAccess(kraft, "orders")
    async with Recipes(MachineAccess(kraft, "locks")) as recipes: ...

question, selector    int8 length, name, bytes of the machine
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final, cast

from kraftlib.coordination.access import LINEARIZABLE, Access, Change, Consistency, Done, Gone, Machine
from kraftlib.coordination.arguments import check_bytes, check_whole
from kraftlib.errors import ConfigError, ProtocolError, UnsupportedError
from kraftlib.machines.machines import Machines
from kraftlib.machines.messages import NAME_BYTES_MAX, Command, decode, encode
from kraftlib.runtime.listener import StateMachine
from kraftlib.types import Epoch, Offset

_CALLS: Final = ("check", "query", "changes", "due")


class ServedMachines(Machines):
    """`Machines` each of which is a `kraftlib.coordination.access.Machine`, too; and so are they together."""

    def __init__(self, machines: Mapping[str, Machine], *, added: Collection[str] = ()) -> None:
        """As `Machines`, of bytes. Raises: ConfigError."""
        super().__init__(cast("Mapping[str, StateMachine]", machines), added=added)
        for name, machine in machines.items():
            lacking = [call for call in _CALLS if not callable(getattr(machine, call, None))]
            if lacking:
                raise ConfigError(
                    f"machine {name!r} has no {lacking}: a machine that is served is a "
                    "kraftlib.coordination.access.Machine; give those that are not to Machines"
                )
        self._served: Final = dict(sorted(machines.items()))

    @property
    def applied(self) -> Offset:
        """The offset of the last record that was applied; -1 at first."""
        return self.levels.applied

    def check(self, command: bytes) -> None:
        """Return if a client may propose the command. Raises: ConfigError."""
        try:
            decoded = decode(command)
        except (ProtocolError, UnsupportedError) as error:
            raise ConfigError(f"this is no command: {error}") from None
        if not isinstance(decoded, Command):
            raise ConfigError("levels are a matter of the replicas: propose them there")
        try:
            self.command(decoded.machine, decoded.value, version=decoded.version)
        except UnsupportedError as error:
            raise ConfigError(str(error)) from None
        self._served[decoded.machine].check(decoded.value)

    def query(self, question: bytes) -> bytes:
        """Return the answer of the machine that is asked. Raises: ConfigError."""
        machine, own = self._named(question)
        return machine.query(own)

    def changes(self, selector: bytes, since: Offset, *, most: int) -> Sequence[tuple[Offset, bytes]] | Gone:
        """Return what was changed in the machine that is watched. Raises: ConfigError."""
        machine, own = self._named(selector)
        return machine.changes(own, since, most=most)

    def due(self, epoch: Epoch, now_ms: int) -> Sequence[bytes]:
        """Return what the leader should propose for each machine that has a level."""
        return [
            encode(Command(machine=name, version=self.levels.of(name), value=value))
            for name, machine in self._served.items()
            if self.levels.of(name)
            for value in machine.due(epoch, now_ms)
        ]

    def _named(self, data: bytes) -> tuple[Machine, bytes]:
        name, own = split(data)
        if name not in self._served:
            raise ConfigError(f"there is no machine {name!r}: there are {', '.join(map(repr, self._served))}")
        return self._served[name], own


class MachineAccess:
    """The way in to one of several machines, over the way in to all. It is a `kraftlib.coordination.access.Access`."""

    def __init__(self, access: Access, machine: str, *, version: int = 1) -> None:
        """`version` is that of the commands. Raises: ConfigError, if `machine` can be no name."""
        if not isinstance(machine, str) or not 1 <= len(machine.encode()) <= NAME_BYTES_MAX:
            raise ConfigError(f"{machine!r} is no name of a machine: expected text of 1 to {NAME_BYTES_MAX} bytes")
        self._access: Final = access
        self._machine: Final = machine
        self._version: Final = check_whole("version", version, least=1)

    async def call(self, command: bytes, *, timeout_ms: int) -> Done:
        """Have the machine apply a command. See `Access.call`."""
        value = check_bytes("command", command)
        record = encode(Command(machine=self._machine, version=self._version, value=value))
        return await self._access.call(record, timeout_ms=timeout_ms)

    async def query(
        self, question: bytes, *, consistency: Consistency = LINEARIZABLE, timeout_ms: int
    ) -> tuple[Offset, bytes]:
        """Ask the machine. See `Access.query`."""
        asked = joined(self._machine, check_bytes("question", question))
        return await self._access.query(asked, consistency=consistency, timeout_ms=timeout_ms)

    async def watch(self, selector: bytes, since: Offset | None) -> AsyncIterator[Change]:
        """Yield what changes in the machine. See `Access.watch`."""
        async for change in self._access.watch(joined(self._machine, check_bytes("selector", selector)), since):
            yield change


def joined(name: str, data: bytes) -> bytes:
    """Return bytes for the machine of this name."""
    encoded = name.encode()
    return bytes((len(encoded),)) + encoded + data


def split(data: bytes) -> tuple[str, bytes]:
    """Return the name of the machine that these bytes are for, and its own bytes. Raises: ConfigError."""
    end = 1 + data[0] if data else 1
    if len(data) < end or end == 1:
        raise ConfigError(f"{data[:16]!r} names no machine: ask by MachineAccess")
    try:
        return data[1:end].decode(), data[end:]
    except UnicodeDecodeError as error:
        raise ConfigError(f"{data[1:end]!r} is no name of a machine: {error}") from None
