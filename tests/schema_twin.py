"""A slow and obvious encoder that knows nothing of our declarations: it walks over Kafka's schemas as released.

It takes a message by its attributes, which are the names of the schema in snake case.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
FORMS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "float64": "d", "bool": "?"}
DEFAULTS = {"bool": False, "string": "", "bytes": b"", "uuid": b"\0" * 16}


def schemas(release: str) -> dict[str, dict[str, Any]]:
    return {schema["name"]: schema for schema in json.loads((DATA / release / "schemas.json").read_text())}


def encode(schema: Mapping[str, Any], message: Any, version: int) -> bytes:
    structs = {common["name"]: common["fields"] for common in schema.get("commonStructs", ())}
    return _struct(schema["fields"], structs, message, version, within(version, schema["flexibleVersions"]))


def within(version: int, text: str) -> bool:
    if text == "none":
        return False
    first, plus, _ = text.partition("+")
    if plus:
        return version >= int(first)
    first, _, last = text.partition("-")
    return int(first) <= version <= int(last or first)


def snake(name: str) -> str:
    out = ""
    for i, letter in enumerate(name.replace("KRaft", "Kraft")):
        out += ("_" if i and letter.isupper() else "") + letter.lower()
    return out


def _struct(fields: list[Any], structs: Mapping[str, Any], value: Any, version: int, flexible: bool) -> bytes:
    out, tagged = b"", {}
    for field in fields:
        if not within(version, field["versions"]):
            continue
        content = getattr(value, snake(field["name"]))
        if within(version, field.get("taggedVersions", "none")):
            if not _is_default(field, structs, content, version):
                tagged[int(field["tag"])] = _value(field["type"], field, structs, content, version, flexible)
        else:
            own = within(version, field["flexibleVersions"]) if "flexibleVersions" in field else flexible
            out += _value(field["type"], field, structs, content, version, own)
    if flexible:
        out += _uvarint(len(tagged))
        for tag, data in sorted(tagged.items()):
            out += _uvarint(tag) + _uvarint(len(data)) + data
    return out


def _is_default(field: Mapping[str, Any], structs: Mapping[str, Any], content: Any, version: int) -> bool:
    given, kind = field.get("default"), field["type"]
    if str(given) == "null":
        return content is None
    if kind[0].isupper():
        nested = field.get("fields") or structs[kind]
        return all(_is_default(f, structs, getattr(content, snake(f["name"])), version) for f in nested)
    if kind.startswith("[]"):
        return content == ()
    if given is None or kind == "string":
        default = DEFAULTS.get(kind, 0) if given is None else given
    else:
        default = str(given).lower() == "true" if kind == "bool" else int(str(given), 0)
    return (content.bytes if kind == "uuid" else content) == default


def _value(kind: str, field: Any, structs: Any, content: Any, version: int, flexible: bool) -> bytes:
    if kind in FORMS:
        return struct.pack(">" + FORMS[kind], content)
    if kind == "uuid":
        return bytes(content.bytes)
    if kind in ("string", "bytes", "records"):
        if content is None:
            return _size(-1, flexible, kind)
        data = content.encode() if kind == "string" else bytes(content)
        return _size(len(data), flexible, kind) + data
    if kind.startswith("[]"):
        if content is None:
            return _size(-1, flexible, kind)
        items = [_value(kind[2:], field, structs, item, version, flexible) for item in content]
        return _size(len(items), flexible, kind) + b"".join(items)
    return _struct(field.get("fields") or structs[kind], structs, content, version, flexible)


def _size(size: int, flexible: bool, kind: str) -> bytes:
    if flexible:
        return _uvarint(size + 1)
    return struct.pack(">h" if kind == "string" else ">i", size)


def _uvarint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + _uvarint(value // 128)
