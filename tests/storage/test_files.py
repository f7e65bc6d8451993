from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage import files


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_name_takes_the_place_of_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    def no_links(old: Path, new: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not has_links:
        monkeypatch.setattr(os, "link", no_links)
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    files.rename_new(tmp_path / "one", tmp_path / "new")
    with pytest.raises(StorageError):
        files.rename_new(tmp_path / "two", tmp_path / "new")
    assert (tmp_path / "new").read_text() == "one"
    assert sorted(os.listdir(tmp_path)) == ["new", "two"]


def test_replacing_leaves_the_new_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state"
    (tmp_path / "state.tmp").write_bytes(b"left over by a crash")

    files.replace_file(path, b"old")
    files.replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["state"]


def test_new_files_belong_to_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        files.replace_file(tmp_path / "private", b"")
        files.replace_file(tmp_path / "shared", b"", mode=0o640)
    finally:
        os.umask(before)

    assert mode_of(tmp_path / "private") == 0o600
    assert mode_of(tmp_path / "shared") == 0o640


def test_who_may_read_a_file_may_search_its_directory() -> None:
    assert files.directory_mode(0o600) == 0o700
    assert files.directory_mode(0o640) == 0o750
    assert files.directory_mode(0o644) == 0o755


def test_a_directory_is_made_once(tmp_path: Path) -> None:
    assert files.make_directory(tmp_path / "d", mode=0o700)
    assert not files.make_directory(tmp_path / "d", mode=0o700)
    assert mode_of(tmp_path / "d") == 0o700

    (tmp_path / "f").touch()
    with pytest.raises(StorageError, match=r"cannot make the directory .*f"):
        files.make_directory(tmp_path / "f", mode=0o700)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"not yours")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StorageError, match="symbolic link"):
        files.refuse_link(tmp_path / "link")
    with pytest.raises(StorageError, match="link is a symbolic link"):
        files.read_file(tmp_path / "link", max_bytes=100)
    with pytest.raises(StorageError, match="link is a symbolic link"):
        files.open_existing(tmp_path / "link", files.WRITE)
    with pytest.raises(StorageError, match=r"cannot create .*link"):
        files.create(tmp_path / "link", mode=0o600)


def test_a_link_in_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"not yours")
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "state.tmp").symlink_to(tmp_path / "elsewhere")

    files.replace_file(tmp_path / "state", b"ours")

    assert (tmp_path / "elsewhere").read_bytes() == b"not yours"
    assert not (tmp_path / "state").is_symlink()


def test_a_missing_file_is_no_error_and_a_large_one_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")

    assert files.read_file(tmp_path / "g", max_bytes=5) is None
    assert files.read_file(tmp_path / "f", max_bytes=5) == b"12345"
    with pytest.raises(StorageError, match="larger than 4 bytes"):
        files.read_file(tmp_path / "f", max_bytes=4)


def test_errors_name_the_path_and_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory") as caught:
        files.open_existing(tmp_path / "missing")

    assert caught.value.path == tmp_path / "missing"
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_removing_tells_whether_there_was_anything(tmp_path: Path) -> None:
    (tmp_path / "f").touch()

    assert files.remove(tmp_path / "f")
    assert not files.remove(tmp_path / "f")


