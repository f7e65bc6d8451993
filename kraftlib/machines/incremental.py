"""`IncrementalMachines`: as `Machines`, where every machine knows what it has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from kraftlib.errors import ConfigError
from kraftlib.machines.machines import Machines, Serdes
from kraftlib.machines.messages import HEADER, encode_header, prefix_of
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine

HEADER_KEY = bytes((HEADER,))
"""Before every other key, so that a snapshot begins with its header."""


class IncrementalMachines(Machines, IncrementalStateMachine):
    """Increments of several machines. The key of a value is the name of its machine and its key there."""

    def __init__(
        self,
        machines: Mapping[str, IncrementalStateMachine],
        *,
        serde: Serdes | None = None,
        added: Collection[str] = (),
    ) -> None:
        """As `Machines`. Raises: ConfigError, also if a machine does not know what it has changed."""
        super().__init__(cast("Mapping[str, StateMachine]", machines), serde=serde, added=added)
        for name, machine in machines.items():
            if not isinstance(machine, IncrementalStateMachine):
                raise ConfigError(f"machine {name!r} is no IncrementalStateMachine: use Machines for it and the others")
        self._incremental = dict(machines)
        self._noted: frozenset[str] = frozenset()
        """The machines that were frozen at least once since they have had a level."""

    def key_of(self, value: bytes) -> bytes:
        """Return the key of a value of the snapshot."""
        if value[0] == HEADER:
            return HEADER_KEY
        end = 2 + value[1]
        name = value[2:end].decode()
        return prefix_key(name) + self._incremental[name].key_of(self.serdes[name].from_bytes(value[end:]))

    def freeze(self) -> Iterable[bytes]:
        """Return the whole state, and note changes anew."""
        self._noted = frozenset(self._with_level())
        return super().freeze()

    def freeze_changes(self) -> Iterable[tuple[bytes, bytes | None]]:
        """Return what has changed in each machine since the last time; of one that is new here, all."""
        header = encode_header(self.levels.header())
        noted, self._noted = self._noted, frozenset(self._with_level())
        changes: list[tuple[str, Iterable[tuple[bytes, Any | None]]]] = []
        for name in sorted(self._noted):
            machine = self._incremental[name]
            if name in noted:
                changes.append((name, machine.freeze_changes()))
            else:
                changes.append((name, _keyed(machine, machine.freeze())))
        return self._encoded_changes(header, changes)

    def _encoded_changes(
        self, header: bytes, changes: Iterable[tuple[str, Iterable[tuple[bytes, Any | None]]]]
    ) -> Iterator[tuple[bytes, bytes | None]]:
        yield HEADER_KEY, header
        for name, pairs in changes:
            key, prefix, to_bytes = prefix_key(name), prefix_of(name), self.serdes[name].to_bytes
            for own, value in pairs:
                yield key + own, None if value is None else prefix + to_bytes(value)

    def _with_level(self) -> Iterator[str]:
        return (name for name in self._incremental if self.levels.of(name))

    def restore(self, values: Iterable[bytes]) -> None:
        """As `Machines.restore`; each machine gets its values in the order of their keys."""
        super().restore(values)
        self._noted = frozenset(self._with_level())


def prefix_key(name: str) -> bytes:
    """Return what the keys of a machine begin with, in the order of the names."""
    return b"\1" + name.encode() + b"\0"


def _keyed(machine: IncrementalStateMachine, values: Iterable[Any]) -> Iterator[tuple[bytes, Any]]:
    return ((machine.key_of(value), value) for value in values)
