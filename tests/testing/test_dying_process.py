"""A process that ends without a good-bye: its result, its errors, and what it has synced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftlib.errors import InvariantError
from kraftlib.testing.dying_process import Die, in_a_dying_process, mark, open_files, syncs_what_it_writes


def test_nothing_is_closed_and_the_result_comes_back(tmp_path: Path) -> None:
    def work(die: Die) -> None:
        file = (tmp_path / "buffered").open("w")
        file.write("never seen")
        die([str(path) for path in open_files() if path.parent == tmp_path])

    assert in_a_dying_process(work) == [str(tmp_path / "buffered")]
    assert (tmp_path / "buffered").read_text() == ""


def test_an_error_and_a_sudden_end_are_told() -> None:
    def ends(die: Die) -> None:
        os._exit(3)

    def returns(die: Die) -> None:
        pass

    def raises(die: Die) -> None:
        raise KeyError("no such thing")

    with pytest.raises(InvariantError, match="KeyError: 'no such thing'"):
        in_a_dying_process(raises)
    with pytest.raises(InvariantError, match="ended within ends without a word"):
        in_a_dying_process(ends)
    with pytest.raises(InvariantError, match="returns returned, and should have ended its process"):
        in_a_dying_process(returns)


@pytest.mark.parametrize("order", ["write sync", "sync write", "write", "sync"])
def test_a_file_is_synced_after_its_last_write(order: str, tmp_path: Path) -> None:
    def work(die: Die) -> None:
        fd = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
        mark("begin")
        for step in order.split():
            os.fsync(fd) if step == "sync" else os.write(fd, b"bytes")
        mark("end")
        die(None)

    assert syncs_what_it_writes(work) == (order == "write sync")
