"""The records that an operator has the state machine skip: `kraftlib-skips.json`, a side file of ours.

    {"version":1,"skips":[{"offset":4711,"epoch":3,"reason":"bug 12","at_ms":1700000000000}],"crc":305419896}

`kraftlib skip-record` writes it while the replica is stopped. The record stays in the log, as every replica has it. A
damaged note, or one of a newer version, is an error: without it the state machine would stop again at that record.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from kraftlib.errors import StorageError
from kraftlib.frozen import immutable
from kraftlib.storage import files, names, notes
from kraftlib.storage.notes import NoteError
from kraftlib.types import Epoch, Offset

VERSION: Final = 1
MAX_BYTES: Final = 1 << 20
SKIPS_MAX: Final = 1_000
REASON_MAX: Final = 500


@immutable(kw_only=True)
class Skip:
    """A record that no listener is given, why, and when that was decided (wall-clock ms).

    The epoch tells it from another record that takes its place, should it not have been committed.
    """

    offset: Offset
    epoch: Epoch
    reason: str
    at_ms: int


def read_skips(partition: Path) -> list[Skip]:
    """Return the skips in a partition's directory, by offset; none without the file. Raises: StorageError."""
    path = partition / names.SKIPS
    data = files.read_file(path, max_bytes=MAX_BYTES)
    if data is None:
        return []
    try:
        note = notes.parse_sealed(data)
        notes.check_version(note, VERSION)
        return sorted((_skip(item) for item in note["skips"]), key=lambda skip: skip.offset)
    except (NoteError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} cannot be used: {error}; remove it and run `kraftlib skip-record` again", path=path
        ) from error


def write_skips(partition: Path, skips: Sequence[Skip], *, mode: int = files.FILE_MODE) -> None:
    """Replace the file, durably. Raises: StorageError."""
    document = {"version": VERSION, "skips": [attrs.asdict(skip) for skip in skips]}
    files.replace_file(partition / names.SKIPS, notes.seal(notes.encode(document)), mode=mode)


def _skip(item: Any) -> Skip:
    if not isinstance(item["reason"], str):
        raise NoteError(f"reason is {item['reason']!r}")
    offset, epoch, at_ms = (notes.integer(item, name) for name in ("offset", "epoch", "at_ms"))
    return Skip(offset=offset, epoch=epoch, reason=item["reason"], at_ms=at_ms)
