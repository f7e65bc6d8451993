"""Damage that is found while the log is in use, and what it takes along."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlib.errors import CorruptBatchError
from kraftlib.storage import names
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.snapshots.snapshot_files import FileSnapshotSink
from kraftlib.testing.log_contract import read_all
from kraftlib.types import OffsetAndEpoch, OffsetRange
from tests.storage.builders import a_batch, snapshot_bytes, some_batches, store_whole_snapshot
from tests.storage.damage.test_repair import (
    BATCHES,
    SIZE,
    a_log,
    change_an_epoch,
    cut_the_end,
    fill,
    flip,
    forget_prefix,
    opened,
    overwrite,
    segments,
)


def test_damage_that_is_read_is_found_without_a_restart(tmp_path: Path) -> None:
    log = a_log(tmp_path, close=False)
    flip(tmp_path)
    with pytest.raises(CorruptBatchError):
        log.read(5, 1)

    assert log.find_damage(5) == (OffsetRange(5, 6),)
    assert log.read(6, 1) == [BATCHES[6]]
    assert log.find_damage(6) == (OffsetRange(5, 6),)
    fill(log)
    log.append([a_batch(60, 4, size=200)])
    log.flush()
    assert read_all(log)[:-1] == BATCHES


def test_a_changed_epoch_is_found_without_a_restart(tmp_path: Path) -> None:
    log = a_log(tmp_path, close=False)
    change_an_epoch(tmp_path)

    assert log.find_damage(39) != ()
    fill(log)
    assert read_all(log) == BATCHES


def test_a_whole_segment_has_no_damage(tmp_path: Path) -> None:
    log = a_log(tmp_path, close=False)

    assert [log.find_damage(offset) for offset in (0, 30, 59)] == [(), (), ()]


def test_a_sector_that_cannot_be_read_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(tmp_path, close=False)
    pread = os.pread

    def failing(descriptor: int, size: int, position: int) -> bytes:
        if position <= 5 * SIZE < position + size and "log" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "Input/output error")
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", failing)
    with pytest.raises(CorruptBatchError, match="cannot be read: Input/output error"):
        log.read(5, 1)
    assert log.find_damage(5)


def test_a_truncation_takes_the_damage_behind_it_away(tmp_path: Path) -> None:
    a_log(tmp_path)
    holes = cut_the_end(tmp_path)
    forget_prefix(tmp_path)
    log = opened(tmp_path)

    assert log.truncate(holes[0].start_offset) == holes[0].start_offset
    assert log.holes() == ()
    assert read_all(log) == BATCHES[: holes[0].start_offset]
    log.close()
    assert FileReplicatedLog.open(tmp_path).end_offset == holes[0].start_offset


def test_a_truncation_leaves_the_damage_before_it(tmp_path: Path) -> None:
    a_log(tmp_path)
    flip(tmp_path)
    forget_prefix(tmp_path)
    log = opened(tmp_path)

    assert log.truncate(8) == 8
    assert log.holes() == (OffsetRange(5, 6),)
    fill(log)
    assert read_all(log) == BATCHES[:8]


def test_damage_that_a_truncation_comes_upon_is_found_by_the_next_start(tmp_path: Path) -> None:
    """Nothing else reads there before the next scrub, and every start would end in the same way."""
    a_log(tmp_path)
    flip(tmp_path)
    log = opened(tmp_path)
    assert log.holes() == ()
    with pytest.raises(CorruptBatchError):
        log.truncate(8)
    log.close()
    log = opened(tmp_path)

    assert log.holes() == (OffsetRange(5, 6),)
    assert (log.end_offset, log.truncate(8)) == (60, 8)


def test_a_log_grows_on_behind_a_segment_that_begins_with_damage(tmp_path: Path) -> None:
    """The age of a segment is that of its first batch."""
    a_log(tmp_path)
    last = segments(tmp_path)[-1]
    overwrite(last, 16, b"?")
    log = opened(tmp_path)
    assert log.holes() == ()
    log.append([a_batch(60, 4, size=200)])
    log.flush()

    assert log.read(60, 1) == [a_batch(60, 4, size=200)]
    assert log.find_damage(int(last.stem)) == (OffsetRange(int(last.stem), int(last.stem) + 1),)


def test_how_much_a_doubtful_tail_held_is_not_known(tmp_path: Path) -> None:
    a_log(tmp_path, close=False)
    last = segments(tmp_path)[-1]
    overwrite(last, last.stat().st_size - 20, b"?" * 20)
    (tmp_path / "kraftlib-sync.json").write_bytes(b"")
    log = opened(tmp_path)

    assert log.is_doubtful
    assert log.holes() == (OffsetRange(59, 60),)
    log.write_repair([BATCHES[59], a_batch(60, 4, size=200)])
    assert log.end_offset == 61
    assert read_all(log) == [*BATCHES, a_batch(60, 4, size=200)]


@pytest.mark.parametrize("place", ["its first batches", "behind its last batch"])
def test_of_a_segment_with_batches_of_the_next_one_all_is_missing_and_nothing_else(tmp_path: Path, place: str) -> None:
    a_log(tmp_path)
    first, second = segments(tmp_path)[:2]
    end = first.stat().st_size
    if place == "its first batches":
        overwrite(first, 0, second.read_bytes()[2 * SIZE : 5 * SIZE])
    else:
        overwrite(first, end, second.read_bytes()[: 3 * SIZE])
    log = opened(tmp_path)

    assert list(log.find_damage(0)) == [OffsetRange(0, int(second.stem))]
    fill(log)
    assert [bytes(batch.data) for batch in read_all(log)] == [bytes(batch.data) for batch in BATCHES]
    assert first.stat().st_size == end
    log.close()


def test_damage_that_is_found_before_a_hole_that_is_being_filled_is_filled_first(tmp_path: Path) -> None:
    a_log(tmp_path)
    second = segments(tmp_path)[1]
    overwrite(segments(tmp_path)[0], 5 * SIZE + 100, b"?")
    overwrite(second, 100, b"?" * 2 * SIZE)
    log = opened(tmp_path)
    begin = int(second.stem)
    assert list(log.find_damage(begin)) == [OffsetRange(begin, begin + 3)]
    assert not log.write_repair(BATCHES[begin : begin + 1])

    assert list(log.find_damage(5)) == [OffsetRange(5, 6), OffsetRange(begin, begin + 3)]
    fill(log)

    assert [bytes(batch.data) for batch in read_all(log)] == [bytes(batch.data) for batch in BATCHES]
    log.close()


def test_what_is_fetched_again_is_not_removed_for_its_name(tmp_path: Path) -> None:
    """Segments wait for the next flush to be removed; the snapshot that stood in for them is lost before that."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=500, keep_damage=True, tail_bytes=0)
    batches = some_batches(*[1] * 12, size=100)
    for batch in batches:
        log.append([batch])
    log.flush()
    snapshot_id = store_whole_snapshot(log, 8, 1)
    log.delete_before(snapshot_id)
    log.set_snapshot_aside(snapshot_id, "damaged")
    (hole,) = log.holes()
    assert log.write_repair(batches[hole.start_offset : hole.end_offset])
    log.append([a_batch(12, size=100)])
    log.flush()

    assert [batch.base_offset for batch in log.scan()] == list(range(13))


