"""Bugs that are easily made in code that must survive a crash, to be planted into the real one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from kraftlib.storage import files
from kraftlib.storage.damage import scan
from kraftlib.storage.log import growing_log
from kraftlib.storage.log import unsynced as unsynced_note
from kraftlib.storage.log.chain import SegmentChain
from kraftlib.storage.log.open_files import OpenFiles
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.sync_point import Mark, SyncPointFile
from kraftlib.storage.snapshots import snapshot_files
from tests.storage.crash.proof import CRASH, FAILED_SYNC, KILL


@attrs.frozen
class Bug:
    """What is wrong, and where that must show: in which protocol, and after what."""

    name: str
    shows_in: str
    plant: Callable[[pytest.MonkeyPatch], None]
    after: str = CRASH
    failing_after: str = ""


def _nothing(*arguments: object) -> None:
    """Do nothing in the place of a sync."""


def _no_data_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync_data", _nothing)


def _no_directory_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync_directory", _nothing)


def _replace_without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace_file(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
        really(path, data, mode=mode, durable=False)
        files.sync_directory(path.parent)

    really = files.replace_file
    monkeypatch.setattr(files, "replace_file", replace_file)


def _rename_before_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace_file(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
        really(path, data, mode=mode, durable=False)
        descriptor = files.open_existing(path)
        os.fsync(descriptor)
        os.close(descriptor)
        files.sync_directory(path.parent)

    really = files.replace_file
    monkeypatch.setattr(files, "replace_file", replace_file)


def _written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace_file(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
        descriptor = files.os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)
        files.write_at(descriptor, data, 0)
        files.os.fsync(descriptor)
        files.os.close(descriptor)
        files.sync_directory(path.parent)

    monkeypatch.setattr(files, "replace_file", replace_file)


def _sealed_segments_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(self: OpenFiles) -> None:
        files.sync_data(self._descriptor)
        if self._sealed:
            files.sync_directory(self._directory)
            self._finish(list(self._sealed))

    monkeypatch.setattr(OpenFiles, "sync", sync)


def _new_segment_is_not_in_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(self: OpenFiles) -> None:
        sealed = list(self._sealed)
        for full in sealed:
            files.sync_data(full.descriptor)
        files.sync_data(self._descriptor)
        self._finish(sealed)

    monkeypatch.setattr(OpenFiles, "sync", sync)


def _removed_from_the_first_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(self: SegmentChain, segment: Segment, mark: Mark) -> None:
        place = self._segments.index(segment)
        behind = self._segments[place + 1 :]
        if behind:
            self.open_files.go_on_in(segment)
        kept = segment.cut_at(mark.position, mark.crc, is_growing=not behind)
        self._segments = (*self._segments[:place], kept)
        for victim in behind:
            victim.remove_files()
        kept.load_index()

    monkeypatch.setattr(SegmentChain, "_drop_segments_behind", drop)


def _snapshot_visible_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    class Os:
        def __getattr__(self, name: str) -> object:
            return _nothing if name == "fsync" else getattr(os, name)

    monkeypatch.setattr(snapshot_files, "os", Os())


def _what_recovery_read_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    def sync_data(descriptor: int) -> None:
        import sys

        if sys._getframe(1).f_globals["__name__"] != scan.__name__:
            files.os.fdatasync(descriptor)

    monkeypatch.setattr(files, "sync_data", sync_data)


def _sync_point_lowered_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncPointFile, "sync", _nothing)


def _cut_is_taken_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(directory: Path, unsynced: unsynced_note.Unsynced, **more: Any) -> None:
        really(directory, attrs.evolve(unsynced, was_cut=False), **more)

    really = growing_log.note_unsynced
    monkeypatch.setattr(growing_log, "note_unsynced", note)


PLANTED = (
    Bug("a flush that does not sync", "append", _no_data_sync),
    Bug("no directory is ever synced", "vote", _no_directory_sync),
    Bug("a new segment whose name is not durable", "roll", _new_segment_is_not_in_the_directory),
    Bug("full segments are not synced", "roll", _sealed_segments_are_forgotten),
    Bug("a vote that is not synced", "vote", _replace_without_sync),
    Bug("a vote that is renamed before it is synced", "vote", _rename_before_sync),
    Bug("a vote that is written in place", "vote", _written_in_place),
    Bug("segments removed from the first on", "truncate", _removed_from_the_first_on),
    Bug("a sync point that is not lowered durably", "truncate", _sync_point_lowered_late),
    Bug("a cut whose sync failed is taken for done", "truncate", _cut_is_taken_for_done, FAILED_SYNC, "ftruncate"),
    Bug("a snapshot that is renamed before it is durable", "write_snapshot", _snapshot_visible_before_it_is_durable),
    Bug("what a new process read is taken for durable", "append", _what_recovery_read_is_not_synced, KILL),
)
