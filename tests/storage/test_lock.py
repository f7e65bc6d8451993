from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftlib.errors import DirectoryInUseError, StorageError
from kraftlib.storage.lock import DirectoryLock

HOLD = """
import sys
from pathlib import Path
from kraftlib.storage.lock import DirectoryLock
lock = DirectoryLock.acquire(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""

# What a JVM does: a POSIX record lock over the whole file.
HOLD_LIKE_A_JVM = """
import fcntl, sys
file = open(sys.argv[1] + "/.lock", "w")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""

TRY_LIKE_A_JVM = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1] + "/.lock", "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("refused")
"""


@contextmanager
def another_process(program: str, directory: Path) -> Iterator[int]:
    """Run `program` until the end of the block; yields its process id once it holds the lock."""
    command = [sys.executable, "-c", program, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process.pid
        process.communicate(timeout=20)


@pytest.mark.parametrize("program", [HOLD, HOLD_LIKE_A_JVM])
def test_a_second_process_is_refused_and_told_who_was_first(program: str, tmp_path: Path) -> None:
    with (
        another_process(program, tmp_path) as holder,
        pytest.raises(DirectoryInUseError, match=rf"{tmp_path} is in use by process {holder}"),
    ):
        DirectoryLock.acquire(tmp_path)

    DirectoryLock.acquire(tmp_path).release()


def test_a_jvm_is_refused_too(tmp_path: Path) -> None:
    lock = DirectoryLock.acquire(tmp_path)
    command = [sys.executable, "-c", TRY_LIKE_A_JVM, str(tmp_path)]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "refused\n"
    lock.release()
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_closing_another_descriptor_of_the_file_does_not_lose_the_lock(tmp_path: Path) -> None:
    """It would, were it a plain POSIX lock."""
    lock = DirectoryLock.acquire(tmp_path)
    (tmp_path / ".lock").read_bytes()

    with pytest.raises(DirectoryInUseError):
        DirectoryLock.acquire(tmp_path)
    lock.release()
    lock.release()


def test_a_lock_file_that_is_removed_between_open_and_lock_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka removes it when it stops cleanly; the lock must then be one that others see."""
    set_lock, steps = fcntl.fcntl, []

    def removing_first(descriptor: int, command: int, argument: bytes) -> object:
        if not steps:
            os.unlink(tmp_path / ".lock")
        steps.append(command)
        return set_lock(descriptor, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", removing_first)
    lock = DirectoryLock.acquire(tmp_path)
    monkeypatch.undo()

    assert len(steps) == 2
    with pytest.raises(DirectoryInUseError):
        DirectoryLock.acquire(tmp_path)
    lock.release()


def test_a_lock_file_that_keeps_vanishing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def removing_always(descriptor: int, command: int, argument: bytes) -> None:
        os.unlink(tmp_path / ".lock")

    monkeypatch.setattr(fcntl, "fcntl", removing_always)
    with pytest.raises(StorageError, match="replaced 100 times"):
        DirectoryLock.acquire(tmp_path)


def test_a_link_in_place_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StorageError, match="lock is a symbolic link"):
        DirectoryLock.acquire(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
