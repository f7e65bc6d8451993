from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlib.errors import CorruptBatchError, StorageError
from kraftlib.records.batch import Batch
from kraftlib.storage.log.segment import Segment, batches_in
from tests.storage.builders import a_batch, offsets, some_batches


def a_segment(directory: Path, batches: list[Batch], base_offset: int = 0) -> Segment:
    """Return a segment with a file, and no index."""
    segment = Segment(directory, base_offset)
    segment.path.write_bytes(b"".join(bytes(batch.data) for batch in batches))
    segment.size = segment.path.stat().st_size
    return segment


def test_a_read_finds_the_batch_that_contains_the_offset(tmp_path: Path) -> None:
    batches = some_batches(*[1] * 100, records=3, size=200)
    segment = a_segment(tmp_path, batches)
    size = batches[0].size

    for offset in (0, 1, 2, 3, 150, 299):
        assert offsets(segment.read(offset, 1)) == [(offset // 3 * 3, 1)]
    assert offsets(segment.read(150, 2 * size)) == [(150, 1), (153, 1)]
    assert segment.read(0, 1 << 30) == batches


def test_a_segment_whose_file_is_gone_cannot_be_read(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, some_batches(1, 1))
    segment.path.unlink()

    with pytest.raises(StorageError, match="cannot open"):
        segment.read(1, 1)


def test_the_segment_that_is_left_of_one_is_another_one(tmp_path: Path) -> None:
    """A read on the loop may have begun in the old one."""
    batches = some_batches(*[1] * 4)
    segment = a_segment(tmp_path, batches)
    kept = segment.cut_at(2 * batches[0].size, -1, is_growing=True)

    assert (kept.size, segment.size) == (2 * batches[0].size, 4 * batches[0].size)
    assert offsets(kept.read(0, 1 << 20)) == [(0, 1), (1, 1)]
    assert offsets(segment.read(0, 1 << 20)) == offsets(batches)


def test_reads_stop_at_the_size_of_the_segment(tmp_path: Path) -> None:
    """An append may be writing beyond it."""
    segment = a_segment(tmp_path, some_batches(1, 1))
    with segment.path.open("ab") as file:
        file.write(b"half a batch")

    assert offsets(segment.read(0, 1 << 20)) == [(0, 1), (1, 1)]


@given(chunk=st.integers(61, 3_000))
def test_batches_are_found_whatever_is_read_at_once(tmp_path_factory: pytest.TempPathFactory, chunk: int) -> None:
    batches = [*some_batches(1, 1), a_batch(2, size=1_500), *some_batches(2, 2, base_offset=3)]
    segment = a_segment(tmp_path_factory.mktemp("segment"), batches)
    descriptor = os.open(segment.path, os.O_RDONLY)

    assert list(batches_in(descriptor, segment.path, 0, segment.size, chunk=chunk)) == batches
    os.close(descriptor)


def test_bad_bytes_are_named_with_their_place(tmp_path: Path) -> None:
    batches = some_batches(1, 1, 1)
    segment = a_segment(tmp_path, batches)
    size = batches[0].size
    data = bytearray(segment.path.read_bytes())
    data[size + 70] ^= 1
    segment.path.write_bytes(data)

    with pytest.raises(CorruptBatchError, match=rf"00\.log, position {size}: the batch has CRC 0x") as caught:
        segment.read(1, 1)
    assert (caught.value.path, caught.value.position) == (segment.path, size)
    assert offsets(segment.read(0, 1)) == [(0, 1)]


@pytest.mark.parametrize("length", [1 << 30, 2**31 - 1, -1, 48])
def test_an_absurd_length_is_bad_and_not_allocated(length: int, tmp_path: Path) -> None:
    segment = a_segment(tmp_path, some_batches(1, 1, 1))
    data = bytearray(segment.path.read_bytes())
    data[8:12] = length.to_bytes(4, "big", signed=True)
    segment.path.write_bytes(data)
    segment.size = 2**31 - 1 if length == 1 << 30 else segment.size

    with pytest.raises(CorruptBatchError, match="position 0"):
        segment.read(0, 1)


def test_a_file_shorter_than_the_segment_is_bad(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, some_batches(1, 1))
    os.truncate(segment.path, segment.size - 1)

    with pytest.raises(CorruptBatchError, match=r"claims 88 bytes, 87 are there"):
        list(segment.batches())
    os.truncate(segment.path, 0)
    with pytest.raises(CorruptBatchError, match=r"position 0"):
        list(segment.batches())


def test_the_place_of_an_offset_is_that_of_its_batch(tmp_path: Path) -> None:
    batches = some_batches(1, 1, 2, records=2)
    segment = a_segment(tmp_path, batches)

    assert segment.locate(3) == (batches[0].size, 2)
    assert segment.locate(2) == (batches[0].size, 2)
    assert segment.locate(6) is None


def test_an_index_that_leads_astray_costs_time_and_nothing_else(tmp_path: Path) -> None:
    """It is a cache: its damage is no damage of the log."""
    batches = some_batches(*[1] * 200, size=100)
    segment = a_segment(tmp_path, batches)
    good = segment.rebuilt_index().offset_entries()

    for wrong in (good[:4] + (4_200).to_bytes(4, "big") + good[8:], good[8:12] + good[4:8] + good[16:], good[:7]):
        (tmp_path / "00000000000000000000.index").write_bytes(wrong)
        again = Segment(tmp_path, 0)
        again.size = segment.size
        assert [offsets(again.read(n, 1)) for n in range(200)] == [[(n, 1)] for n in range(200)]
        assert [again.locate(n) for n in range(200)] == [(n * batches[0].size, n) for n in range(200)]


@pytest.mark.parametrize("first", [0, 40], ids=["the first one", "one that the index names"])
def test_a_batch_that_says_that_it_is_a_later_one_is_not_read_for_that(first: int, tmp_path: Path) -> None:
    """Its checksum does not cover where it belongs: the segment does, and the index."""
    batches = some_batches(*[1] * 60, size=300)
    segment = a_segment(tmp_path, batches)
    place = sum(len(batch.data) for batch in batches[:first])
    if first:
        named = [offset for offset in range(60) if segment.index.position_before(offset) == place]
        while not named:
            first += 1
            place += len(batches[0].data)
            named = [offset for offset in range(60) if segment.index.position_before(offset) == place]
    with open(segment.path, "r+b") as file:
        file.seek(place)
        file.write((first + 2).to_bytes(8, "big"))

    with pytest.raises(CorruptBatchError):
        segment.read(first + 2, 1)


def test_index_files_are_written_found_and_removed(tmp_path: Path) -> None:
    segment = a_segment(tmp_path, some_batches(*[1] * 100, size=100))
    segment.index = segment.rebuilt_index()
    assert segment.lacks_index_files

    segment.write_index_files(mode=0o640)
    assert not segment.lacks_index_files
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*index")} == {0o640}

    segment.remove_index_files()
    assert os.listdir(tmp_path) == ["00000000000000000000.log"]
    segment.remove_files()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_the_disk_has_lost_is_made_again(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = a_segment(tmp_path, some_batches(*[1] * 100, size=200))
    segment.write_index_files(mode=0o600)
    entries, pread = len(segment.index), os.pread

    def failing(descriptor: int, size: int, position: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(suffix):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", failing)
    again = Segment(tmp_path, 0)
    again.size = segment.size

    assert again.resume_index(segment.size, entries=entries) == (suffix == ".timeindex")
    assert offsets(again.read(50, 1)) == [(50, 1)]
    assert len(again.index) == entries
