"""Compares the declared messages with Kafka's own schemas, and writes declarations from them.

    python -m tools.schemas diff SCHEMAS…              what differs; exit status 1, if anything does
    python -m tools.schemas write SCHEMAS… --message NAME…   declarations as code, on standard output

SCHEMAS is a JSON array of schemas, a directory of Kafka's `*.json` schemas, or a jar of a release that holds them
(`kafka-clients`, `kafka-metadata`, `kafka-raft`). This is what is run when a new Kafka release appears: `diff` says
which versions and fields are new, `write` gives the text to start from.

Two layouts are compared version by version, over the versions that both sides know: a schema of an older release
describes fewer of them, and says nothing against the rest.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.codec.declarations import Message, Struct, declared_fields, schema_name
from kraftlib.codec.versions import Versions, parse_versions
from kraftlib.errors import ConfigError
from tools.schema_code import declaration_code

RENAMED: Final = {
    ("VoteRequest", "CandidateEpoch"): "ReplicaEpoch",
    ("VoteRequest", "CandidateId"): "ReplicaId",
    ("VoteRequest", "CandidateDirectoryId"): "ReplicaDirectoryId",
}
"""Names of Kafka 3.9 that 4.0 changed, because a pre-vote is not asked for by a candidate (KIP-996). Same bytes."""

NOT_DECLARED: Final = {
    "QuorumStateData": "a JSON file, not a message: kraftlib.storage.election.line",
    "ControlRecordTypeSchema": "the key of a control record, two numbers: kraftlib.records.control",
}
"""Schemas that have no declaration, and where their content is."""


@attrs.frozen(kw_only=True)
class SchemaField:
    """A field, wherever it was described."""

    name: str
    type: str
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    ignorable: bool
    default: str
    flexible: Versions | None
    fields: tuple[SchemaField, ...] = ()


@attrs.frozen(kw_only=True)
class Schema:
    """A message, wherever it was described."""

    name: str
    kind: str
    api_key: int
    valid_versions: Versions
    flexible_versions: Versions
    fields: tuple[SchemaField, ...]


# Kafka's schemas ----------------------------------------------------------------------------------


def load_schemas(path: Path) -> list[Mapping[str, Any]]:
    """Read the schemas in a JSON file, a directory or a jar, as Kafka writes them.

    Raises: ConfigError, if there are none.
    """
    if path.is_dir():
        found = [parse_json(file.read_text("utf-8")) for file in sorted(path.rglob("*.json"))]
    elif path.suffix == ".json":
        content = parse_json(path.read_text("utf-8"))
        found = content if isinstance(content, list) else [content]
    else:
        with zipfile.ZipFile(path) as jar:
            names = sorted(name for name in jar.namelist() if re.fullmatch(r"common/\w+/\w+\.json", name))
            found = [parse_json(jar.read(name).decode("utf-8")) for name in names]
    schemas = [schema for schema in found if "validVersions" in schema]
    if not schemas:
        raise ConfigError(f"{path} holds no schemas: expected a JSON array, a directory of *.json, or a jar with them")
    return schemas


def parse_json(text: str) -> Any:
    """Read JSON in which whole lines may be comments, as they are in Kafka's schemas."""
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def schema_from_json(source: Mapping[str, Any]) -> Schema:
    """Return what a schema of Kafka says."""
    structs = {struct["name"]: struct["fields"] for struct in source.get("commonStructs", ())}
    return Schema(
        name=source["name"],
        kind=source["type"],
        api_key=source.get("apiKey", -1),
        valid_versions=parse_versions(source["validVersions"]),
        flexible_versions=parse_versions(source["flexibleVersions"]),
        fields=tuple(_field_from_json(source["name"], field, structs) for field in source["fields"]),
    )


