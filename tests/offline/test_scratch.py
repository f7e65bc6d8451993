"""What a backup that was broken off has left is removed, and nothing else ever is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.offline import scratch
from kraftlib.offline.scratch import BACKUP, OBSERVER, PACKED, scratch_in
from kraftlib.storage import names
from kraftlib.storage.lock import DirectoryLock


def left_over(place: Path, name: str = ".kraftlib-backup-abc_1234") -> Path:
    """What a process leaves that is killed while it packs."""
    directory = place / name
    for part in (BACKUP, OBSERVER):
        (directory / part / "deeper").mkdir(parents=True)
        (directory / part / "deeper" / "file").write_bytes(b"x")
    (directory / PACKED).write_bytes(b"x")
    (directory / names.LOCK).write_bytes(b"")
    return directory


def test_it_is_there_for_so_long_and_what_was_left_behind_is_gone_first(tmp_path: Path) -> None:
    left_over(tmp_path)
    (tmp_path / ".kraftlib-backup-00000000").mkdir()
    with scratch_in(tmp_path) as directory:
        assert list(tmp_path.iterdir()) == [directory]
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / BACKUP).mkdir()
    assert not list(tmp_path.iterdir())


def test_it_goes_however_the_work_ends(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="too slow"), scratch_in(tmp_path):
        raise TimeoutError("too slow")
    assert not list(tmp_path.iterdir())


def test_backups_that_are_being_made_leave_each_other_alone(tmp_path: Path) -> None:
    with scratch_in(tmp_path) as first, scratch_in(tmp_path) as second:
        assert {first, second} == set(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name",
    ["monday.tar", ".monday.tar", "kraftlib-backup-abc_1234", ".kraftlib-backup-abc", ".kraftlib-backup-ABC_1234.tar"],
)
def test_what_is_named_otherwise_stays(tmp_path: Path, name: str) -> None:
    kept = left_over(tmp_path, name)
    with scratch_in(tmp_path):
        pass
    assert len(list(kept.rglob("*"))) == 8


def test_what_holds_anything_else_stays(tmp_path: Path) -> None:
    kept = left_over(tmp_path)
    (kept / "precious").write_bytes(b"x")
    (tmp_path / ".kraftlib-backup-11111111").mkdir()
    (tmp_path / ".kraftlib-backup-11111111" / BACKUP).mkdir()
    (tmp_path / ".kraftlib-backup-22222222").write_bytes(b"a file")
    (tmp_path / ".kraftlib-backup-33333333").symlink_to(left_over(tmp_path, "elsewhere"))
    before = sorted(tmp_path.rglob("*"))
    with scratch_in(tmp_path):
        pass
    assert sorted(tmp_path.rglob("*")) == before
    DirectoryLock.acquire(kept).release()


def test_what_belongs_to_somebody_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = left_over(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: kept.stat().st_uid + 1)
    with scratch_in(tmp_path):
        pass
    assert kept.exists()


def test_one_that_another_backup_took_for_left_over_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making and locking it; once it is removed, once it is just being removed."""
    made: list[Path] = []
    held: list[DirectoryLock] = []

    def interrupted(**how: object) -> str:
        path = tmp_path / f".kraftlib-backup-0000000{len(made)}"
        made.append(path)
        if len(made) == 2:
            path.mkdir()
            held.append(DirectoryLock.acquire(path))
        elif len(made) > 2:
            path.mkdir()
        return str(path)

    monkeypatch.setattr(scratch.tempfile, "mkdtemp", interrupted)
    with scratch_in(tmp_path) as directory:
        assert directory == made[2]
    held[0].release()
    assert not made[2].exists()


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"), scratch_in(tmp_path / "nowhere"):
        pass
