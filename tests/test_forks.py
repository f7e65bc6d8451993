"""What a forked child must not keep leads nowhere in it; what has got the number since is left alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlib import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@pytest.fixture
def held(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "held", os.O_RDWR | os.O_CREAT)
    forks.keep_from_children(descriptor)
    yield descriptor
    forks.forget(descriptor)
    os.close(descriptor)


def file_of(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def in_child(descriptor: int) -> tuple[int, int]:
    """Return what the descriptor leads to in a child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"%d %d" % file_of(descriptor))
        os._exit(0)
    os.waitpid(child, 0)
    device, inode = os.read(reading, 100).split()
    os.close(reading)
    os.close(writing)
    return int(device), int(inode)


def test_a_child_does_not_keep_what_it_must_not(held: int) -> None:
    before = file_of(held)
    null = os.stat(os.devnull)

    assert in_child(held) == (null.st_dev, null.st_ino)
    assert file_of(held) == before


def test_another_file_of_the_same_number_is_left_to_the_child(held: int, tmp_path: Path) -> None:
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.dup2(other, held)
    os.close(other)

    assert in_child(held) == file_of(held)
