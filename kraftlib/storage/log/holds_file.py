"""The readers that still need the log, each with its offset: `kraftlib-holds.json`, a side file of ours.

    {"version": 1, "holds": [{"name": "feed", "offset": 4711, "max_bytes": 1073741824}]}

It is replaced as a whole. A lost or damaged file costs the readers their hold and loses no record; one of a newer
version is left alone, as if there was none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import StorageError
from kraftlib.frozen import immutable
from kraftlib.storage import files, names, notes
from kraftlib.storage.notes import NoteError
from kraftlib.types import Offset

logger: Final = logging.getLogger(__name__)

VERSION: Final = 1
MAX_BYTES: Final = 1 << 20
NAME_MAX: Final = 200


@immutable(kw_only=True)
class StoredHold:
    """One reader: nothing from `offset` on may be deleted, as long as the log is not larger than `max_bytes`."""

    name: str
    offset: Offset
    max_bytes: int


def read_holds(directory: Path) -> list[StoredHold]:
    """Return the holds in the partition's directory; none, if the file is missing, damaged or of a newer version."""
    path = directory / names.HOLDS
    try:
        note = notes.read(path, max_bytes=MAX_BYTES)
        if note is None:
            return []
        notes.check_version(note, VERSION)
        return [_hold(item) for item in note["holds"]]
    except (NoteError, KeyError, TypeError, StorageError) as error:
        logger.warning("%s cannot be used, so no reader holds the log: %s", path, error)
        return []


def write_holds(directory: Path, holds: Sequence[StoredHold], *, mode: int = files.FILE_MODE) -> None:
    """Replace the file, durably; unless it is of a newer version. Raises: StorageError."""
    path = directory / names.HOLDS
    data = files.read_file(path, max_bytes=MAX_BYTES)
    if data is not None and _version(data) > VERSION:
        return
    document = {"version": VERSION, "holds": [attrs.asdict(hold) for hold in holds]}
    files.replace_file(path, notes.encode(document), mode=mode)


def _version(data: bytes) -> int:
    try:
        version = notes.parse(data).get("version")
    except NoteError:
        return 0
    return version if isinstance(version, int) else 0


def _hold(item: Any) -> StoredHold:
    if not isinstance(item["name"], str) or not 0 < len(item["name"]) <= NAME_MAX:
        raise NoteError(f"{item['name']!r} is no name of a reader")
    offset, max_bytes = notes.integer(item, "offset"), notes.integer(item, "max_bytes")
    return StoredHold(name=item["name"], offset=offset, max_bytes=max_bytes)
