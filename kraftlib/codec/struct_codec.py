"""From the declarations of a message to the two functions that read and write one version of it.

The fields that a version has become a list of steps, in the order of the schema. Neighbours of fixed size are read and
written in one go, which is where the speed comes from. In flexible versions the tagged fields follow:

    uvarint count, then per field, by ascending tag: uvarint tag, uvarint size, value

Steps are closures over what the declarations say, and nothing is looked up per message. The most frequent messages have
functions of their own before them (`kraftlib.codec.generated`).
Structs nest as deep as the declarations do, so a peer cannot make them deeper.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from kraftlib.codec import field_types
from kraftlib.codec.declarations import Declaration, Message, Struct, declared_fields
from kraftlib.codec.field_types import FieldCodec
from kraftlib.codec.reader import Reader
from kraftlib.codec.varint import encode_uvarint, write_uvarint
from kraftlib.errors import LocalProtocolError, RemoteProtocolError
from kraftlib.frozen import immutable

MAX_TAGS: Final = 1024
"""Tagged fields of one struct; Kafka's own have at most nine."""

TAGGED: Final = "tagged fields"
"""Begins an error message."""

Read = Callable[[Reader], Any]
Write = Callable[[Any, bytearray], None]


@immutable
class _Field:
    name: str
    declaration: Declaration
    default: Any
    codec: FieldCodec


@immutable
class _Step:
    """A field of its own, or neighbours that are read and written together: then `names` says which, and values are
    tuples."""

    name: str
    """Begins an error message; empty, if the error names the field itself."""

    names: tuple[str, ...]
    read: Read
    get: Callable[[Any], Any]
    """Takes the values from the struct."""
    write: Write


def struct_codec(cls: type[Struct], owner: type[Message], version: int) -> FieldCodec:
    """Build the codec of `cls`, which is `owner` or one of its nested structs, in one version of `owner`."""
    flexible = version in owner.flexible_versions
    inline: list[_Field] = []
    tagged: list[_Field] = []
    absent: list[tuple[str, Any]] = []
    for name, declaration, default in declared_fields(cls):
        if version in declaration.versions:
            codec = field_codec(declaration, owner, version, flexible=flexible)
            is_tagged = version in declaration.tagged
            (tagged if is_tagged else inline).append(_Field(name, declaration, default, codec))
        elif not declaration.ignorable:
            absent.append((name, default))
    steps = _inline_steps(inline)
    tags = _Tags(tagged) if flexible else None
    min_size = sum(field.codec.min_size for field in inline) + flexible
    return FieldCodec(_reader_of(cls, steps, tags), _writer_of(cls, steps, tags, absent, version), min_size)


def field_codec(declaration: Declaration, owner: type[Message], version: int, *, flexible: bool) -> FieldCodec:
    """Build the codec of one field of a message, or of a struct in it."""
    if declaration.flexible is not None:
        flexible = version in declaration.flexible
    nullable = version in declaration.nullable
    if declaration.type.startswith("[]"):
        element = _codec_of_type(declaration.type[2:], owner, version, flexible=flexible, nullable=False)
        return field_types.array_codec(element, flexible=flexible, nullable=nullable, most=declaration.most)
    if declaration.type == "bytes":
        return field_types.bytes_codec(flexible=flexible, nullable=nullable, view=False, most=declaration.most)
    return _codec_of_type(declaration.type, owner, version, flexible=flexible, nullable=nullable)


def _codec_of_type(name: str, owner: type[Message], version: int, *, flexible: bool, nullable: bool) -> FieldCodec:
    if name in field_types.NUMBERS:
        return field_types.NUMBERS[name]
    match name:
        case "uuid":
            return field_types.UUID
        case "string":
            return field_types.string_codec(flexible=flexible, nullable=nullable)
        case "bytes" | "records":
            return field_types.bytes_codec(flexible=flexible, nullable=nullable, view=name == "records")
    codec = struct_codec(getattr(owner, name), owner, version)
    return field_types.nullable_struct_codec(codec) if nullable else codec


# A struct is its steps, one after the other ---------------------------------------------------------


def _reader_of(cls: type[Struct], steps: Sequence[_Step], tags: _Tags | None) -> Read:
    read_steps = [(step.name, step.names, step.read) for step in steps]

    def read(reader: Reader) -> Struct:
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, names, read_value in read_steps:
                if names:
                    values.update(zip(names, read_value(reader), strict=False))  # as many, always
                else:
                    values[name] = read_value(reader)
            if tags is not None:
                if reader.position < reader.end and reader.data[reader.position] == 0:
                    reader.position += 1  # nearly always
                else:
                    name = TAGGED
                    tags.read(reader, values)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{cls.__name__}.{_said(name)}{error}") from None
        return cls(**values)

    return read


def _writer_of(
    cls: type[Struct], steps: Sequence[_Step], tags: _Tags | None, absent: Sequence[tuple[str, Any]], version: int
) -> Write:
    write_steps = [(step.name, step.get, step.write) for step in steps]

    def write(value: Any, out: bytearray) -> None:
        if type(value) is not cls:
            raise LocalProtocolError(f"{value!r} is no {cls.__qualname__}")
        for name, default in absent:
            if getattr(value, name) != default:
                raise LocalProtocolError(
                    f"{cls.__name__}.{name}: version {version} has no such field to hold {getattr(value, name)!r}"
                )
        if tags is None and value.unknown_tagged_fields:
            raise LocalProtocolError(f"{cls.__name__}: version {version} has no tagged fields")
        name = ""
        try:
            for name, get, write_value in write_steps:  # noqa: B007 - an error is told by it
                write_value(get(value), out)
            if tags is not None:
                name = TAGGED
                tags.write(value, out)
        except LocalProtocolError as error:
            raise LocalProtocolError(f"{cls.__name__}.{_said(name)}{error}") from None

    return write


