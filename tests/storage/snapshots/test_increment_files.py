"""Increments are there as a whole or not at all, and a chain is what leads on from a checkpoint."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kraftlib.errors import ConfigError
from kraftlib.records.increment import Change
from kraftlib.storage import names
from kraftlib.storage.snapshots.increment_files import IncrementFiles
from kraftlib.types import OffsetAndEpoch


def at(offset: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(offset=offset, epoch=1)


def write(files: IncrementFiles, base: int, end: int, *changes: Change) -> None:
    files.write(at(end), changes, base=at(base), timestamp_ms=0, kraft_version=0, voters=None, step=lambda: None)


def test_a_chain_is_found_again(tmp_path: Path) -> None:
    files = IncrementFiles(tmp_path)
    write(files, 10, 20, (b"a", b"1"))
    write(files, 20, 30, (b"a", None))
    write(files, 99, 40)
    assert files.chain(at(10)) == [at(20), at(30)]
    again = IncrementFiles(tmp_path)
    again.find()
    assert (again.chain(at(10)), again.chain(at(20)), again.chain(at(5))) == ([at(20), at(30)], [at(30)], [])
    sizes = sum((tmp_path / names.increment_name(at(end))).stat().st_size for end in (20, 30))
    assert again.size_of(again.chain(at(10))) == sizes
    with again.open(at(30)) as reader:
        assert list(reader.changes()) == [(b"a", None)]


def test_one_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    files = IncrementFiles(tmp_path)
    with pytest.raises(ConfigError):
        write(files, 10, 20, (b"b", b"1"), (b"a", b"1"))
    assert list(tmp_path.iterdir()) == []
    assert files.chain(at(10)) == []


def test_what_is_damaged_is_removed_and_not_missed(tmp_path: Path) -> None:
    write(IncrementFiles(tmp_path), 10, 20, (b"a", b"1"))
    path = tmp_path / names.increment_name(at(20))
    path.write_bytes(path.read_bytes()[:-1])
    files = IncrementFiles(tmp_path)
    files.find()
    assert files.chain(at(10)) == []
    assert not path.exists()


def test_a_checkpoint_makes_those_before_it_needless(tmp_path: Path) -> None:
    files = IncrementFiles(tmp_path)
    for base, end in ((10, 20), (20, 30), (30, 40)):
        write(files, base, end)
    files.drop_up_to(at(30))
    assert [path.name for path in tmp_path.iterdir()] == [names.increment_name(at(40))]
    assert files.chain(at(30)) == [at(40)]


def test_what_leads_elsewhere_from_the_same_base_goes(tmp_path: Path) -> None:
    """A restart took the first increment only, since the second one was beyond what it knew to be committed."""
    files = IncrementFiles(tmp_path)
    write(files, 50, 60)
    write(files, 60, 80)
    again = IncrementFiles(tmp_path)
    again.find()
    for base, end in ((60, 100), (100, 110), (110, 120)):
        write(again, base, end)

    assert again.chain(at(50)) == [at(60), at(100), at(110), at(120)]
    assert len(list(tmp_path.iterdir())) == 4


def write_many(files: IncrementFiles) -> None:
    for base in range(60):
        write(files, base, base + 1)


def test_increments_are_given_up_while_others_are_written(tmp_path: Path) -> None:
    """Giving up is the loop's, writing that of a thread in the background."""
    files = IncrementFiles(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            writing = pool.submit(write_many, files)
            while not writing.done():
                files.drop_up_to(at(10))
                assert files.size_of(files.chain(at(10))) >= 0
            writing.result()
        finally:
            sys.setswitchinterval(interval)
    files.drop_up_to(at(10))

    assert len(files.chain(at(10))) == 50
    assert len(list(tmp_path.iterdir())) == 50
