"""The language in which messages are declared.

A message is a frozen attrs class. Each of its fields names its type, the versions that have it, and what else Kafka's
schema says of it; the codec is built from that, and from nothing else:

    @message(kind="request", api_key=81, versions="0", flexible="0+")
    @attrs.frozen(kw_only=True, eq=False, repr=False)
    class RemoveRaftVoterRequest(Message):
        cluster_id: str | None = string("0+", nullable="0+")
        voter_id: int = int32("0+")
        voter_directory_id: UUID = uuid("0+")

Attribute names are Kafka's in snake case; nested structs are nested classes with Kafka's names, and are named as text
where they are used, because one nested class cannot see another. Every field has a default, Kafka's own, so a message
is written by naming what differs. `eq=False, repr=False` because all structs share one comparison and one text, which
makes these classes half as expensive to import.
"""

from __future__ import annotations

import re
import uuid as uuids
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Final, Literal, TypeVar, cast

import attrs

from kraftlib.codec.reader import BYTES_MAX, MAX_ELEMENTS
from kraftlib.codec.versions import NO_VERSIONS, Versions, parse_versions
from kraftlib.errors import ensure
from kraftlib.frozen import frozen, immutable
from kraftlib.types import ZERO_UUID

Kind = Literal["request", "response", "header", "data", "metadata"]

_KEY: Final = "kraftlib"
_LONG_BYTES: Final = 32


@immutable(kw_only=True)
class Declaration:
    """The declaration of one field."""

    type: str
    """As in the schemas: `int32`, `string`, `[]int32`, `TopicData`, `[]TopicData`."""

    versions: Versions
    nullable: Versions = NO_VERSIONS
    tag: int | None = None
    tagged: Versions = NO_VERSIONS
    ignorable: bool = False
    """Whether a version that lacks the field may drop its value."""

    flexible: Versions | None = None
    """Where the field's own encoding is flexible, if that differs from its message's."""

    name: str | None = None
    """Kafka's name, where it does not follow from the attribute's."""

    most: int = MAX_ELEMENTS
    """The number of elements of an array that are read; more are refused. Not in the schemas."""


