"""The records of `Machines` and the values of their snapshots, as bytes.

    command            int8 MAGIC, int8 1, int8 version, int8 length, machine, int32 version of the command, value
    other record       int8 MAGIC, int8 kind, int8 version, struct
    snapshot header    int8 0, int8 version, struct
    snapshot value     int8 1, int8 length, name, value of the machine of that name

The version is that of this format. A command has no struct, since there are so many of them. A machine defines the
meaning of its own values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kraftlib.codec.declared import Message, Struct, array, int32, int64, message, read, string, write_into
from kraftlib.codec.reader import Reader
from kraftlib.errors import ConfigError, LocalProtocolError, RemoteProtocolError, UnsupportedError

MAGIC: Final = 0xFD
VERSION: Final = 0
LEVEL_MAX: Final = 0x7FFFFFFF

MACHINES_MAX: Final = 256
REPLICAS_MAX: Final = 4_096
"""Replicas whose announcement is remembered: 256 voters, and as many observers as a leader knows."""

NAME_BYTES_MAX: Final = 100
"""Bytes of UTF-8 of the name of a machine."""

HEADER, VALUE = 0, 1


@attrs.frozen(kw_only=True)
class Command:
    """A value for one machine."""

    machine: str
    version: int
    """The level that the machine must have."""
    value: bytes = b""


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Announce(Message):
    """The levels that the release of a replica can apply. It replaces what that replica announced before."""

    replica_id: int = int32("0+")
    supports: tuple[Announce.Level, ...] = array("Level", "0+", most=MACHINES_MAX)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Level(Struct):
        """Of one machine."""

        machine: str = string("0+")
        level: int = int32("0+")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Want(Message):
    """The level of a machine is to be raised once it can be."""

    machine: str = string("0+")
    level: int = int32("0+")


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Raise(Message):
    """The leader raises a level."""

    machine: str = string("0+")
    level: int = int32("0+")
    epoch: int = int32("0+")
    """The epoch of this leader: in another one the quorum may be another."""
    replicas: tuple[int, ...] = array("int32", "0+", most=REPLICAS_MAX)
    """The voters, and the observers that the leader knows: all of them have announced support."""


@message(kind="data", versions="0", flexible="0+")
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Header(Message):
    """The replicated levels: the first value of a snapshot. The parts of `levels` follow, in the order of the names."""

    applied: int = int64("0+", default=-1)
    time_ms: int = int64("0+")
    levels: tuple[Header.Level, ...] = array("Level", "0+", most=MACHINES_MAX)
    wanted: tuple[Header.Level, ...] = array("Level", "0+", most=MACHINES_MAX)
    announced: tuple[Header.Replica, ...] = array("Replica", "0+", most=REPLICAS_MAX)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Level(Struct):
        """Of one machine."""

        machine: str = string("0+")
        level: int = int32("0+")

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Replica(Struct):
        """The announcement of a replica."""

        id: int = int32("0+")
        supports: tuple[Header.Support, ...] = array("Support", "0+", most=MACHINES_MAX)

    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class Support(Struct):
        """Of one machine."""

        machine: str = string("0+")
        level: int = int32("0+")


_COMMAND: Final = bytes((MAGIC, 1, VERSION))
_KINDS: Final[Mapping[int, type[Message]]] = {2: Announce, 3: Want, 4: Raise}
_KIND_OF: Final = {message: kind for kind, message in _KINDS.items()}


def encode(record: Message | Command) -> bytes:
    """Return the value of a record. Raises: ConfigError, if something does not fit into its field."""
    if isinstance(record, Command):
        name = record.machine.encode()
        if not 1 <= len(name) <= NAME_BYTES_MAX or not 0 <= record.version <= LEVEL_MAX:
            raise ConfigError(f"a command of version {record.version} for machine {record.machine!r} does not fit")
        return b"".join((_COMMAND, bytes((len(name),)), name, record.version.to_bytes(4, "big"), record.value))
    out = bytearray((MAGIC, _KIND_OF[type(record)], VERSION))
    try:
        write_into(out, record, VERSION)
    except LocalProtocolError as error:
        raise ConfigError(f"{record!r} does not fit into a record: {error}") from None
    return bytes(out)


def decode(data: bytes) -> Message | Command:
    """Read the value of a record.

    Raises: RemoteProtocolError, if it is not of this format; UnsupportedError, if a newer release has written it.
    """
    if data[:3] == _COMMAND:
        return _decode_command(data)
    if not data or data[0] != MAGIC:
        raise RemoteProtocolError(f"{data[:16]!r} is no record of kraftlib.machines: make it with Machines.command()")
    reader = Reader(data)
    _, kind, version = reader.int8(), reader.int8(), reader.int8()
    message = _KINDS.get(kind)
    if message is None or version != VERSION:
        raise UnsupportedError(f"a record of kind {kind} in version {version} is not known to this release: upgrade it")
    return read(message, reader, VERSION, expect_end=True)


def _decode_command(data: bytes) -> Command:
    end = 4 + data[3] if len(data) > 3 else 4
    if len(data) < end + 4:
        raise RemoteProtocolError(f"a command of {len(data)} bytes ends too early")
    try:
        machine = data[4:end].decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"{data[4:end]!r} is no name of a machine: {error}") from None
    return Command(machine=machine, version=int.from_bytes(data[end : end + 4], "big"), value=data[end + 4 :])


def encode_header(header: Header) -> bytes:
    """Return the first value of a snapshot."""
    out = bytearray((HEADER, VERSION))
    write_into(out, header, VERSION)
    return bytes(out)


def decode_header(value: bytes | None) -> Header:
    """Read the first value of a snapshot. Raises: RemoteProtocolError, UnsupportedError."""
    if not value or value[0] != HEADER:
        raise RemoteProtocolError(f"a snapshot of several machines begins with a header, not with {value!r:.40}")
    reader = Reader(value)
    _, version = reader.int8(), reader.int8()
    if version != VERSION:
        raise UnsupportedError(f"a snapshot in version {version} is not known to this release: upgrade it")
    return read(Header, reader, VERSION, expect_end=True)


def prefix_of(name: str) -> bytes:
    """Return what stands before each value of a machine in a snapshot."""
    data = name.encode()
    return bytes((VALUE, len(data))) + data
