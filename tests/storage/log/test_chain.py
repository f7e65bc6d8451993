from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kraftlib.errors import StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage import files
from kraftlib.storage.damage.recovery import recover
from kraftlib.storage.log.chain import SegmentChain, SegmentSettings
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.spare import Spare
from kraftlib.storage.reserve import Reserve
from tests.storage.builders import a_batch, offsets, some_batches


def a_chain(directory: Path, *, segment_bytes: int = 1_000, reserve_bytes: int = 0) -> SegmentChain:
    """Return a chain whose segments hold three batches of 200 bytes each."""
    settings = SegmentSettings(
        spare=Spare(directory, size=0, file_mode=0o600),
        segment_bytes=segment_bytes,
        segment_ms=1 << 40,
        file_mode=0o600,
        reserve_bytes=reserve_bytes,
        reserve=Reserve(directory, size=0),
    )
    log = recover(directory, file_mode=0o600)
    return SegmentChain(directory, log.segments, settings, mark=log.mark)


def append(chain: SegmentChain, batches: Sequence[Batch]) -> None:
    for batch in batches:
        chain.append([batch], batch.size)


def segments(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


TEN = some_batches(*[1] * 10, size=200)


def test_what_is_written_together_stays_together(tmp_path: Path) -> None:
    """One call, one write, one segment, be it larger than a segment may be."""
    chain = a_chain(tmp_path)
    chain.append(TEN[:1], TEN[0].size)
    chain.append(TEN[1:], sum(batch.size for batch in TEN[1:]))

    assert segments(tmp_path) == [0, 1]


def test_every_batch_is_read_from_whatever_segment_it_is_in(tmp_path: Path) -> None:
    chain = a_chain(tmp_path)
    append(chain, TEN)
    before = [offsets(chain.read(n, 1)) for n in range(10)]
    chain.sync()

    assert before == [[(n, 1)] for n in range(10)]
    assert [offsets(chain.read(n, 1)) for n in range(10)] == before
    assert offsets(chain.scan()) == offsets(TEN)


def test_the_last_segment_is_never_deleted(tmp_path: Path) -> None:
    chain = a_chain(tmp_path)
    append(chain, TEN[:6])
    chain.sync()
    chain.delete_below(6)
    assert segments(tmp_path) == [0, 3]
    chain.tidy(chain.condemned_count)

    assert segments(tmp_path) == [3]
    append(chain, TEN[6:])
    assert offsets(chain.read(3, 1 << 20)) == offsets(TEN[3:6])


def test_a_truncation_into_a_full_segment_lets_it_grow_again(tmp_path: Path) -> None:
    chain = a_chain(tmp_path, segment_bytes=9_000)
    append(chain, some_batches(*[1] * 60, size=200))
    chain.sync()
    assert segments(tmp_path) == [0, 33]

    mark = chain.mark_at(25, EpochTable())
    chain.truncate(mark)
    assert mark.end_offset == 25
    append(chain, some_batches(*[2] * 5, base_offset=25, size=200))
    chain.close(30)
    again = a_chain(tmp_path, segment_bytes=9_000)
    assert segments(tmp_path) == [0]
    assert offsets(again.scan())[20:] == [(n, 1) for n in range(20, 25)] + [(n, 2) for n in range(25, 30)]


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
        chain.sync()
        assert written_after_last <= synced
    assert offsets(chain.scan()) == [(n, 1) for n in range(end)]


def test_reserved_space_is_given_back_by_a_segment_that_is_full(tmp_path: Path) -> None:
    chain = a_chain(tmp_path, segment_bytes=10_000, reserve_bytes=1 << 20)
    append(chain, TEN[:1])
    chain.sync()
    chain.tidy(chain.condemned_count)
    first = tmp_path / f"{0:020d}.log"
    reserved = first.stat().st_blocks * 512
    append(chain, some_batches(*[1] * 60, base_offset=1, size=200))
    chain.sync()

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
    chain.sync()
    chain.tidy(chain.condemned_count)

    assert "no 1048576 bytes can be reserved" in caplog.text
    append(chain, TEN[1:2])


def test_a_segment_that_is_there_already_is_not_overwritten(tmp_path: Path) -> None:
    chain = a_chain(tmp_path)
    append(chain, TEN[:3])
    stranger = tmp_path / f"{3:020d}.log"
    stranger.write_bytes(b"not ours")

    with pytest.raises(StorageError, match="File exists"):
        append(chain, TEN[3:4])
    assert stranger.read_bytes() == b"not ours"


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
