"""The JSON in our small files and in Kafka's `quorum-state`: one object each, bounded in size and depth.

A sealed note ends in `,"crc":305419896}`: the CRC-32C of the line as it would be without that key. A line that is not
the expected note raises `NoteError`; the owner of the file decides what follows. A note of another version is not
changed and not believed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kraftlib.records.checksum import crc32c
from kraftlib.storage import files

_SEALED: Final = re.compile(rb'(\{.*),"crc":([0-9]{1,10})\}', re.DOTALL)
_INT64_MAX: Final = 2**63 - 1


class NoteError(ValueError):
    """The bytes are not the note that they should be; says why."""


def encode(fields: Mapping[str, object], *, compact: bool = True) -> bytes:
    """Return a note as one line, in ASCII, without a line end."""
    return json.dumps(fields, separators=(",", ":") if compact else None).encode("ascii")


def seal(line: bytes) -> bytes:
    """Return a compact note with its CRC."""
    return b'%s,"crc":%d}' % (line[:-1], crc32c(line))


def is_sealed(data: bytes) -> bool:
    """Whether a note ends in a CRC, be it right or wrong."""
    return _SEALED.fullmatch(data) is not None


def parse(data: bytes | str) -> dict[str, Any]:
    """Return the fields of a note, its CRC not looked at. Raises: NoteError."""
    try:
        fields = json.loads(data)
    except RecursionError as error:
        raise NoteError("it is nested too deep") from error
    except ValueError as error:
        raise NoteError(f"it is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise NoteError("it is no JSON object")
    return fields


def parse_sealed(data: bytes) -> dict[str, Any]:
    """Return the fields of a sealed note, the CRC among them. Raises: NoteError, also for one that has no CRC."""
    match = _SEALED.fullmatch(data)
    if match is None:
        raise NoteError("it is empty or has no CRC")
    if crc32c(match[1] + b"}") != int(match[2]):
        raise NoteError("its CRC does not fit")
    return parse(data)


def read(path: Path, *, max_bytes: int) -> dict[str, Any] | None:
    """Return the fields of a note in a file, None if there is no such file. Raises: NoteError, StorageError."""
    data = files.read_file(path, max_bytes=max_bytes, may_be_lost=True)
    return None if data is None else parse(data)


def integer(fields: Mapping[str, Any], name: str, *, low: int = 0, high: int = _INT64_MAX) -> int:
    """Return a field that is a whole number from `low` to `high`. Raises: NoteError that names field and value."""
    value = fields.get(name)
    if type(value) is not int or not low <= value <= high:
        raise NoteError(f"{name} is {value!r}")
    return value


def check_version(fields: Mapping[str, Any], known: int, *, name: str = "version") -> None:
    """Check that a note is of the version that is known here. Raises: NoteError."""
    if fields.get(name) != known:
        raise NoteError(f"its {name} is {fields.get(name)!r}, known is {known}")