def _field_from_json(message: str, source: Mapping[str, Any], structs: Mapping[str, Any]) -> SchemaField:
    type_name = source["type"]
    nested = source.get("fields") or structs.get(type_name.removeprefix("[]"), ())
    return SchemaField(
        name=RENAMED.get((message, source["name"]), source["name"]),
        type=type_name,
        versions=parse_versions(source["versions"]),
        nullable=parse_versions(source.get("nullableVersions", "none")),
        tag=int(source["tag"]) if "tag" in source else None,
        tagged=parse_versions(source.get("taggedVersions", "none")),
        ignorable=bool(source.get("ignorable", False)),
        default=_default_of_json(type_name, source),
        flexible=parse_versions(source["flexibleVersions"]) if "flexibleVersions" in source else None,
        fields=tuple(_field_from_json(message, field, structs) for field in nested),
    )


def _default_of_json(type_name: str, source: Mapping[str, Any]) -> str:
    """Return the default as text, in the form of `_default_of_value`."""
    given = source.get("default")
    if given is not None:
        text = str(given)
        if text == "null" or type_name == "string":
            return text
        return str(int(text, 0)) if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+", text) else text.lower()
    if type_name == "records":
        return "null" if "nullableVersions" in source else ""
    if type_name.startswith(("int", "uint")):
        return "0"
    return {"bool": "false", "float64": "0.0"}.get(type_name, "")


# Our declarations ---------------------------------------------------------------------------------


def schema_from_class(cls: type[Message]) -> Schema:
    """Return what a declared class says."""
    return Schema(
        name=cls.__name__,
        kind=cls.kind,
        api_key=cls.api_key,
        valid_versions=cls.valid_versions,
        flexible_versions=cls.flexible_versions,
        fields=_fields_from_class(cls, cls),
    )


def _fields_from_class(cls: type[Struct], owner: type[Message]) -> tuple[SchemaField, ...]:
    fields = []
    for name, declaration, default in declared_fields(cls):
        nested = getattr(owner, declaration.type.removeprefix("[]"), None)
        fields.append(
            SchemaField(
                name=schema_name(name, declaration),
                type=declaration.type,
                versions=declaration.versions,
                nullable=declaration.nullable,
                tag=declaration.tag,
                tagged=declaration.tagged,
                ignorable=declaration.ignorable,
                default=_default_of_value(declaration.type, default),
                flexible=declaration.flexible,
                fields=() if nested is None else _fields_from_class(nested, owner),
            )
        )
    return tuple(fields)


def _default_of_value(type_name: str, default: Any) -> str:
    if default is None:
        return "null"
    if type_name == "bool":
        return str(default).lower()
    is_plain = type_name == "string" or type_name.startswith(("int", "uint", "float"))
    return str(default) if is_plain else ""


def declared_messages() -> dict[str, type[Message]]:
    """Return every declared message by name: requests, responses, headers, control and metadata records."""
    from kraftlib import metadata
    from kraftlib.records import control_messages
    from kraftlib.wire import apis
    from kraftlib.wire.messages import headers

    classes: list[type[Message]] = [headers.RequestHeader, headers.ResponseHeader]
    for api in apis.APIS.values():
        classes += [api.request, api.response]
    classes += metadata.RECORDS.values()
    classes += [
        control_messages.LeaderChangeMessage,
        control_messages.SnapshotHeaderRecord,
        control_messages.SnapshotFooterRecord,
        control_messages.KRaftVersionRecord,
        control_messages.VotersRecord,
    ]
    return {cls.__name__: cls for cls in classes}


# The difference -----------------------------------------------------------------------------------


