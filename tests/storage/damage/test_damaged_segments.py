"""Damage that a stored snapshot makes up for: the log begins behind it, in a segment of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.testing.log_contract import read_all
from kraftlib.types import OffsetAndEpoch, OffsetRange
from tests.storage.builders import store_whole_snapshot
from tests.storage.damage.test_repair import BATCHES, SIZE, a_log, fill, forget_prefix, opened, overwrite, segments

SNAPSHOT = OffsetAndEpoch(offset=30, epoch=3)
"""Amid the second segment."""


def with_snapshot(directory: Path) -> None:
    log = a_log(directory, close=False)
    receive_snapshot(log)
    log.close()


def receive_snapshot(log: FileReplicatedLog) -> None:
    store_whole_snapshot(log, SNAPSHOT.offset, SNAPSHOT.epoch)


def spoil(directory: Path, offset: int, *, within: int = 100, data: bytes = b"????") -> None:
    """Damage the batch of this offset."""
    path = max(path for path in segments(directory) if int(path.stem) <= offset)
    overwrite(path, (offset - int(path.stem)) * SIZE + within, data)


def is_the_rest(log: FileReplicatedLog) -> bool:
    return [bytes(batch.data) for batch in read_all(log)] == [bytes(batch.data) for batch in BATCHES[30:]]


def is_the_rest_now_and_after_a_restart(log: FileReplicatedLog, directory: Path) -> None:
    assert is_the_rest(log)
    log.close()
    log = opened(directory)
    assert log.holes() == ()
    assert is_the_rest(log)
    log.close()


@pytest.mark.parametrize("first", [0, 5, 20, 27, 29])
@pytest.mark.parametrize("is_known", [True, False])
def test_what_a_snapshot_has_is_not_missing(tmp_path: Path, first: int, is_known: bool) -> None:
    with_snapshot(tmp_path)
    spoil(tmp_path, first)
    if is_known:
        log = opened(tmp_path)  # it reads nothing, until somebody does
        log.find_damage(first)
    else:
        forget_prefix(tmp_path)
        log = opened(tmp_path)

    assert log.holes() == ()
    assert log.start_offset == 30
    assert is_the_rest(log)
    log.append([])
    log.close()
    with_nothing_missing = opened(tmp_path)
    assert with_nothing_missing.holes() == ()
    assert is_the_rest(with_nothing_missing)
    with_nothing_missing.close()


def test_of_damage_across_the_end_of_the_snapshot_only_what_is_behind_is_missing(tmp_path: Path) -> None:
    with_snapshot(tmp_path)
    spoil(tmp_path, 28, within=3, data=b"?" * (4 * SIZE))
    forget_prefix(tmp_path)
    log = opened(tmp_path)

    assert list(log.holes()) == [OffsetRange(30, 33)]
    fill(log)
    is_the_rest_now_and_after_a_restart(log, tmp_path)


def test_a_snapshot_that_comes_later_and_ends_amid_what_is_missing_leaves_the_rest_of_it(tmp_path: Path) -> None:
    a_log(tmp_path)
    spoil(tmp_path, 28, within=3, data=b"?" * (4 * SIZE))
    forget_prefix(tmp_path)
    log = opened(tmp_path)
    assert list(log.holes()) == [OffsetRange(28, 33)]

    receive_snapshot(log)
    log.delete_before(SNAPSHOT)
    log.flush()
    assert (log.start_offset, list(log.holes())) == (30, [OffsetRange(30, 33)])
    fill(log)
    is_the_rest_now_and_after_a_restart(log, tmp_path)


def test_no_hole_outlives_the_segment_that_it_is_in(tmp_path: Path) -> None:
    """Batches of the second segment stand in the first one: their offsets reach beyond the snapshot."""
    with_snapshot(tmp_path)
    first, second = segments(tmp_path)[:2]
    at = (33 - int(second.stem)) * SIZE
    overwrite(first, 0, second.read_bytes()[at : at + 3 * SIZE])
    log = opened(tmp_path)

    assert log.find_damage(0) == ()
    assert log.start_offset == 30
    is_the_rest_now_and_after_a_restart(log, tmp_path)


def test_a_snapshot_that_is_damaged_itself_makes_up_for_nothing(tmp_path: Path) -> None:
    with_snapshot(tmp_path)
    log = opened(tmp_path)
    spoil(tmp_path, 5)
    overwrite(next(tmp_path.glob("*30-*.checkpoint")), 200, b"????")

    assert list(log.find_damage(5)) == [OffsetRange(5, 6)]
    assert log.start_offset == 0
    log.close()


def test_damage_below_the_start_does_not_hide_what_stands_behind_it(tmp_path: Path) -> None:
    with_snapshot(tmp_path)
    log = opened(tmp_path)
    log.delete_before(SNAPSHOT)
    log.flush()
    spoil(tmp_path, 25)

    assert log.find_damage(30) == ()
    assert is_the_rest(log)
    log.close()


def test_damage_that_is_cut_off_with_a_segment_behind_it_does_no_harm(tmp_path: Path) -> None:
    a_log(tmp_path)
    spoil(tmp_path, 35)
    log = opened(tmp_path)
    log.find_damage(35)

    assert log.truncate(35) == 35
    assert log.holes() == ()
    assert [bytes(batch.data) for batch in read_all(log)] == [bytes(batch.data) for batch in BATCHES[:35]]
    log.close()


def test_a_scrub_names_the_segment_that_is_damaged_even_if_its_bytes_count_on_beyond_it(tmp_path: Path) -> None:
    a_log(tmp_path)
    log = opened(tmp_path)
    first, second = segments(tmp_path)[:2]
    with first.open("ab") as file:
        file.write(second.read_bytes()[: 2 * SIZE] + b"?" * SIZE)
    log._log.segments.present[0].size += 3 * SIZE
    findings = [found for found in log.scrub(lambda: None) if not isinstance(found, int)]

    assert [found.offset for found in findings] == [int(second.stem) - 1]
    log.close()
