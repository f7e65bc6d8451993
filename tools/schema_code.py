"""Declarations as code, written from Kafka's schemas: the text to start a new message, or a new version of one, from.

The output needs `ruff format`, and a docstring with the purpose of the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kraftlib.codec.declarations import Declaration, attribute_name, schema_name
from kraftlib.codec.versions import NO_VERSIONS

_HELPERS: Final = {"bool": "boolean", "bytes": "binary"}
_ANNOTATIONS: Final = {
    "bool": "bool",
    "bytes": "bytes",
    "float64": "float",
    "records": "bytes | memoryview",
    "string": "str",
    "uuid": "UUID",
}
_DEFAULTS: Final = {"bool": "false", "string": "", "records": "null"}
_DECORATOR: Final = "@attrs.frozen(kw_only=True, eq=False, repr=False)"


def declaration_code(schemas: Sequence[Mapping[str, Any]]) -> str:
    """Return a module that declares these messages."""
    bodies = [_message_code(schema) for schema in schemas]
    names = "|".join(
        "array binary boolean float64 int8 int16 int32 int64 records string struct uint16 uint32 uuid".split()
    )
    used = sorted({"Message", "message"} | set(re.findall(rf"= ({names})\(", "\n".join(bodies))))
    if any("(Struct)" in body for body in bodies):
        used.append("Struct")
    imports = ["from uuid import UUID", ""] if "uuid" in used or "UUID" in "\n".join(bodies) else []
    header = [
        f'"""{", ".join(schema["name"] for schema in schemas)}."""',
        "",
        "from __future__ import annotations",
        "",
        *imports,
        "import attrs",
        "",
        f"from kraftlib.codec.declared import {', '.join(used)}",
    ]
    return "\n".join(header) + "\n\n\n" + "\n\n\n".join(bodies)


def _message_code(schema: Mapping[str, Any]) -> str:
    name = schema["name"]
    key = f", api_key={schema['apiKey']}" if "apiKey" in schema else ""
    lines = [
        f'@message(kind="{schema["type"]}"{key}, versions="{schema["validVersions"]}", '
        f'flexible="{schema["flexibleVersions"]}")',
        _DECORATOR,
        f"class {name}(Message):",
        f'    """{name}."""',
        "",
        *(f"    {_field_code(field, owner='')}" for field in schema["fields"]),
    ]
    for struct_name, fields in _structs(schema):
        lines += ["", f"    {_DECORATOR}", f"    class {struct_name}(Struct):", f'        """{struct_name}."""', ""]
        lines += [f"        {_field_code(field, owner=name)}" for field in fields]
    return "\n".join(lines)


def _structs(schema: Mapping[str, Any]) -> Iterable[tuple[str, Sequence[Mapping[str, Any]]]]:
    """Return the structs of a message, outer ones first, each once."""
    found: dict[str, Sequence[Mapping[str, Any]]] = {}

    def walk(fields: Iterable[Mapping[str, Any]]) -> None:
        for field in fields:
            if field.get("fields"):
                found.setdefault(field["type"].removeprefix("[]"), field["fields"])
                walk(field["fields"])

    walk(schema["fields"])
    for struct in schema.get("commonStructs", ()):
        found.setdefault(struct["name"], struct["fields"])
        walk(struct["fields"])
    return found.items()


def _field_code(field: Mapping[str, Any], *, owner: str) -> str:
    type_name, name = field["type"], attribute_name(field["name"])
    is_array = type_name.startswith("[]")
    element = type_name.removeprefix("[]")
    is_struct = element[:1].isupper()
    annotation = _ANNOTATIONS.get(element, "int")
    if is_struct:
        annotation = f"{owner}.{element}" if owner else element
    if is_array:
        annotation = f"tuple[{annotation}, ...]"
    if "nullableVersions" in field or str(field.get("default")) == "null":
        annotation += " | None"
    helper = _HELPERS.get(element, element)
    if is_array or is_struct:
        helper = "array" if is_array else "struct"
    arguments = [f'"{element}"'] if is_array or is_struct else []
    arguments += [f'"{field["versions"]}"', *_options(field, name)]
    return f"{name}: {annotation} = {helper}({', '.join(arguments)})"


def _options(field: Mapping[str, Any], name: str) -> list[str]:
    options = []
    if "nullableVersions" in field:
        options.append(f'nullable="{field["nullableVersions"]}"')
    if "tag" in field:
        options.append(f"tag={int(field['tag'])}")
        if field["taggedVersions"] != field["versions"]:
            options.append(f'tagged="{field["taggedVersions"]}"')
    default = str(field.get("default", "null" if field["type"] == "records" and "nullableVersions" in field else ""))
    if default.lower() not in ("", _DEFAULTS.get(field["type"], "0")):
        options.append(f"default={_literal(field['type'], default)}")
    elif field["type"] == "records" and not default:
        options.append('default=b""')
    if field.get("ignorable"):
        options.append("ignorable=True")
    if "flexibleVersions" in field:
        options.append(f'flexible="{field["flexibleVersions"]}"')
    derived = schema_name(name, Declaration(type=field["type"], versions=NO_VERSIONS))
    if derived != field["name"]:
        options.append(f'name="{field["name"]}"')
    return options


def _literal(type_name: str, default: str) -> str:
    if default == "null":
        return "None"
    if type_name == "bool":
        return default.capitalize()
    return repr(default) if type_name == "string" else default
