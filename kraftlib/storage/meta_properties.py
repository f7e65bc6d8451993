"""`meta.properties`: the node and the cluster to which a directory belongs. A Java properties file, as Kafka writes it.

    #
    #Sat Nov 21 10:08:58 UTC 2026
    node.id=1
    directory.id=e9MFl328Q-S5WPDKSl6znA
    version=1
    cluster.id=KamCna3aR0Ca0-LOI6hKfg

A directory that was wiped and formatted again has another directory id, and is another replica: that is how a quorum
sees that a vote or a record may have been forgotten with it (KIP-853).
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kraftlib.errors import ConfigError, StorageError
from kraftlib.frozen import immutable
from kraftlib.storage import files, names
from kraftlib.types import ReplicaId, parse_uuid, uuid_text

_VERSION: Final = "1"
_MAX_BYTES: Final = 1 << 16
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_KEY_END: Final = re.compile(r"(?<!\\)(?:\\\\)*([ \t\f]*[=:][ \t\f]*|[ \t\f]+)")
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {c: f"\\{c}" for c in "=:#!"}


@immutable(kw_only=True)
class MetaProperties:
    """The owner of a directory. `directory_id` is None where an old release of Kafka formatted it."""

    node_id: ReplicaId
    cluster_id: str
    directory_id: uuid.UUID | None

    def check(self, directory: Path, *, node_id: ReplicaId | None, cluster_id: str | None) -> None:
        """Check that the directory is the one of this node of this cluster; None stands for any.

        Raises: ConfigError that names both values.
        """
        if node_id is not None and node_id != self.node_id:
            raise ConfigError(
                f"node_id={node_id}, but {directory} was formatted for node {self.node_id}: give each replica its own"
                " directory, or correct node_id"
            )
        if cluster_id is not None and cluster_id != self.cluster_id:
            raise ConfigError(
                f"cluster_id={cluster_id!r}, but {directory} was formatted for cluster {self.cluster_id!r}: correct"
                " cluster_id, or give the replica the directory of that cluster"
            )


class MetaPropertiesDamagedError(StorageError):
    """The file makes no sense, and is of no other version either."""


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """Read the file in `directory`; None, if there is none.

    Raises: MetaPropertiesDamagedError for one that makes no sense, StorageError for one of another version.
    """
    path = directory / names.META_PROPERTIES
    data = files.read_file(path, max_bytes=_MAX_BYTES, may_be_lost=True)
    if data is None:
        return None
    properties = parse_properties(data)
    if properties.get("version") != _VERSION:
        version = properties.get("version", "missing")
        kind = StorageError if re.fullmatch(r"[0-9]{1,4}", version, re.ASCII) else MetaPropertiesDamagedError
        raise kind(f"{path}: version is {version}, only 1 is known (0 is from the days of ZooKeeper)", path=path)
    node_id, directory_id = properties.get("node.id", ""), properties.get("directory.id")
    if not re.fullmatch(r"[0-9]{1,10}", node_id, re.ASCII) or "cluster.id" not in properties:
        raise MetaPropertiesDamagedError(
            f"{path}: node.id is {node_id!r}, cluster.id {properties.get('cluster.id')!r}", path=path
        )
    try:
        directory_uuid = None if directory_id is None else parse_uuid(directory_id)
    except ConfigError as error:
        raise MetaPropertiesDamagedError(f"{path}: directory.id: {error}", path=path) from error
    return MetaProperties(node_id=int(node_id), cluster_id=properties["cluster.id"], directory_id=directory_uuid)


def write_meta_properties(directory: Path, meta: MetaProperties, *, now_ms: int, file_mode: int) -> None:
    """Write the file, durably. From then on the directory is formatted."""
    properties = {"node.id": str(meta.node_id)}
    if meta.directory_id is not None:
        properties["directory.id"] = uuid_text(meta.directory_id)
    properties |= {"version": _VERSION, "cluster.id": meta.cluster_id}
    data = encode_properties(properties, now_ms=now_ms)
    files.replace_file(directory / names.META_PROPERTIES, data, mode=file_mode)


def encode_properties(properties: Mapping[str, str], *, now_ms: int) -> bytes:
    """Return a Java properties file with an empty comment, as Java writes it, at this wall-clock time."""
    clock = time.asctime(time.gmtime(now_ms // 1_000)).replace("  ", " 0")
    lines = ["#", f"#{clock[:19]} UTC {clock[20:]}"]
    lines += [f"{_escaped(key, spaces=True)}={_escaped(value)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _escaped(text: str, *, spaces: bool = False) -> str:
    out = []
    for number, character in enumerate(text):
        if character == " " and (spaces or number == 0):
            out.append("\\ ")
        elif character in _ESCAPES:
            out.append(_ESCAPES[character])
        elif " " <= character <= "~":
            out.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{units[n : n + 2].hex().upper()}" for n in range(0, len(units), 2)]
    return "".join(out)


def parse_properties(data: bytes) -> dict[str, str]:
    """Read a Java properties file; of a key that stands there twice the last value counts."""
    properties: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        match = _KEY_END.search(line)
        key, value = (line[: match.start(1)], line[match.end() :]) if match else (line, "")
        properties[_unescaped(key)] = _unescaped(value)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines that are neither empty nor comments; one that ends in a backslash goes on in the next."""
    pending = ""
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPED.get(escape, escape)

    plain = _ESCAPE.sub(replace, text)
    # Two escapes may be the halves of one character.
    return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