def difference(kafka: Schema, ours: Schema) -> list[str]:
    """Return what differs between a schema and a declaration, as lines to read; none, if they agree.

    `-` is what the schema says, `+` what is declared.
    """
    lines = []
    if (kafka.kind, kafka.api_key) != (ours.kind, ours.api_key):
        lines.append(f"  - {kafka.kind}, api key {kafka.api_key}")
        lines.append(f"  + {ours.kind}, api key {ours.api_key}")
    missing = [str(version) for version in kafka.valid_versions if version not in ours.valid_versions]
    if missing:
        lines.append(f"  version {', '.join(missing)} is not declared")
    both = kafka.valid_versions.intersection(ours.valid_versions)
    shared = _paths(kafka.fields) & _paths(ours.fields)
    found: dict[tuple[str, ...], list[int]] = {}
    for version in both:
        kafka_layout, our_layout = _layout(kafka, version, shared), _layout(ours, version, shared)
        if kafka_layout != our_layout:
            changes = difflib.ndiff(kafka_layout, our_layout)
            found.setdefault(tuple(line for line in changes if line[0] in "-+"), []).append(version)
    for changes_of_versions, versions in found.items():
        lines.append(f"  in version {', '.join(map(str, versions))}:")
        lines += [f"  {line}" for line in changes_of_versions]
    return [f"{kafka.name}:", *lines] if lines else []


def _paths(fields: Iterable[SchemaField], prefix: str = "") -> set[str]:
    paths = set()
    for field in fields:
        paths.add(prefix + field.name)
        paths |= _paths(field.fields, f"{prefix}{field.name}.")
    return paths


def _layout(schema: Schema, version: int, shared: set[str]) -> list[str]:
    flexible = "flexible" if version in schema.flexible_versions else "not flexible"
    return [flexible, *_field_layout(schema.fields, version, shared, "")]


def _field_layout(fields: Iterable[SchemaField], version: int, shared: set[str], prefix: str) -> list[str]:
    lines = []
    for field in fields:
        path = prefix + field.name
        if version not in field.versions:
            # A field that only one side knows, and does not have in this version, is no difference.
            if path in shared:
                lines.append(f"{path} is absent, {'dropped' if field.ignorable else 'refused'} when set")
            continue
        parts = [field.type, f"default {field.default!r}"]
        if version in field.nullable:
            parts.append("nullable")
        if version in field.tagged:
            parts.append(f"tag {field.tag}")
        if field.flexible is not None:
            parts.append(f"flexible {field.flexible}")
        lines.append(f"{path} {', '.join(parts)}")
        lines += _field_layout(field.fields, version, shared, f"{path}.")
    return lines


def differences(sources: Iterable[Mapping[str, Any]], *, only_declared: bool = False) -> list[str]:
    """Return what differs between Kafka's schemas and all that is declared."""
    declared = declared_messages()
    lines = []
    for source in sources:
        name = source["name"]
        if name in declared:
            lines += difference(schema_from_json(source), schema_from_class(declared[name]))
        elif name not in NOT_DECLARED and not only_declared:
            key = f" (api key {source['apiKey']})" if "apiKey" in source else ""
            lines.append(f"{name}{key}: is not declared")
    return lines


# The command --------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.schemas", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    diff = commands.add_parser("diff", help="say what differs from the declared messages")
    diff.add_argument("schemas", nargs="+", type=Path, help="JSON file, directory or jar")
    diff.add_argument("--only-declared", action="store_true", help="leave out messages that kraftlib has no use for")
    write = commands.add_parser("write", help="write declarations as code")
    write.add_argument("schemas", nargs="+", type=Path, help="JSON file, directory or jar")
    write.add_argument("--message", nargs="+", required=True, help="names of messages")
    options = parser.parse_args(arguments)
    try:
        sources = [schema for path in options.schemas for schema in load_schemas(path)]
    except (OSError, ConfigError, ValueError, zipfile.BadZipFile) as error:
        print(f"schemas: {error}", file=sys.stderr)
        return 2
    if options.command == "diff":
        lines = differences(sources, only_declared=options.only_declared)
        print("\n".join(lines) if lines else f"{len(sources)} schemas, no difference")
        return 1 if lines else 0
    by_name = {source["name"]: source for source in sources}
    unknown = [name for name in options.message if name not in by_name]
    if unknown:
        print(f"schemas: no schema of {', '.join(unknown)}", file=sys.stderr)
        return 2
    print(declaration_code([by_name[name] for name in options.message]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
