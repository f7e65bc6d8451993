"""The trace of file operations: what is taken down, what a fault does, and that no call is missed."""

from __future__ import annotations

import errno
from pathlib import Path
from types import ModuleType

import pytest

from tools.storage_proof.file_trace import (
    Create,
    Fault,
    FileTrace,
    Image,
    Mark,
    ProcessKilled,
    Remove,
    Rename,
    Resize,
    StoredFile,
    Sync,
    SyncDirectory,
    Write,
)


def test_what_is_done_is_taken_down_in_order_and_files_are_numbered(package: ModuleType, tmp_path: Path) -> None:
    with FileTrace(tmp_path, package=package.__name__) as trace:
        package.make(tmp_path / "a", b"xyz")
        trace.mark("made")
        package.replace(tmp_path / "a", tmp_path / "b")
        package.rest(tmp_path / "b")

    assert trace.operations == [
        Create(1, "a"),
        Write(1, 0, b"xyz"),
        Sync(1),
        Mark("made"),
        Rename(1, "a", "b"),
        SyncDirectory("."),
        Resize(1, 1),
        Remove("b"),
    ]


def test_what_lies_elsewhere_is_none_of_its_business(package: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with FileTrace(tmp_path / "here", package=package.__name__) as trace:
        package.make(tmp_path / "there", b"x")

    assert trace.operations == []


def test_a_failed_sync_is_taken_down_as_one(package: ModuleType, tmp_path: Path) -> None:
    def before(call: object) -> Fault | None:
        return Fault(errno=errno.EIO) if getattr(call, "name", "") == "fdatasync" else None

    with (
        FileTrace(tmp_path, package=package.__name__, before=before) as trace,
        pytest.raises(OSError, match="Input/output"),
    ):
        package.make(tmp_path / "a", b"xyz")

    assert trace.operations[-1] == Sync(1, worked=False)


def test_a_short_write_is_followed_by_the_rest(package: ModuleType, tmp_path: Path) -> None:
    faults = iter([Fault(short=True)])

    with FileTrace(
        tmp_path, package=package.__name__, before=lambda call: next(faults, None) if call.name == "pwrite" else None
    ) as trace:
        package.make(tmp_path / "a", b"wxyz")

    assert trace.operations[1:3] == [Write(1, 0, b"wx"), Write(1, 2, b"yz")]
    assert (tmp_path / "a").read_bytes() == b"wxyz"


def test_a_killed_process_does_nothing_more_not_even_in_finally(package: ModuleType, tmp_path: Path) -> None:
    with FileTrace(
        tmp_path, package=package.__name__, before=lambda call: Fault(kill=True) if call.name == "fdatasync" else None
    ) as trace:
        with pytest.raises(ProcessKilled):
            package.make(tmp_path / "a", b"x")
        with pytest.raises(ProcessKilled):
            package.rest(tmp_path / "a")
        trace.restart()
        package.rest(tmp_path / "a")

    assert trace.operations == [Create(1, "a"), Write(1, 0, b"x"), Resize(1, 1), Remove("a")]


def test_an_image_that_is_laid_out_elsewhere_tells_the_same_numbers_and_times(
    package: ModuleType, tmp_path: Path
) -> None:
    image = Image(files={"a": StoredFile(7, b"x", 42)})
    image.lay_out(tmp_path / "1")
    image.lay_out(tmp_path / "2")
    with FileTrace(tmp_path / "1", package=package.__name__, image=image):
        first = package.seen(tmp_path / "1" / "a")
    with FileTrace(tmp_path / "2", package=package.__name__, image=image):
        second = package.seen(tmp_path / "2" / "a")

    assert first == second
    assert first[0] == 7
