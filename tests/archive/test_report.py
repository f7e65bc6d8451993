"""What an archive says of itself, and that nothing wrong in it goes unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.archive.directory import ArchiveDirectory
from kraftlib.archive.report import Range, describe, verify
from tests.archive.archives import a_writer, an_archive, store_checkpoint
from tests.storage.builders import a_batch, some_batches


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveDirectory:
    """Three segments, a gap with a checkpoint, and a segment behind it."""
    made = an_archive(tmp_path)
    with a_writer(made, segment_bytes=10_000) as writer:
        writer.write(some_batches(*[1] * 200, size=80))
        writer.begin_after(store_checkpoint(made, 1_000, 2))
        writer.write([a_batch(1_000, epoch=2)])
    return made


def test_ranges_gaps_and_checkpoints_are_told(archive: ArchiveDirectory) -> None:
    told = describe(archive)

    assert told.ranges == (Range(start_offset=0, end_offset=200), Range(start_offset=1_000, end_offset=1_001))
    assert told.gaps == (Range(start_offset=200, end_offset=1_000),)
    assert [str(checkpoint) for checkpoint in told.checkpoints] == ["1000@2"]
    assert (told.segments, told.torn_bytes) == (len(archive.segment_offsets()), 0)
    assert told.log_bytes == sum(path.stat().st_size for path in archive.partition.glob("*.log"))
    assert told.to_dict()["gaps"] == ({"start_offset": 200, "end_offset": 1_000},)


def test_a_batch_that_is_being_written_is_told_and_is_no_problem_then(archive: ArchiveDirectory) -> None:
    last = archive.partition / f"{1_000:020d}.log"
    last.write_bytes(last.read_bytes() + bytes(a_batch(1_001, epoch=2).data)[:70])

    assert describe(archive).torn_bytes == 70
    assert verify(archive, is_written=True).problems == []
    assert len(verify(archive).problems) == 1


def test_a_whole_archive_is_counted_and_found_well(archive: ArchiveDirectory) -> None:
    read: list[int] = []
    found = verify(archive, on_bytes=read.append)

    assert (found.batches, found.records, found.checkpoints, found.gaps) == (201, 201, 1, 1)
    assert found.problems == []
    assert (
        sum(read)
        == found.bytes
        == sum(
            p.stat().st_size for p in archive.partition.iterdir() if p.suffix != ".index" and p.suffix != ".timeindex"
        )
    )


def test_every_flipped_byte_that_a_checksum_covers_is_found(archive: ArchiveDirectory) -> None:
    last = archive.partition / f"{1_000:020d}.log"
    whole = last.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        last.write_bytes(damaged)
        found = verify(archive).problems
        # Only a later epoch can stand there unnoticed: it is outside the checksum, and nothing contradicts it.
        assert found or 12 <= position < 16, position


def test_missing_segments_checkpoints_and_records_are_problems(archive: ArchiveDirectory) -> None:
    (archive.partition / f"{1_000:020d}-{2:010d}.checkpoint").unlink()
    assert verify(archive).problems == ["offsets 200 to 1000 are missing, and no checkpoint ends there"]

    second = archive.segment_offsets()[1]
    (archive.partition / f"{second:020d}.log").unlink()
    assert len(verify(archive).problems) == 2


def test_a_checkpoint_without_its_footer_is_a_problem(archive: ArchiveDirectory) -> None:
    (path,) = archive.partition.glob("*.checkpoint")
    data = path.read_bytes()[:-75]
    path.unlink()
    path.write_bytes(data)

    assert ["without its footer" in problem for problem in verify(archive).problems] == [True]


def test_an_epoch_that_falls_is_a_problem(tmp_path: Path) -> None:
    made = an_archive(tmp_path)
    batches = [a_batch(0, epoch=3), a_batch(1, epoch=2), a_batch(5, epoch=3)]
    (made.partition / f"{0:020d}.log").write_bytes(b"".join(batch.data for batch in batches))

    problems = verify(made).problems
    assert ["follows epoch 3" in problem or "expected is offset 2" in problem for problem in problems] == [True, True]
