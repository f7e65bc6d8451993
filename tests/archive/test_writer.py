"""The segments of an archive: what is written stays, byte for byte, whatever the process or the disk does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.archive.directory import ArchiveDirectory
from kraftlib.archive.writer import ArchiveWriter
from kraftlib.errors import CorruptBatchError, StorageError
from tests.archive.archives import a_writer, an_archive, log_bytes, store_checkpoint
from tests.storage.builders import a_batch, some_batches

BATCHES = some_batches(1, 1, 2, 2, 3, 5, records=3, size=40)
BYTES = b"".join(batch.data for batch in BATCHES)


def test_what_is_written_is_there_byte_for_byte_and_is_gone_on_from(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    for first in range(0, len(BATCHES), 2):
        with a_writer(archive) as writer:
            assert writer.end_offset == 3 * first
            writer.write(BATCHES[first : first + 2])

    assert log_bytes(archive) == BYTES


@settings(max_examples=25)
@given(calls=st.lists(st.integers(0, 6), max_size=6), segment_bytes=st.integers(100, 900))
def test_segments_of_any_size_written_in_any_portions_are_the_same_log(
    calls: list[int], segment_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    archive = an_archive(tmp_path_factory.mktemp("archive"))
    for upto in [*calls, len(BATCHES)]:
        with a_writer(archive, segment_bytes=segment_bytes) as writer:
            writer.write(BATCHES[:upto])  # what is there already is left out

    assert log_bytes(archive) == BYTES
    for path in archive.partition.glob("*.log"):
        assert path.stat().st_size <= max(segment_bytes, *(batch.size for batch in BATCHES))


def test_a_segment_that_is_closed_has_its_index(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive, segment_bytes=10_000) as writer:
        writer.write(some_batches(*[1] * 300, size=100))

    closed = archive.segment_offsets()[:-1]
    assert len(closed) > 2
    assert all((archive.partition / f"{base_offset:020d}.index").stat().st_size > 0 for base_offset in closed)


def test_a_process_may_be_killed_at_any_byte(tmp_path: Path) -> None:
    """Whatever is cut off at the end, the archive goes on from the last whole batch, to the same bytes."""
    archive, batches = an_archive(tmp_path), BATCHES[:2]
    whole = b"".join(batch.data for batch in batches)
    segment = archive.partition / f"{0:020d}.log"
    for size in range(len(whole)):
        segment.write_bytes(whole[:size])
        with a_writer(archive) as writer:
            assert writer.end_offset == (3 if size >= batches[0].size else 0)
            writer.write(batches)
        assert log_bytes(archive) == whole


def test_damage_amid_the_last_segment_is_no_torn_batch_and_nothing_is_cut(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.write(BATCHES)
    (segment,) = archive.partition.glob("*.log")
    damaged = bytearray(BYTES)
    damaged[BATCHES[0].size + 100] ^= 1
    segment.write_bytes(damaged)

    with pytest.raises(CorruptBatchError, match="no torn batch: nothing was changed") as caught:
        ArchiveWriter(archive)
    assert (caught.value.path, caught.value.position) == (segment, BATCHES[0].size)
    assert segment.read_bytes() == damaged


def test_a_whole_batch_in_the_wrong_place_is_damage(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.write(BATCHES[:1])
    (segment,) = archive.partition.glob("*.log")
    segment.write_bytes(BYTES + bytes(a_batch(77).data))

    with pytest.raises(CorruptBatchError, match="does not continue an archive that ends at 18"):
        ArchiveWriter(archive)


def test_batches_that_leave_a_hole_or_go_back_in_epochs_are_refused(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.write(BATCHES[:3])
        with pytest.raises(StorageError, match="does not continue the archive"):
            writer.write(BATCHES[4:])
    with a_writer(archive) as writer, pytest.raises(StorageError, match="lost committed records"):
        writer.write([a_batch(9, epoch=1)])

    assert log_bytes(archive) == b"".join(batch.data for batch in BATCHES[:3])


def test_behind_a_checkpoint_a_new_segment_begins_and_the_old_ones_stay(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.write(BATCHES[:2])
        writer.begin_after(store_checkpoint(archive, 100, 4))
        assert (writer.end_offset, writer.last_epoch) == (100, 4)
        writer.write([a_batch(100, epoch=4)])

    assert archive.segment_offsets() == [0, 100]
    assert ends(archive) == (101, 4)


def test_a_stop_between_a_checkpoint_and_its_segment_is_made_good(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.write(BATCHES[:2])
    store_checkpoint(archive, 100, 4)

    assert ends(archive) == (100, 4)
    assert archive.segment_offsets() == [0, 100]
    assert ends(archive) == (100, 4), "also when the new segment is still empty"


def test_a_checkpoint_that_the_archive_is_beyond_changes_nothing(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.write(BATCHES)
        writer.begin_after(store_checkpoint(archive, 3, 1))

    assert archive.segment_offsets() == [0]
    assert ends(archive) == (18, 5)


def test_the_epoch_of_an_archive_with_an_empty_last_segment_is_that_of_its_last_record(tmp_path: Path) -> None:
    archive = an_archive(tmp_path)
    with a_writer(archive) as writer:
        writer.write(BATCHES)
    (archive.partition / f"{18:020d}.log").touch()

    assert ends(archive) == (18, 5)


def ends(archive: ArchiveDirectory) -> tuple[int, int]:
    with a_writer(archive) as writer:
        return writer.end_offset, writer.last_epoch
