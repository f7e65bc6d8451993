"""`Machines`: one state machine that gives each record to the machine of the name that the record bears."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from kraftlib.errors import ConfigError, RemoteProtocolError, UnsupportedError
from kraftlib.machines.keeper import LevelKeeper
from kraftlib.machines.levels import Levels
from kraftlib.machines.messages import (
    Announce,
    Command,
    Header,
    Raise,
    Want,
    decode,
    decode_header,
    encode,
    encode_header,
    prefix_of,
)
from kraftlib.machines.parts import Parts
from kraftlib.machines.versioned import VersionedMachine, check_machines, supported_by
from kraftlib.records.serde import BytesSerde, RecordSerde
from kraftlib.runtime.committed import CommittedRecord
from kraftlib.runtime.listener import StateMachine
from kraftlib.runtime.snapshots.increments import IncrementalStateMachine
from kraftlib.types import LeaderAndEpoch

Serdes = RecordSerde[Any] | Mapping[str, RecordSerde[Any]]
Frozen = tuple[str, StateMachine, Iterable[Any]]
"""The name of a machine, the machine, and the values of its part of a snapshot."""


class Machines(StateMachine):
    """Several state machines on one log. Its records are bytes, made by `command`, so the client needs no serde.

    `command`, `want_level` and `levels` may be used on any thread; everything else is for the replica.
    """

    def __init__(
        self,
        machines: Mapping[str, StateMachine],
        *,
        serde: Serdes | None = None,
        added: Collection[str] = (),
    ) -> None:
        """`serde` is that of the values of all machines, or of each by name; by default they are bytes.

        `added` names the machines that the first release on this log did not have, for ever: they begin at level 0, so
        that no replica without them meets their commands. The others begin at level 1. Raises: ConfigError.
        """
        check_machines(machines, added)
        self._machines: Final = dict(sorted(machines.items()))
        self.serdes: Final = {name: _serde_of(name, serde) for name in self._machines}
        self._first: Final = {name: 0 if name in added else 1 for name in self._machines}
        self._pristine: Final = {
            name: [self.serdes[name].to_bytes(value) for value in machine.snapshot()]
            for name, machine in self._machines.items()
        }
        versions = [(name, machine.snapshot_version) for name, machine in self._machines.items()]
        forms = [version for version in versions if version[1]]
        # A number for each set of forms. Replicas of releases with other forms are not compared.
        self.snapshot_version = zlib.crc32(repr(forms).encode()) & 0x7FFFFFFF if forms else 0
        self.supported: Final = {name: supported_by(machine) for name, machine in self._machines.items()}
        """The highest level that this release can apply, by machine."""
        self.levels: Levels = Levels(dict(self._first))
        """The level of each machine as applied here (`levels.of(name)`), what is wanted, and who announced support."""
        self._tell_levels()
        self.companion = LevelKeeper(self)

    def _tell_levels(self) -> None:
        for name, machine in self._machines.items():
            if isinstance(machine, VersionedMachine):
                machine.level = self.levels.of(name)

    # --- records to propose ------------------------------------------------------------------------------------------

    def command(self, machine: str, value: Any, *, version: int = 1) -> bytes:
        """Return the value to propose that has `machine` apply `value`.

        Raises: ConfigError, if there is no such machine or version; UnsupportedError, if the level of the machine does
        not allow this version yet, as far as this replica has applied the log.
        """
        self._check_level(machine, version)
        level = self.levels.of(machine)
        if version > level:
            known = {replica: supports.get(machine, 0) for replica, supports in sorted(self.levels.announced.items())}
            raise UnsupportedError(
                f"a command of version {version} needs level {version} of machine {machine!r}, and the level is "
                f"{level} as far as this replica has applied the log; support announced, by replica: {known}; upgrade "
                f"all of them, and propose want_level({machine!r}, {version})"
            )
        return encode(Command(machine=machine, version=version, value=self.serdes[machine].to_bytes(value)))

    def want_level(self, machine: str, level: int) -> bytes:
        """Return the value to propose that has the leader raise a level, once all replicas have announced support.

        Its result is b"", or the reason why it changes nothing. A level that is lower than the one wanted before, and
        not below the present one, takes its place. Raises: ConfigError.
        """
        self._check_level(machine, level)
        return encode(Want(machine=machine, level=level))

    def _check_level(self, machine: str, level: int) -> None:
        supports = self.supported.get(machine)
        if supports is None:
            raise ConfigError(f"there is no machine {machine!r}: there are {', '.join(map(repr, self._machines))}")
        if isinstance(level, bool) or not isinstance(level, int) or not 1 <= level <= supports:
            raise ConfigError(
                f"{level!r} is no version of machine {machine!r}: this release supports 1 to {supports} "
                f"({type(self._machines[machine]).__name__}.supports)"
            )

    # --- records -----------------------------------------------------------------------------------------------------

    def apply(self, record: CommittedRecord) -> Any:
        """Give a command to its machine and return the result of that.

        The `timestamp_ms` that the machine gets never falls, under any leader. A record that is refused changes
        nothing, and its result is the reason, as bytes. Raises: UnsupportedError, if the release of this replica is too
        old.
        """
        levels = self.levels
        levels.applied, levels.time_ms = record.offset, max(levels.time_ms, record.timestamp_ms)
        try:
            message = decode(record.value)
        except RemoteProtocolError as error:
            return str(error).encode()
        match message:
            case Command():
                return self._apply_command(message, record)
            case Announce():
                return levels.announce(message).encode()
            case Want():
                return levels.want(message).encode()
            case Raise():
                return self._raise_level(message, record).encode()
        return b""

    def _apply_command(self, command: Command, record: CommittedRecord) -> Any:
        name, version = command.machine, command.version
        machine = self._machines.get(name)
        if machine is None:
            raise UnsupportedError(f"the record at offset {record.offset} is for {_missing(name)}: {UPGRADE}")
        level = self.levels.of(name)
        if not 1 <= version <= level:
            return f"a command of version {version} for machine {name!r}, whose level is {level}: not applied".encode()
        try:
            value = self.serdes[name].from_bytes(command.value)
            return machine.apply(CommittedRecord(record.offset, record.epoch, self.levels.time_ms, value, version))
        except BaseException as error:
            error.add_note(f"kraftlib: this was machine {name!r}")
            raise

    def _raise_level(self, record: Raise, committed: CommittedRecord) -> str:
        name, level = record.machine, record.level
        reason = self.levels.refusal(record, committed.epoch)
        if reason:
            return reason
        supports = self.supported.get(name, 0)
        if supports < level:
            raise UnsupportedError(
                f"the record at offset {committed.offset} raises machine {name!r} to level {level}, and this release "
                f"supports {supports}: {UPGRADE}"
            )
        self.levels.raise_to(record)
        self._tell_levels()
        return ""

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Every machine hears of the leader."""
        for machine in self._machines.values():
            machine.leader_changed(leader)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Iterable[bytes]:
        """Return the levels, and the values of each machine that has a level."""
        return self._values(lambda machine: list(machine.snapshot()))

    def freeze(self) -> Iterable[bytes]:
        """The same, with the `freeze` of each machine."""
        return self._values(lambda machine: machine.freeze())

    def _values(self, take: Callable[[StateMachine], Iterable[Any]]) -> Iterator[bytes]:
        header = encode_header(self.levels.header())
        parts = [(name, machine, take(machine)) for name, machine in self._machines.items() if self.levels.of(name)]
        return self._encoded(header, parts)

    def _encoded(self, header: bytes, parts: Iterable[Frozen]) -> Iterator[bytes]:
        yield header
        for name, machine, values in parts:
            prefix, to_bytes = prefix_of(name), self.serdes[name].to_bytes
            # One that has keys may return its values in any order, and equal states must make equal snapshots.
            keyed = isinstance(machine, IncrementalStateMachine)
            for value in sorted(values, key=machine.key_of) if keyed else values:  # type: ignore[attr-defined]
                yield prefix + to_bytes(value)

    def restore(self, values: Iterable[bytes]) -> None:
        """Give each machine its part. One without a part is put back into the state in which it began.

        Raises, before a machine is touched: UnsupportedError, if a part belongs to a machine or level that this release
        does not have; ConfigError, if a machine has no part and is not among those that were `added`.
        """
        parts = Parts(iter(values))
        header = decode_header(parts.take())
        self._check_parts(header)
        levels = Levels.from_header(header)
        for name, machine in self._machines.items():
            if isinstance(machine, VersionedMachine):
                machine.level = levels.of(name)
            from_bytes = self.serdes[name].from_bytes
            data: Iterator[bytes] = parts.of(name) if levels.of(name) else iter(self._pristine[name])
            machine.restore(from_bytes(value) for value in data)
            for _ in data:  # values that the machine has not read
                pass
        if parts.next is not None:
            raise RemoteProtocolError(
                f"a value of a snapshot belongs to no part that its header names: {parts.next!r:.80}"
            )
        self.levels = levels

    def _check_parts(self, header: Header) -> None:
        for row in header.levels:
            supports = self.supported.get(row.machine)
            if supports is None:
                raise UnsupportedError(f"the snapshot has a part of {_missing(row.machine)}: {UPGRADE}")
            if row.level > supports:
                raise UnsupportedError(
                    f"the snapshot has a part of machine {row.machine!r} at level {row.level}, and this release "
                    f"supports {supports}: {UPGRADE}"
                )
        there = {row.machine for row in header.levels}
        forgotten = [name for name, level in self._first.items() if level and name not in there]
        if forgotten:
            raise ConfigError(
                f"the snapshot has no part of machines {forgotten}: if the first release on this log did not have "
                f"them, name them in Machines(..., added={forgotten})"
            )


UPGRADE: Final = "upgrade this replica and start it again; it goes on from here, and nothing is lost"


def _missing(name: str) -> str:
    return f"machine {name!r}, which this release does not have"


def _serde_of(name: str, serde: Serdes | None) -> RecordSerde[Any]:
    return (serde.get(name) if isinstance(serde, Mapping) else serde) or BytesSerde()
