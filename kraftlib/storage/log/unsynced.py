"""`kraftlib-unsynced.json`: where the durable part of a log ended when a sync failed.

The kernel drops the pages that it could not write, but goes on to show them to readers until the machine stops. A
process that starts meanwhile would take them for durable, and the next sync would say so. Hence a note of where the
durable part ends; the bytes behind it are written once more, elsewhere. A note that is as perishable as those pages is
just good enough.

Nor is a file sure to be cut whose cut was never synced, however often it is synced later: the bytes that were cut off
could come back behind later ones. So the note also says that it was a cut, and then a copy takes the place of the file.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import attrs

from kraftlib.errors import StorageError
from kraftlib.storage import files, names, notes
from kraftlib.storage.notes import NoteError
from kraftlib.storage.reserve import Reserve
from kraftlib.types import Offset

logger: Final = logging.getLogger(__name__)

_MAX_BYTES: Final = 4_096
_KEYS: Final = ({"cut", "flushed_offset"}, {"flushed_offset"})
"""The first release knew no `cut`."""


@attrs.frozen(kw_only=True)
class Unsynced:
    """The part of the log that a failed sync leaves in doubt."""

    flushed_offset: Offset
    """Nothing from here on is durable."""
    was_cut: bool
    """Whether the last file may be as long as it was before it was cut."""


def note_unsynced(directory: Path, unsynced: Unsynced, *, file_mode: int, reserve: Reserve | None = None) -> None:
    """Note the doubtful part, as well as a disk that has failed allows; an earlier one that was not mended stays.

    A sync may have failed because the disk is full: then the reserve is given back for the note.
    """
    try:
        before = read_unsynced(directory) or unsynced
        note = {
            "cut": unsynced.was_cut or before.was_cut,
            "flushed_offset": min(unsynced.flushed_offset, before.flushed_offset),
        }
        data, path = notes.encode(note, compact=False), directory / names.UNSYNCED
        space = reserve if reserve is not None else Reserve(directory, size=0)
        space.spend(lambda: files.replace_file(path, data, mode=file_mode, durable=False))
    except StorageError as error:
        logger.error("%s: that a sync failed cannot even be noted: %s", directory, error)


def read_unsynced(directory: Path) -> Unsynced | None:
    """Return what is in doubt, everything if the note cannot be read; None, if no sync has failed."""
    try:
        note = notes.read(directory / names.UNSYNCED, max_bytes=_MAX_BYTES)
        if note is None:
            return None
        flushed_offset, was_cut = notes.integer(note, "flushed_offset"), note.get("cut", False)
        if set(note) in _KEYS and isinstance(was_cut, bool):
            return Unsynced(flushed_offset=flushed_offset, was_cut=was_cut)
    except NoteError:
        pass  # as one that says too little
    return Unsynced(flushed_offset=0, was_cut=True)


def forget_unsynced(directory: Path) -> None:
    """Remove the note, durably: all was written again."""
    files.remove(directory / names.UNSYNCED)
    files.sync_directory(directory)