def test_short_writes_and_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that takes and gives 3 bytes at a time."""
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: pwrite(fd, b"".join(parts)[:3], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    descriptor = files.create(tmp_path / "f", mode=0o600)

    files.write_at(descriptor, b"0123456789", 0)
    files.write_all_at(descriptor, [b"ab", memoryview(b"cdefg"), b"h"], 5)

    assert (tmp_path / "f").read_bytes() == b"01234abcdefgh"
    assert files.read_at(descriptor, 100, 2) == b"234abcdefgh"
    os.close(descriptor)


def test_more_parts_than_the_kernel_takes_are_written_in_turns(tmp_path: Path) -> None:
    parts = [bytes([n % 251]) * 3 for n in range(2_500)]
    descriptor = files.create(tmp_path / "f", mode=0o600)

    files.write_all_at(descriptor, parts, 7)

    assert (tmp_path / "f").read_bytes()[7:] == b"".join(parts)
    os.close(descriptor)


def test_reserved_space_does_not_change_the_size(tmp_path: Path) -> None:
    descriptor = files.create(tmp_path / "f", mode=0o600)
    files.write_at(descriptor, b"data", 0)

    if files.reserve(descriptor, 1 << 20):
        assert os.fstat(descriptor).st_blocks * 512 >= 1 << 20
    assert (tmp_path / "f").read_bytes() == b"data"
    os.close(descriptor)


def test_space_that_is_not_there_cannot_be_reserved(tmp_path: Path) -> None:
    descriptor = files.create(tmp_path / "f", mode=0o600)

    with pytest.raises(OSError, match=r"space|large"):
        files.reserve(descriptor, 1 << 60)
    os.close(descriptor)


def test_writing_out_early_changes_nothing_and_tells_no_errors(tmp_path: Path) -> None:
    descriptor = files.create(tmp_path / "f", mode=0o600)
    files.write_at(descriptor, b"data", 0)

    files.begin_writing_out(descriptor, 0, 4)
    files.begin_writing_out(descriptor, 1 << 40, 1 << 40)
    os.close(descriptor)
    files.begin_writing_out(descriptor, 0, 4)

    assert (tmp_path / "f").read_bytes() == b"data"


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "is a FIFO, and a regular file is expected there: move it away"),
        (Path.mkdir, "is a directory, and a regular file is expected there: move it away"),
        (lambda path: path.symlink_to("/dev/zero"), "is a symbolic link"),
        (a_socket, "cannot"),
    ],
)
def test_what_is_no_file_is_refused_and_hangs_nobody(
    make: Callable[[Path], None], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    path = Path("odd")
    make(path)
    for look in (files.open_existing, lambda path: files.read_file(path, max_bytes=10)):
        with pytest.raises(StorageError, match=what) as raised:
            look(path)
        assert raised.value.path == path
    if what.startswith("is a FIFO"):
        with pytest.raises(StorageError, match=what):
            files.open_existing(path, files.WRITE)


def test_a_device_has_no_end(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="/dev/zero is a device"):
        files.read_file(Path("/dev/zero"), max_bytes=10)


def test_a_file_that_somebody_named_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"here")
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert files.read_file(tmp_path / "link", max_bytes=10, flags=files.READ_NAMED) == b"here"


def test_a_write_that_finds_no_space_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_at", full)
    with pytest.raises(StorageError, match="No space left"):
        files.replace_file(tmp_path / "state", b"new")

    assert os.listdir(tmp_path) == []


def test_a_file_that_is_opened_for_a_block_is_closed_behind_it_whatever_happens(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"data")
    with files.opened(path) as descriptor:
        assert files.read_at(descriptor, 10, 0) == b"data"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with pytest.raises(KeyError), files.opened(path) as descriptor:
        raise KeyError
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with pytest.raises(StorageError, match="missing"), files.opened(tmp_path / "missing"):
        raise AssertionError("there is nothing to open")


def test_a_file_is_cut_and_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sizes = tmp_path / "file", []
    path.write_bytes(b"0123456789")
    sync = os.fsync

    def noting(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    files.cut(path, 4)
    assert (path.read_bytes(), sizes) == (b"0123", [4])


def test_a_large_file_gives_its_space_back_on_a_thread_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large, fifo = tmp_path / "small", tmp_path / "large", tmp_path / "fifo"
    small.write_bytes(b"data")
    large.touch()
    os.truncate(large, files.LARGE_BYTES)
    os.mkfifo(fifo)
    closed: list[tuple[int, int]] = []
    close = os.close

    def noting(descriptor: int) -> None:
        closed.append((os.fstat(descriptor).st_size, threading.get_ident()))
        close(descriptor)

    monkeypatch.setattr(os, "close", noting)
    for path in (small, large, fifo, tmp_path / "missing"):
        files.remove_beside(path)
    assert os.listdir(tmp_path) == []
    for thread in threading.enumerate():
        if thread.name == "kraftlib-free":
            thread.join(60)

    sizes = dict(closed)
    assert sizes[4] == threading.get_ident() != sizes[files.LARGE_BYTES]


def test_a_large_file_is_removed_also_where_no_thread_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    large = tmp_path / "large"
    large.touch()
    os.truncate(large, files.LARGE_BYTES)
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        files.remove_beside(large)

    assert not large.exists()
    assert before == (os.listdir("/proc/self/fd") if before else [])
