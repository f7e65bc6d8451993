from __future__ import annotations

from pathlib import Path

from kraftlib.records.checksum import crc32c
from kraftlib.storage.damage.recovered_log import RecoveredLog
from kraftlib.storage.log.epochs import EpochTable
from kraftlib.storage.log.hole import Hole
from kraftlib.storage.log.index import SegmentIndex
from kraftlib.storage.log.segment import Segment
from kraftlib.storage.log.sync_point import Mark, SyncPoint
from kraftlib.types import EpochStart
from tests.storage.builders import a_batch, some_batches


def a_log(directory: Path) -> RecoveredLog:
    log = RecoveredLog(directory, [])
    segment = Segment(directory, 0)
    segment.index = SegmentIndex(0)
    log.segments.append(segment)
    return log


def test_what_was_read_is_counted(tmp_path: Path) -> None:
    log, batches = a_log(tmp_path), some_batches(1, 1, 3)
    seen = []
    log.watch = lambda segment, batch: seen.append((segment.base_offset, batch.base_offset))
    for batch in batches:
        log.take(log.segments[0], batch)

    assert log.end_offset == 3
    assert log.segments[0].size == sum(batch.size for batch in batches)
    assert log.segments[0].crc == crc32c(b"".join(bytes(batch.data) for batch in batches))
    assert log.epochs.starts() == (EpochStart(epoch=1, start_offset=0), EpochStart(epoch=3, start_offset=2))
    assert log.epoch_place == (batches[0].size + batches[1].size, 2)
    assert seen == [(0, 0), (0, 1), (0, 2)]


def test_only_below_the_noted_end_can_a_batch_contradict_the_note(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    log.noted_epochs, log.noted_end = EpochTable([EpochStart(epoch=2, start_offset=0)]), 5

    assert not log.contradicts(a_batch(4, 2))
    assert log.contradicts(a_batch(4, 3))
    assert not log.contradicts(a_batch(5, 3))


def test_only_behind_an_exact_note_of_a_log_without_holes_nothing_was_acknowledged(tmp_path: Path) -> None:
    log, batch = a_log(tmp_path), a_batch(0)
    log.take(log.segments[0], batch)

    def noted(end_offset: int, *, exact: bool) -> bool:
        mark = Mark(0, 1, batch.size * end_offset, end_offset, 1, 0)
        log.sync_point = SyncPoint(mark=mark, mtime_ns=0, generation=1, is_exact=exact)
        return log.is_unacknowledged

    assert not log.is_unacknowledged
    assert noted(1, exact=True)
    assert not noted(1, exact=False)
    assert not noted(2, exact=True)
    hole = Hole(segment=0, position=0, start_offset=0, end_offset=1, reason="bad")
    log.holes.append(hole)
    assert not noted(1, exact=True)
    assert log.hole_of(log.segments[0]) == hole
    assert log.hole_of(Segment(tmp_path, 7)) is None
