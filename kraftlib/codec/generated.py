"""The functions that read and write a message of which there are thousands a second (`@message(frequent=True)`).

The steps of `kraftlib.codec.struct_codec` are called one by one, and each calls others. Here they become one function
for each struct and direction, as text that is compiled once for a version of a message. It knows what is common: sizes
below 16 KiB, less than 127 elements, no tagged field. At anything else, be it large, rare or wrong, it gives up, and
the steps begin anew: they know all of it, and say what is wrong and where.

Names in the text are those of declared fields and classes, and bytes of a peer never come into it.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from kraftlib.codec import field_types
from kraftlib.codec.declarations import Declaration, Message, Struct, declared_fields
from kraftlib.codec.field_types import FieldCodec
from kraftlib.codec.reader import Reader, uuid_of
from kraftlib.errors import LocalProtocolError, RemoteProtocolError, ensure

SIZES: Final = 0x4000
"""Sizes, plus one, that two bytes hold."""

FEW: Final = 0x80
"""Numbers of elements, plus one, that one byte holds."""


class UncommonError(Exception):
    """The steps must do it."""


_GIVEN_UP: Final = (
    UncommonError,
    RemoteProtocolError,
    LocalProtocolError,
    IndexError,  # the bytes end
    UnicodeError,
    OverflowError,
    struct.error,
)

CodecOf = Callable[[Declaration], FieldCodec]


def generated(owner: type[Message], version: int, steps: FieldCodec, codec_of: CodecOf) -> FieldCodec:
    """Return a codec that tries what is common, and has `steps` do the rest. `codec_of` gives those of a field."""
    ensure(version in owner.flexible_versions, f"{owner.__name__} is frequent, and version {version} is not flexible")
    read_common, write_common = _Program(owner, version, codec_of).functions()
    read_all, write_all = steps.read, steps.write

    def read(reader: Reader) -> Any:
        position, elements_left = reader.position, reader.elements_left
        try:
            return read_common(reader)
        except _GIVEN_UP:
            reader.position, reader.elements_left = position, elements_left
            return read_all(reader)

    def write(value: Any, out: bytearray) -> None:
        size = len(out)
        try:
            write_common(value, out)
        except _GIVEN_UP:
            del out[size:]
            write_all(value, out)

    return FieldCodec(read, write, steps.min_size)


class _Program:
    """The text of all functions of one version of a message, and what it names."""

    def __init__(self, owner: type[Message], version: int, codec_of: CodecOf) -> None:
        self._owner: Final = owner
        self._version: Final = version
        self._codec_of: Final = codec_of
        self._lines: list[str] = []
        self._names: dict[str, Any] = {"UncommonError": UncommonError, "UUID": uuid.UUID, "uuid_of": uuid_of}
        self._written: set[type[Struct]] = set()
        self._add(owner)

    def functions(self) -> tuple[Callable[[Reader], Any], Callable[[Any, bytearray], None]]:
        """Compile the text; return the functions of the message."""
        exec("\n".join(self._lines), self._names)
        return self._names[f"read_{self._owner.__name__}"], self._names[f"write_{self._owner.__name__}"]

    def _named(self, stem: str, thing: Any) -> str:
        name = f"{stem}_{len(self._names)}"
        self._names[name] = thing
        return name

    def _add(self, cls: type[Struct]) -> None:
        if cls in self._written:
            return
        self._written.add(cls)
        self._names[cls.__name__] = cls
        fields = [(name, declaration) for name, declaration, _ in declared_fields(cls)]
        for name, declaration in fields:
            plain = self._version in declaration.versions and self._version not in declaration.tagged
            ensure(plain and declaration.flexible is None, f"{cls.__name__}.{name} is no field of a frequent message")
        reading, writing = list(self._read(fields)), list(self._write(fields))
        values = ", ".join(f"{name}=f_{name}" for name, _ in fields)
        self._lines += [
            f"def read_{cls.__name__}(reader):",
            "    data, at, end = reader.data, reader.position, reader.end",
            *[f"    {line}" for line in reading],
            "    if data[at]: raise UncommonError",
            "    reader.position = at + 1",
            f"    return {cls.__name__}({values})",
            f"def write_{cls.__name__}(value, out):",
            f"    if type(value) is not {cls.__name__} or value.unknown_tagged_fields: raise UncommonError",
            *[f"    {line}" for line in writing],
            "    out.append(0)",
        ]

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self, fields: Sequence[tuple[str, Declaration]]) -> Iterator[str]:
        for form, neighbours in groupby(fields, key=lambda field: bool(self._form(field[1]))):
            if form:
                yield from self._read_numbers(list(neighbours))
            else:
                for name, declaration in neighbours:
                    yield from self._read_one(f"f_{name}", declaration)

    def _form(self, declaration: Declaration) -> str:
        codec = field_types.NUMBERS.get(declaration.type)
        return "" if codec is None else codec.form

    def _packer(self, fields: Sequence[tuple[str, Declaration]]) -> struct.Struct:
        return struct.Struct(">" + "".join([self._form(declaration) for _, declaration in fields]))

    def _read_numbers(self, fields: Sequence[tuple[str, Declaration]]) -> Iterator[str]:
        packer = self._packer(fields)
        yield f"{''.join([f'f_{name}, ' for name, _ in fields])}= {self._named('unpack', packer.unpack_from)}(data, at)"
        yield f"at += {packer.size}"

    def _read_one(self, variable: str, declaration: Declaration) -> Iterator[str]:
        nullable = self._version in declaration.nullable
        kind = declaration.type
        if kind == "uuid":
            yield "last = at + 16"
            yield "if last > end: raise UncommonError"
            yield f"{variable} = uuid_of(bytes(data[at:last]))"
            yield "at = last"
        elif kind in ("string", "bytes"):
            yield "size = data[at]"
            yield "if size < 0x80: at += 1"
            yield "else:"
            yield "    size, at = size & 0x7F | data[at + 1] << 7, at + 2"
            yield f"    if size >= {SIZES}: raise UncommonError"
            yield "last = at + size - 1"
            yield f"if last > end or size > {min(declaration.most, SIZES) + 1}: raise UncommonError"
            value = 'str(data[at:last], "utf-8")' if kind == "string" else "bytes(data[at:last])"
            yield f"if size: {variable}, at = {value}, last"
            yield f"else: {variable} = None" if nullable else "else: raise UncommonError"
        elif kind.startswith("[]") and (element := self._struct(kind[2:])) is not None:
            yield "size = data[at]"
            yield f"if not 0 < size <= {min(declaration.most, FEW - 2) + 1}: raise UncommonError"
            yield f"if size == 1: {variable}, at = (), at + 1"
            yield "else:"
            yield "    reader.position = at + 1"
            yield "    reader.elements_left -= size - 1"
            yield "    if reader.elements_left < 0: raise UncommonError"
            yield f"    {variable} = tuple([read_{element}(reader) for _ in range(size - 1)])"
            yield "    at = reader.position"
        else:
            yield "reader.position = at"
            yield f"{variable} = {self._named('read', self._codec_of(declaration).read)}(reader)"
            yield "at = reader.position"

    def _struct(self, name: str) -> str | None:
        """Add the functions of a struct of this message, if the name is one; return its name."""
        cls = getattr(self._owner, name, None)
        if not (isinstance(cls, type) and issubclass(cls, Struct)):
            return None
        self._add(cls)
        return name

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(self, fields: Sequence[tuple[str, Declaration]]) -> Iterator[str]:
        for form, neighbours in groupby(fields, key=lambda field: bool(self._form(field[1]))):
            if form:
                numbers = list(neighbours)
                values = ", ".join([f"value.{name}" for name, _ in numbers])
                yield f"out += {self._named('pack', self._packer(numbers).pack)}({values})"
            else:
                for name, declaration in neighbours:
                    yield from self._write_one(f"value.{name}", declaration)

    def _write_one(self, value: str, declaration: Declaration) -> Iterator[str]:
        kind = declaration.type
        if kind == "uuid":
            yield f"if type({value}) is not UUID: raise UncommonError"
            yield f"out += {value}.bytes"
        elif kind in ("string", "bytes"):
            yield f"data = {value}"
            indent = ""
            if self._version in declaration.nullable:
                yield "if data is None: out.append(0)"
                yield "else:"
                indent = "    "
            yield f"{indent}if type(data) is not {'str' if kind == 'string' else 'bytes'}: raise UncommonError"
            if kind == "string":
                yield f"{indent}data = data.encode()"
            yield f"{indent}size = len(data) + 1"
            yield f"{indent}if size >= {min(declaration.most + 2, SIZES)}: raise UncommonError"
            yield f"{indent}if size < 0x80: out.append(size)"
            yield f"{indent}else: out += bytes((size & 0x7F | 0x80, size >> 7))"
            yield f"{indent}out += data"
        elif kind.startswith("[]") and (element := self._struct(kind[2:])) is not None:
            yield f"items = {value}"
            yield f"if type(items) is not tuple or len(items) >= {FEW - 1}: raise UncommonError"
            yield "out.append(len(items) + 1)"
            yield f"for item in items: write_{element}(item, out)"
        else:
            yield f"{self._named('write', self._codec_of(declaration).write)}({value}, out)"
