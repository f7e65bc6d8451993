"""`kraftlib-unsynced.json`: where the durable part of a log ended when a sync failed.

The kernel drops the pages that it could not write, but goes on to show them to readers until the machine stops. A
process that starts meanwhile would take them for durable, and the next sync would say so. Hence a note of where the
durable part ends; what stands behind is written once more, elsewhere. A note that is as perishable as those pages is
just good enough.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Final

from kraftlib.errors import StorageError
from kraftlib.storage import files, names
from kraftlib.types import Offset

logger: Final = logging.getLogger(__name__)


def note_unsynced(directory: Path, flushed_offset: Offset, *, file_mode: int) -> None:
    """Note, as well as a disk that has failed allows, that nothing from `flushed_offset` on is durable."""
    note = json.dumps({"flushed_offset": flushed_offset}).encode("ascii")
    try:
        files.replace_file(directory / names.UNSYNCED, note, mode=file_mode, durable=False)
    except StorageError as error:
        logger.error("%s: that a sync failed cannot even be noted: %s", directory, error)


def unsynced_from(directory: Path) -> Offset | None:
    """Return from where on nothing is durable, 0 if that cannot be read; None, if no sync has failed."""
    note = files.read_file(directory / names.UNSYNCED, max_bytes=4_096)
    if note is None:
        return None
    match = re.search(rb'"flushed_offset": ([0-9]{1,19})\}', note)
    return int(match[1]) if match else 0


def forget_unsynced(directory: Path) -> None:
    """Remove the note, durably: all was written again."""
    files.remove(directory / names.UNSYNCED)
    files.sync_directory(directory)
