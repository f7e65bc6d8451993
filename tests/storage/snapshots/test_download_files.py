"""One partial download at a time, with a note of what it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kraftlib.storage import names
from kraftlib.storage.snapshots.download_files import DownloadFiles, DownloadNote
from kraftlib.types import OffsetAndEpoch

NOTE = DownloadNote(snapshot_id=OffsetAndEpoch(offset=42, epoch=3), size=10)


def test_note_and_bytes_are_found_again_and_freeze_under_their_name(tmp_path: Path) -> None:
    frozen: list[OffsetAndEpoch] = []
    sink = DownloadFiles(tmp_path, frozen=frozen.append).create(NOTE)
    sink.write(b"0123456789")
    reopened = DownloadFiles(tmp_path, frozen=frozen.append).reopen()
    assert reopened is not None
    note, again = reopened
    assert (note, again.size, again.read_at(2, 3)) == (NOTE, 10, b"234")
    again.cut(4)
    again.write(b"xy")
    again.freeze()

    assert frozen == [NOTE.snapshot_id]
    path = tmp_path / names.checkpoint_name(NOTE.snapshot_id)
    assert path.read_bytes() == b"0123xy"
    assert path.stat().st_mode & 0o777 == 0o400


def test_a_download_that_was_killed_as_it_became_read_only_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync of a large one takes seconds, and only root may write to a file without that right."""
    sink = DownloadFiles(tmp_path, frozen=lambda snapshot_id: None).create(NOTE)
    sink.write(b"0123456789")

    def killed(descriptor: int) -> None:
        raise SystemExit

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(SystemExit):
        sink.freeze()
    reopened = DownloadFiles(tmp_path, frozen=lambda snapshot_id: None).reopen()

    assert reopened is not None
    assert reopened[1].size == 10
    assert (tmp_path / names.download_name(NOTE.snapshot_id)).stat().st_mode & 0o777 == 0o600


def test_a_download_that_cannot_be_opened_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DownloadFiles(tmp_path, frozen=lambda snapshot_id: None).create(NOTE).write(b"0123")

    def refused(path: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "not its owner")

    monkeypatch.setattr(os, "chmod", refused)
    assert DownloadFiles(tmp_path, frozen=lambda snapshot_id: None).reopen() is None
    assert list(tmp_path.iterdir()) == []


def test_there_is_nothing_where_there_was_nothing(tmp_path: Path) -> None:
    downloads = DownloadFiles(tmp_path, frozen=lambda snapshot_id: None)
    assert downloads.reopen() is None
    downloads.drop()
    (tmp_path / names.download_name(NOTE.snapshot_id)).write_bytes(b"whose?")
    assert downloads.reopen() is None
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    downloads = DownloadFiles(tmp_path, frozen=lambda snapshot_id: None)
    downloads.create(NOTE).write(b"0123")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"precious")
    part = tmp_path / names.download_name(NOTE.snapshot_id)
    part.unlink()
    part.symlink_to(elsewhere)
    assert downloads.reopen() is None
    assert elsewhere.read_bytes() == b"precious"
