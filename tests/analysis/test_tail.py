"""Following a log that grows: each record once, whatever the steps, and no place that is not what it was."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlib.analysis.tail import BehindError, Limits, LogTail, LostLogError, Piece, parse_place, place_text
from kraftlib.archive.directory import ArchiveDirectory
from kraftlib.errors import CorruptBatchError
from kraftlib.records.batch import read_batches
from kraftlib.types import OffsetAndEpoch
from tests.archive.archives import a_writer, an_archive, store_checkpoint
from tests.storage.builders import a_batch, some_batches

BEGIN = OffsetAndEpoch(offset=0, epoch=0)
BATCHES = some_batches(1, 1, 1, 2, 2, 5, 5, 5, 6, 6, records=3, size=50)


def at(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(offset=offset, epoch=epoch)


def bytes_of(pieces: list[Piece]) -> bytes:
    return b"".join(Path(piece.path).read_bytes()[piece.start : piece.end] for piece in pieces)


@settings(max_examples=60)
@given(
    written=st.lists(st.integers(0, 10), max_size=4),
    segment_bytes=st.integers(100, 2_000),
    records=st.one_of(st.none(), st.integers(1, 12)),
    size=st.one_of(st.none(), st.integers(1, 1_500)),
    forgets=st.booleans(),
)
def test_steps_of_any_size_over_any_segments_give_every_batch_once(
    written: list[int],
    segment_bytes: int,
    records: int | None,
    size: int | None,
    forgets: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    archive = an_archive(tmp_path_factory.mktemp("tail"))
    tail, limits = LogTail(archive.partition), Limits(records=records, bytes=size)
    place, data = BEGIN, b""
    for upto in [*written, len(BATCHES)]:
        with a_writer(archive, segment_bytes=segment_bytes) as writer:
            writer.write(BATCHES[:upto])
        while (end := tail.advance(place, limits)) != place:
            if forgets:
                tail = LogTail(archive.partition)  # as after a restart: it is planned again, from the places alone
            piece = bytes_of(tail.pieces(place, end))
            batches = read_batches(piece)
            assert (batches[0].base_offset, batches[-1].end_offset) == (place.offset, end.offset)
            if len(batches) > 1:
                assert records is None or sum(batch.record_count for batch in batches) <= records
                assert size is None or len(piece) <= size
            place, data = end, data + piece
    assert data == b"".join(batch.data for batch in BATCHES)
    assert tail.end() == place == at(30, 6)


@pytest.fixture
def archive(tmp_path: Path) -> ArchiveDirectory:
    made = an_archive(tmp_path)
    with a_writer(made, segment_bytes=800) as writer:
        writer.write(BATCHES)
    return made


def test_an_end_is_not_passed(archive: ArchiveDirectory) -> None:
    tail = LogTail(archive.partition)

    assert tail.advance(BEGIN, end=12) == at(12, 2)
    assert tail.advance(BEGIN, end=11) == at(9, 1)
    assert tail.advance(at(9, 1), end=11) == at(9, 1)


def test_a_batch_that_is_being_written_is_not_there_yet(archive: ArchiveDirectory) -> None:
    last = archive.partition / f"{archive.segment_offsets()[-1]:020d}.log"
    more = bytes(a_batch(30, 6, size=100).data)
    for size in range(1, len(more)):
        whole = last.read_bytes()
        last.write_bytes(whole + more[:size])
        assert LogTail(archive.partition).advance(at(30, 6)) == at(30, 6)
        last.write_bytes(whole)


def test_a_place_with_another_epoch_is_another_log(archive: ArchiveDirectory) -> None:
    for tail in (LogTail(archive.partition), seen := LogTail(archive.partition)):
        if tail is seen:
            tail.advance(BEGIN)
        with pytest.raises(LostLogError, match="the record before it is of epoch 2 there"):
            tail.advance(at(12, 4))


def test_a_place_beyond_the_end_is_behind_and_not_a_step_back(archive: ArchiveDirectory) -> None:
    tail = LogTail(archive.partition)
    with pytest.raises(BehindError, match="the log ends at offset 30"):
        tail.advance(at(33, 6))
    with pytest.raises(BehindError, match="the log ends at offset 30"):
        tail.pieces(at(27, 6), at(33, 6))
    with pytest.raises(LostLogError, match="lies before"):
        tail.pieces(at(27, 6), at(12, 2))


def test_a_place_amid_a_batch_is_no_place(archive: ArchiveDirectory) -> None:
    with pytest.raises(LostLogError, match="amid a batch"):
        LogTail(archive.partition).advance(at(13, 2))
    with pytest.raises(LostLogError):
        LogTail(archive.partition).pieces(at(9, 1), at(13, 2))


def test_an_archive_that_is_empty_has_nothing_yet(tmp_path: Path) -> None:
    tail = LogTail(an_archive(tmp_path).partition)

    assert tail.advance(BEGIN) == tail.end() == BEGIN
    assert tail.pieces(BEGIN, BEGIN) == []
    with pytest.raises(BehindError):
        tail.advance(at(5, 1))


@pytest.fixture
def with_gap(tmp_path: Path) -> ArchiveDirectory:
    """Records to 6, a checkpoint of 100@4, records from there."""
    made = an_archive(tmp_path)
    with a_writer(made) as writer:
        writer.write(BATCHES[:2])
        writer.begin_after(store_checkpoint(made, 100, 4))
        writer.write([a_batch(100, epoch=4)])
    return made


def test_a_gap_is_an_error_unless_a_checkpoint_may_stand_for_it(with_gap: ArchiveDirectory) -> None:
    tail = LogTail(with_gap.partition)
    assert tail.advance(BEGIN) == at(6, 1)
    with pytest.raises(LostLogError, match=r"lacks the records from offset 6 to 100.*onGap=snapshot"):
        tail.advance(at(6, 1))

    tail = LogTail(with_gap.partition, snapshots=True)
    places = [BEGIN]
    while (end := tail.advance(places[-1])) != places[-1]:
        places.append(end)
    assert places == [BEGIN, at(6, 1), at(100, 4), at(101, 4)]
    for forgetting in (tail, LogTail(with_gap.partition, snapshots=True)):
        pieces = [forgetting.pieces(a, b) for a, b in itertools.pairwise(places)]
        assert [[piece.is_checkpoint for piece in step] for step in pieces] == [[False], [True], [False]]
    assert tail.end() == at(101, 4)


def test_what_lies_behind_a_gap_is_found_without_what_lies_before_it(with_gap: ArchiveDirectory) -> None:
    tail = LogTail(with_gap.partition)
    assert [tail.before(offset) for offset in (0, 6, 99, 100, 101)] == [BEGIN, BEGIN, BEGIN, at(100, 4), at(100, 4)]
    assert tail.advance(tail.before(101)) == at(101, 4)


def test_a_gap_without_its_checkpoint_is_an_error(with_gap: ArchiveDirectory) -> None:
    (with_gap.partition / f"{100:020d}-{4:010d}.checkpoint").unlink()
    with pytest.raises(LostLogError, match="lacks the records"):
        LogTail(with_gap.partition, snapshots=True).advance(at(6, 1))


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_place_before_which_nothing_tells_the_epoch_is_an_error_and_nothing_is_passed_over(
    snapshots: bool, with_gap: ArchiveDirectory, tmp_path: Path
) -> None:
    """Behind it there is another gap: a step over that one would leave out the record between the two."""
    with a_writer(with_gap) as writer:
        writer.begin_after(store_checkpoint(with_gap, 200, 5))
        writer.write([a_batch(200, epoch=5)])
    late = an_archive(tmp_path / "late")
    with a_writer(late) as writer:
        writer.begin_after(store_checkpoint(late, 100, 4))
        writer.write([a_batch(100, epoch=4)])

    for archive, last in ((with_gap, 200), (with_gap, 100), (late, 100)):
        tail = LogTail(archive.partition, snapshots=snapshots)
        with pytest.raises(LostLogError, match=rf"no place {last}@3 .*: the record before it is not there"):
            tail.advance(at(last, 3))
    (late.partition / f"{100:020d}-{4:010d}.checkpoint").unlink()
    with pytest.raises(LostLogError, match=r"no place 100@4 .*no checkpoint of that id stands for it"):
        LogTail(late.partition, snapshots=snapshots).advance(at(100, 4))


def test_a_hole_within_a_segment_is_damage(archive: ArchiveDirectory) -> None:
    first = archive.partition / f"{0:020d}.log"
    data = first.read_bytes()
    first.write_bytes(data[: BATCHES[0].size] + data[2 * BATCHES[0].size :])

    with pytest.raises(CorruptBatchError, match="base offset 6, expected is 3"):
        LogTail(archive.partition).advance(BEGIN)


def test_a_place_reads_back_and_its_text_has_one_form() -> None:
    assert list(place_text(at(5, 2)).items()) == [("v", 1), ("epoch", 2), ("offset", 5)]
    assert parse_place(place_text(at(5, 2))) == at(5, 2)


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        5,
        {"v": 2, "epoch": 1, "offset": 1},
        {"v": 1, "epoch": -1, "offset": 1},
        {"v": 1, "epoch": "1", "offset": 1},
    ],
)
def test_what_is_no_place_is_refused(told: object) -> None:
    with pytest.raises(LostLogError, match="the checkpoint of the query"):
        parse_place(told)
