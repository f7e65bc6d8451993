"""A file of the configuration is read again after every change that could matter."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlib.security.signature import signature

CHANGES: dict[str, Callable[[Path], object]] = {
    "other bytes": lambda path: path.write_text("longer"),
    "another file of the same size and age": lambda path: renewed(path, path.stat()),
    "another mode": lambda path: path.chmod(0o400),
    "no file": lambda path: path.unlink(),
}


def renewed(path: Path, before: os.stat_result) -> None:
    new = path.with_name("new")
    new.write_bytes(path.read_bytes())
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.replace(path)


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(change: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("bytes")
    seen = signature((None, path))
    assert signature((None, path)) == seen
    CHANGES[change](path)
    assert signature((None, path)) != seen
