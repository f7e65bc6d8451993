"""Whether files of the configuration have changed since they were read: cheap enough to look once a second."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

Signature = tuple[tuple[int, ...] | None, ...]


def signature(paths: Iterable[Path | None]) -> Signature:
    """Return what changes when a file is written, when others may read it, or when another takes its place."""
    return tuple(None if path is None else _of(path) for path in paths)


def _of(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size
