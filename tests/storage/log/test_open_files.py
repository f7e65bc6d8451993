from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlib.storage import files
from tests.storage.builders import a_batch, a_chain, append, offsets, some_batches

TEN = some_batches(*[1] * 10, size=200)


def test_whatever_comes_in_the_middle_of_a_sync_what_was_written_before_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any of its steps the loop may begin another segment. The files hold what the memory of this test says."""
    sync_data, synced = files.sync_data, set()

    def noting(between: Callable[[], object]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            synced.add(os.fstat(descriptor).st_ino)
            between()
            sync_data(descriptor)

        return sync

    chain = a_chain(tmp_path)
    end = 0
    for round in range(20):
        count = 1 + round % 5
        append(chain, some_batches(*[1] * count, base_offset=end, size=200))
        end += count
        files_before = {path.stat().st_ino for path in tmp_path.glob("*.log")}
        written_after_last = files_before - synced if round else files_before

        def more() -> None:
            nonlocal end
            append(chain, some_batches(1, 1, base_offset=end, size=200))
            end += 2

        monkeypatch.setattr(files, "sync_data", noting(more))
        chain.open_files.sync()
        assert written_after_last <= synced
    assert offsets(chain.scan()) == [(n, 1) for n in range(end)]


def test_reserved_space_is_given_back_by_a_segment_that_is_full(tmp_path: Path) -> None:
    chain = a_chain(tmp_path, segment_bytes=10_000, reserve_bytes=1 << 20)
    append(chain, TEN[:1])
    chain.open_files.sync()
    chain.open_files.tidy(chain.open_files.condemned_count, chain.active)
    first = tmp_path / f"{0:020d}.log"
    reserved = first.stat().st_blocks * 512
    append(chain, some_batches(*[1] * 60, base_offset=1, size=200))
    chain.open_files.sync()

    assert first.stat().st_size < 10_000
    if reserved > 1 << 16:  # where the file system can reserve at all
        assert first.stat().st_blocks * 512 < 1 << 16


def test_space_that_cannot_be_reserved_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an append that finds no space is."""
    chain = a_chain(tmp_path, reserve_bytes=1 << 20)

    def full(*_: int) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "reserve", full)
    append(chain, TEN[:1])
    chain.open_files.sync()
    chain.open_files.tidy(chain.open_files.condemned_count, chain.active)

    assert "no 1048576 bytes can be reserved" in caplog.text
    append(chain, TEN[1:2])


def test_a_clean_end_leaves_the_caches_of_the_last_segment(tmp_path: Path) -> None:
    chain = a_chain(tmp_path)
    append(chain, TEN[:2])
    chain.close(2)
    chain.close(None)

    assert sorted(path.name[18:] for path in tmp_path.iterdir()) == [
        "00.index",
        "00.log",
        "00.timeindex",
        "02.snapshot",
    ]
    assert a_batch(0, size=200).size * 2 == (tmp_path / f"{0:020d}.log").stat().st_size
