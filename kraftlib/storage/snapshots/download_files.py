"""The partial download of a snapshot, which is kept across restarts.

    00000000000000000042-0000000003.checkpoint.part     the bytes so far; Kafka removes such a file when it starts
    kraftlib-download.json                              the snapshot it is part of:
                                                        {"version": 1, "offset": 42, "epoch": 3, "size": 4711}

Neither is needed to keep data. A part without its note, or with one that cannot be read, is removed at the next start;
so is one whose snapshot exists already. The caller checks its bytes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kraftlib.errors import StorageError
from kraftlib.frozen import immutable
from kraftlib.storage import files, names, notes
from kraftlib.storage.notes import NoteError
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink
from kraftlib.types import OffsetAndEpoch

logger: Final = logging.getLogger(__name__)

VERSION: Final = 1
NOTE_MAX_BYTES: Final = 4_096


@immutable(kw_only=True)
class DownloadNote:
    """The snapshot that a partial download belongs to."""

    snapshot_id: OffsetAndEpoch
    size: int
    """Bytes of the whole snapshot."""


class DownloadFiles:
    """The place of the one download that a replica has at a time."""

    def __init__(
        self,
        directory: Path,
        *,
        file_mode: int = files.FILE_MODE,
        frozen: Callable[[OffsetAndEpoch], None],
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        """`frozen` is told when the download has become a snapshot. `before_write` raises StorageError if a
        download may not use the space that is left on the disk.
        """
        self._before_write: Final = before_write
        self._directory: Final = directory
        self._mode: Final = file_mode
        self._frozen: Final = frozen
        self._note_path: Final = directory / names.DOWNLOAD

    def create(self, note: DownloadNote) -> FileSnapshotSink:
        """Begin a download, in place of any other. The note is durable before the first byte."""
        self.drop()
        self._before_write()
        document = {
            "version": VERSION,
            "offset": note.snapshot_id.offset,
            "epoch": note.snapshot_id.epoch,
            "size": note.size,
        }
        files.replace_file(self._note_path, notes.encode(document, compact=False), mode=self._mode)
        return self._sink(note.snapshot_id, exists=False)

    def reopen(self) -> tuple[DownloadNote, FileSnapshotSink] | None:
        """Return the download of an earlier run, if it can be continued; else remove it."""
        try:
            note = self._read_note()
            if note is not None:
                part = self._directory / names.download_name(note.snapshot_id)
                done = self._directory / names.checkpoint_name(note.snapshot_id)
                if part.is_file() and not part.is_symlink() and not done.exists():
                    os.chmod(part, self._mode)  # it was made read-only, if the stop came just before its last name
                    return note, self._sink(note.snapshot_id, exists=True)
        except (NoteError, StorageError, OSError) as error:
            logger.warning("%s cannot be used, so the download begins anew: %s", self._note_path, error)
        self.drop()
        return None

    def drop(self) -> None:
        """Remove note and parts."""
        for name in files.list_names(self._directory):
            if names.is_download(name):
                files.remove(self._directory / name)
        files.remove(self._note_path)

    def _sink(self, snapshot_id: OffsetAndEpoch, *, exists: bool) -> FileSnapshotSink:
        part = self._directory / names.download_name(snapshot_id)
        return FileSnapshotSink(
            self._directory,
            snapshot_id,
            file_mode=self._mode,
            frozen=self._frozen,
            partial_path=part,
            exists=exists,
            replaces=True,  # one of our own may be of a wrong state, which the download is to heal
            before_write=self._before_write,
        )

    def _read_note(self) -> DownloadNote | None:
        fields = notes.read(self._note_path, max_bytes=NOTE_MAX_BYTES)
        if fields is None:
            return None
        notes.check_version(fields, VERSION)
        offset, epoch, size = (notes.integer(fields, name) for name in ("offset", "epoch", "size"))
        return DownloadNote(snapshot_id=OffsetAndEpoch(offset=offset, epoch=epoch), size=size)