@frozen(kw_only=True, eq=False, repr=False)
class Struct:
    """A group of fields. Two are equal if their declared fields are."""

    unknown_tagged_fields: tuple[tuple[int, bytes], ...] = ()
    """Tagged fields that a newer writer added: (tag, bytes), ascending. Written back, so that a relay loses nothing."""

    _compared: ClassVar[Callable[[Any], Any] | None] = None

    def _values(self) -> Any:
        cls = type(self)
        if "_compared" not in cls.__dict__:
            names = [name for name, _, _ in declared_fields(cls)]
            cls._compared = attrgetter(*names) if names else lambda _: ()
        return cls._compared(self)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._values() == other._values())

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        shown = [
            f"{name}={_shown(value)}"
            for name, _, default in declared_fields(type(self))
            if (value := getattr(self, name)) != default
        ]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _shown(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>" if len(value) > _LONG_BYTES else repr(bytes(value))
    return repr(value)


class Message(Struct):
    """A struct that stands on its own: a request, a response, a header, a record."""

    __slots__ = ()

    kind: ClassVar[Kind]
    api_key: ClassVar[int]
    """-1, if it has none."""

    valid_versions: ClassVar[Versions]
    flexible_versions: ClassVar[Versions]
    is_frequent: ClassVar[bool]
    """Whether its codecs are generated (`kraftlib.codec.generated`)."""


M = TypeVar("M", bound=Message)


def message(
    *, kind: Kind, versions: str, flexible: str, api_key: int = -1, frequent: bool = False
) -> Callable[[type[M]], type[M]]:
    """Say what a message is: its kind and number, the versions that exist, and which of them are flexible.

    `frequent`: there are thousands of it a second, so that it pays to generate its codec.
    """

    def decorate(cls: type[M]) -> type[M]:
        cls.kind = kind
        cls.api_key = api_key
        cls.valid_versions = parse_versions(versions)
        cls.flexible_versions = parse_versions(flexible)
        cls.is_frequent = frequent
        structs: list[type[Struct]] = [cls, *nested_structs(cls)]
        for struct_class in structs:
            for attribute in attrs.fields(struct_class):
                factory = getattr(attribute.default, "factory", None)
                if isinstance(factory, _StructDefault):
                    factory.owner = cls
        return cls

    return decorate


class _StructDefault:
    """Makes the default of a field that is a struct: one shared instance, once the message is complete."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: type[Message] | None = None
        self.instance: Struct | None = None

    def __call__(self) -> Struct:
        if self.instance is None:
            ensure(self.owner is not None, f"the message that {self.name} belongs to lacks its @message")
            self.instance = cast("Struct", getattr(self.owner, self.name)())
        return self.instance


# Questions about a declared class --------------------------------------------------------------------


def declared_fields(cls: type[Struct]) -> list[tuple[str, Declaration, Any]]:
    """Return attribute name, declaration and default of each field, in the order of the schema."""
    return [
        (attribute.name, attribute.metadata[_KEY], _default(attribute))
        for attribute in attrs.fields(cls)
        if _KEY in attribute.metadata
    ]


def _default(attribute: attrs.Attribute[Any]) -> Any:
    factory = getattr(attribute.default, "factory", None)
    return attribute.default if factory is None else factory()


def nested_structs(cls: type[Message]) -> list[type[Struct]]:
    """Return the structs declared inside a message, in the order in which they stand there."""
    return [value for value in vars(cls).values() if isinstance(value, type) and issubclass(value, Struct)]


def schema_name(attribute_name: str, declaration: Declaration) -> str:
    """Return Kafka's name of a field: `cluster_id` is `ClusterId`."""
    return declaration.name or "".join(part[:1].upper() + part[1:] for part in attribute_name.split("_"))


def attribute_name(schema_name: str) -> str:
    """Return our name of a field: `ClusterId` is `cluster_id`, and `KRaft` is one word."""
    joined = re.sub(r"KRaft", "Kraft", schema_name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", joined).lower()


# The types of fields ------------------------------------------------------------------------------


def _field(
    type_name: str,
    versions: str,
    default: Any,
    *,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    flexible: str | None = None,
    name: str | None = None,
    most: int = MAX_ELEMENTS,
) -> Any:
    present = parse_versions(versions)
    if tagged is None:
        where_tagged = NO_VERSIONS if tag is None else present
    else:
        where_tagged = parse_versions(tagged)
    declaration = Declaration(
        type=type_name,
        versions=present,
        nullable=parse_versions(nullable),
        tag=tag,
        tagged=where_tagged,
        ignorable=ignorable,
        flexible=None if flexible is None else parse_versions(flexible),
        name=name,
        most=most,
    )
    return attrs.field(default=default, metadata={_KEY: declaration})


# The helpers return Any, so that a type checker believes the annotation beside them.


def int8(versions: str, *, default: int = 0, **more: Any) -> Any:
    """A signed 8-bit number."""
    return _field("int8", versions, default, **more)


def int16(versions: str, *, default: int = 0, **more: Any) -> Any:
    """A signed 16-bit number."""
    return _field("int16", versions, default, **more)


def int32(versions: str, *, default: int = 0, **more: Any) -> Any:
    """A signed 32-bit number."""
    return _field("int32", versions, default, **more)


def int64(versions: str, *, default: int = 0, **more: Any) -> Any:
    """A signed 64-bit number."""
    return _field("int64", versions, default, **more)


def uint16(versions: str, *, default: int = 0, **more: Any) -> Any:
    """An unsigned 16-bit number."""
    return _field("uint16", versions, default, **more)


def uint32(versions: str, *, default: int = 0, **more: Any) -> Any:
    """An unsigned 32-bit number."""
    return _field("uint32", versions, default, **more)


def float64(versions: str, *, default: float = 0.0, **more: Any) -> Any:
    """An IEEE 754 double."""
    return _field("float64", versions, default, **more)


def boolean(versions: str, *, default: bool = False, **more: Any) -> Any:
    """One byte, 0 or 1."""
    return _field("bool", versions, default, **more)


def uuid(versions: str, *, default: uuids.UUID = ZERO_UUID, **more: Any) -> Any:
    """16 bytes."""
    return _field("uuid", versions, default, **more)


def string(versions: str, *, default: str | None = "", **more: Any) -> Any:
    """Text, at most 32,767 bytes of UTF-8."""
    return _field("string", versions, default, **more)


def binary(versions: str, *, default: bytes | None = b"", most: int = BYTES_MAX, **more: Any) -> Any:
    """Bytes with a length; a copy, when read. `most` bounds their number, before anything is made for them."""
    return _field("bytes", versions, default, most=most, **more)


def records(versions: str, *, default: bytes | None = None, **more: Any) -> Any:
    """Record batches, or a slice of a snapshot; a view of the received bytes, when read."""
    return _field("records", versions, default, **more)


def array(of: str, versions: str, *, default: tuple[()] | None = (), **more: Any) -> Any:
    """Values of one type, which is given as in the schemas: `int32`, `uuid`, or a struct of the same message.

    `most` bounds their number when they are read.
    """
    return _field(f"[]{of}", versions, default, **more)


def struct(of: str, versions: str, **more: Any) -> Any:
    """A struct of the same message."""
    return _field(of, versions, attrs.Factory(_StructDefault(of)), **more)