def test_nothing_is_looked_for_where_a_snapshot_stands_in(tmp_path: Path) -> None:
    """Whoever reads on the loop has met the damage before the log was begun behind it."""
    log = FileReplicatedLog.open(tmp_path, segment_bytes=500, keep_damage=True)
    log.append(some_batches(*[1] * 3, size=100))
    log.append(some_batches(*[1] * 3, base_offset=3, size=100))
    log.flush()
    snapshot_id = OffsetAndEpoch(offset=5, epoch=1)
    log.create_snapshot(snapshot_id).freeze()
    log.delete_before(snapshot_id)

    assert log.find_damage(1) == ()


def downloaded(directory: Path, offset: int, epoch: int) -> OffsetAndEpoch:
    """A snapshot of the leader has come, and was to take the place of the log when the replica stopped."""
    snapshot_id = OffsetAndEpoch(offset=offset, epoch=epoch)
    sink = FileSnapshotSink(directory, snapshot_id)
    sink.write(snapshot_bytes(snapshot_id))
    sink.freeze()
    forget_prefix(directory)
    return snapshot_id


def test_a_snapshot_of_a_later_epoch_replaces_a_log_that_has_holes(tmp_path: Path) -> None:
    """Nothing behind its end was ever committed, and the leader would have it cut below the start of the log."""
    a_log(tmp_path)
    flip(tmp_path)
    snapshot_id = downloaded(tmp_path, 40, 5)
    for _ in range(2):
        log = opened(tmp_path)

        assert (log.start_offset, log.end_offset, log.holes()) == (40, 40, ())
        assert (log.snapshots(), log.epoch_starts()) == ((snapshot_id,), ())
        log.close()


def test_a_damaged_snapshot_replaces_no_log_that_has_holes(tmp_path: Path) -> None:
    a_log(tmp_path)
    flip(tmp_path)
    snapshot_id = downloaded(tmp_path, 40, 5)
    path = tmp_path / names.checkpoint_name(snapshot_id)
    path.chmod(0o600)
    overwrite(path, 130, b"?")
    log = opened(tmp_path)

    assert (log.start_offset, log.end_offset, log.holes()) == (0, 60, (OffsetRange(5, 6),))


@pytest.mark.parametrize(
    ("damage", "offset", "epoch"),
    [(flip, 61, 5), (cut_the_end, 55, 5), (cut_the_end, 61, 5)],
    ids=["the snapshot is ahead", "the last record is missing", "both"],
)
def test_a_log_that_may_have_been_committed_keeps_its_end(
    damage: Callable[[Path], list[OffsetRange]], offset: int, epoch: int, tmp_path: Path
) -> None:
    """What is missing may be of the epoch of the snapshot, and acknowledged. The leader knows."""
    a_log(tmp_path)
    holes = damage(tmp_path)
    downloaded(tmp_path, offset, epoch)
    log = opened(tmp_path)

    assert (log.start_offset, log.end_offset, log.holes()) == (0, 60, tuple(holes))


def test_a_log_with_holes_begins_behind_them_at_a_snapshot_of_its_own(tmp_path: Path) -> None:
    a_log(tmp_path)
    flip(tmp_path)
    downloaded(tmp_path, 40, 3)
    log = opened(tmp_path)

    assert (log.start_offset, log.end_offset, log.holes()) == (40, 60, ())
    assert read_all(log) == BATCHES[40:]