def _said(name: str) -> str:
    return f"{name}: " if name else ""


# Fields without a tag -------------------------------------------------------------------------------


def _inline_steps(fields: Sequence[_Field]) -> list[_Step]:
    steps: list[_Step] = []
    neighbours: list[_Field] = []
    for field in fields:
        if field.codec.form:
            neighbours.append(field)
            continue
        steps += _steps_of_neighbours(neighbours)
        neighbours = []
        steps.append(_step_of_one(field))
    return steps + _steps_of_neighbours(neighbours)


def _step_of_one(field: _Field) -> _Step:
    return _Step(field.name, (), field.codec.read, attrgetter(field.name), field.codec.write)


def _steps_of_neighbours(fields: Sequence[_Field]) -> list[_Step]:
    """Return the one step that reads and writes these numbers together."""
    if len(fields) < 2:
        return [_step_of_one(field) for field in fields]
    names = tuple(field.name for field in fields)
    packer = struct.Struct(">" + "".join(field.codec.form for field in fields))
    pack, unpack_from, size = packer.pack, packer.unpack_from, packer.size

    def read(reader: Reader) -> tuple[Any, ...]:
        try:
            values = unpack_from(reader.data, reader.position)
        except struct.error:
            for field in fields:  # one of them says what is missing
                try:
                    field.codec.read(reader)
                except RemoteProtocolError as error:
                    raise RemoteProtocolError(f"{field.name}: {error}") from None
            raise
        reader.position += size
        return values

    def write(values: tuple[Any, ...], out: bytearray) -> None:
        try:
            out += pack(*values)
        except (struct.error, OverflowError):
            for field, value in zip(fields, values, strict=True):
                try:
                    field.codec.write(value, out)
                except LocalProtocolError as error:
                    raise LocalProtocolError(f"{field.name}: {error}") from None

    return [_Step("", names, read, attrgetter(*names), write)]


# Tagged fields ------------------------------------------------------------------------------------


class _Tags:
    """Reads and writes the tagged fields of a struct."""

    def __init__(self, fields: Sequence[_Field]) -> None:
        by_tag = {
            field.declaration.tag: field for field in sorted(fields, key=lambda field: field.declaration.tag or 0)
        }
        self._readers = {tag: (field.name, field.codec.read) for tag, field in by_tag.items()}
        self._writers = [
            (tag or 0, encode_uvarint(tag or 0), attrgetter(field.name), field.default, field.codec.write)
            for tag, field in by_tag.items()
        ]

    def read(self, reader: Reader, values: dict[str, Any]) -> None:
        """Add the fields that are there to `values`."""
        count = reader.uvarint()
        if count > MAX_TAGS:
            raise RemoteProtocolError(f"{count} tagged fields before byte {reader.position}, more than {MAX_TAGS}")
        reader.count_elements(count)
        unknown: list[tuple[int, bytes]] = []
        previous = -1
        data, last = reader.data, reader.end - 1
        for _ in range(count):
            position = reader.position
            if position < last and (data[position] | data[position + 1]) < 0x80:
                tag, size = data[position], data[position + 1]
                reader.position += 2
            else:
                tag, size = reader.uvarint(), reader.uvarint()
            if tag <= previous:
                raise RemoteProtocolError(f"tag {tag} before byte {reader.position} follows tag {previous}")
            previous = tag
            known = self._readers.get(tag)
            if known is None:
                unknown.append((tag, reader.read_bytes(size)))
                continue
            end = reader.position + size
            if end > reader.end:
                raise reader.short(size, f"tag {tag}")
            name, read_value = known
            values[name] = read_value(reader)
            if reader.position != end:
                raise RemoteProtocolError(f"tag {tag} ends at byte {reader.position}, but its size says {end}")
        if unknown:
            values["unknown_tagged_fields"] = tuple(unknown)

    def write(self, value: Any, out: bytearray) -> None:
        """Append the fields that differ from their defaults, and those that we do not know."""
        if not self._writers and not value.unknown_tagged_fields:
            out.append(0)  # nearly always
            return
        present: list[tuple[int, bytes, bytes | bytearray]] = []
        for tag, encoded_tag, get, default, write_value in self._writers:
            field_value = get(value)
            if field_value != default:
                data = bytearray()
                write_value(field_value, data)
                present.append((tag, encoded_tag, data))
        if value.unknown_tagged_fields:
            present += [(tag, encode_uvarint(tag), data) for tag, data in value.unknown_tagged_fields]
            present.sort(key=lambda tagged: tagged[0])
            if len({tag for tag, _, _ in present}) != len(present):
                raise LocalProtocolError(f"a tag stands twice: {[tag for tag, _, _ in present]}")
        write_uvarint(out, len(present))
        for _, encoded_tag, content in present:
            out += encoded_tag
            write_uvarint(out, len(content))
            out += content
