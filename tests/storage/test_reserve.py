from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.storage import files
from kraftlib.storage import reserve as module
from kraftlib.storage.reserve import Reserve, free_bytes, is_full, left_out_if_full

SIZE = 1 << 20


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def test_the_space_is_really_taken(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, size=SIZE)
    assert reserve.restore()
    found = (tmp_path / "kraftlib-reserve.bin").stat()

    assert found.st_size == SIZE
    assert found.st_blocks * 512 >= SIZE
    assert found.st_mode & 0o777 == 0o600
    assert reserve.restore()


def test_it_is_given_back_once(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, size=SIZE)
    reserve.restore()

    assert reserve.release()
    assert not (tmp_path / "kraftlib-reserve.bin").exists()
    assert not reserve.release()


def test_two_threads_that_take_it_at_once_both_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush and the look of each second: the second one comes when the first has just made way for the file."""
    reserve, other, taken = Reserve(tmp_path, size=SIZE), threading.Event(), []
    really = files.remove

    def look() -> None:
        taken.append(reserve.restore())
        other.set()

    thread = threading.Thread(target=look)

    def remove(path: Path) -> bool:
        removed = really(path)
        if thread.ident is None:
            thread.start()
            other.wait(0.2)  # it gets through, or it waits for us
        return removed

    monkeypatch.setattr(files, "remove", remove)
    taken.append(reserve.restore())
    thread.join()

    assert taken == [True, True]
    assert reserve.is_taken
    assert (tmp_path / "kraftlib-reserve.bin").stat().st_size == SIZE


def test_none_is_kept_where_none_is_wanted(tmp_path: Path) -> None:
    assert not Reserve(tmp_path, size=0).restore()
    assert list(tmp_path.iterdir()) == []


def test_it_is_not_taken_from_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda directory: 2 * SIZE - 1)

    assert not Reserve(tmp_path, size=SIZE).restore()
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_finds_no_space_is_done_again_without_the_reserve(tmp_path: Path) -> None:
    reserve, calls = Reserve(tmp_path, size=SIZE), []
    reserve.restore()

    def work() -> str:
        calls.append((tmp_path / "kraftlib-reserve.bin").exists())
        if calls[-1]:
            raise StorageError("cannot write") from full()
        return "written"

    assert reserve.spend(work) == "written"
    assert calls == [True, False]


def test_what_another_thread_gives_back_meanwhile_is_for_both(tmp_path: Path) -> None:
    """An append and a flush find the disk full at the same moment, and only one of them finds the reserve."""
    reserve, calls = Reserve(tmp_path, size=SIZE), []
    reserve.restore()

    def work() -> str:
        calls.append((tmp_path / "kraftlib-reserve.bin").exists())
        if calls[-1]:
            assert reserve.release()  # as the other thread does before we come to it
            raise full()
        return "written"

    assert reserve.spend(work) == "written"
    assert calls == [True, False]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), StorageError("something else")])
def test_any_other_error_costs_no_reserve(error: Exception, tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, size=SIZE)
    reserve.restore()

    def work() -> None:
        raise error

    with pytest.raises(type(error)):
        reserve.spend(work)
    assert (tmp_path / "kraftlib-reserve.bin").exists()


def test_without_a_reserve_a_full_disk_is_the_error(tmp_path: Path) -> None:
    def work() -> None:
        raise full()

    with pytest.raises(OSError, match="No space left"):
        Reserve(tmp_path, size=SIZE).spend(work)


def test_what_a_full_disk_says() -> None:
    assert is_full(full())
    assert is_full(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert not is_full(OSError(errno.EIO, "Input/output error"))
    assert not is_full(StorageError("full of joy"))


def test_free_space_is_that_of_the_file_system(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)

    assert free_bytes(tmp_path) == pytest.approx(found.f_bavail * found.f_frsize, rel=0.2)


def test_a_cache_is_left_out_on_a_full_disk_and_on_no_other(caplog: pytest.LogCaptureFixture) -> None:
    with left_out_if_full("the log has no index"):
        raise StorageError("cannot write") from OSError(errno.ENOSPC, "No space left on device")
    assert "the disk is full, so the log has no index: cannot write" in caplog.text
    with pytest.raises(StorageError, match="broken"), left_out_if_full("the log has no index"):
        raise StorageError("broken") from OSError(errno.EIO, "Input/output error")
