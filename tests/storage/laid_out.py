"""A directory in which images of a disk are laid out; the storage that opens it sees the inodes and times of then."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final, Self

from tools.storage_proof.file_trace import Image
from tools.storage_proof.os_watch import StatHandler, let_through, watching

IN_MEMORY: Final = Path("/dev/shm")


def in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a new directory in memory, where there is such a place: files come by the thousand, and need no disk."""
    return tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None)


class LaidOut:
    """One image at a time in `directory`. Watches the storage while it is entered."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._on_stat: StatHandler | None = None
        self._watch = watching("kraftlib.storage", let_through, on_stat=self._told)

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._watch.__exit__(*error)

    def _told(self, subject: int | str | os.PathLike[str], found: os.stat_result) -> os.stat_result:
        return found if self._on_stat is None else self._on_stat(subject, found)

    def lay_out(self, image: Image) -> None:
        """Let the directory be this image, and nothing else."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self._on_stat = image.lay_out(self.directory)
