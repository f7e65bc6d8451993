from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kraftlib.storage.damage.recovered_log import RecoveredLog
from kraftlib.storage.damage.scan import scan_segment
from tests.storage.builders import a_batch, some_batches

BATCHES = some_batches(*[1] * 9, *[2] * 3)


def scanned(directory: Path, *segments: tuple[int, Sequence[bytes | memoryview]]) -> RecoveredLog:
    log = RecoveredLog(directory, [])
    for base_offset, parts in segments:
        (directory / f"{base_offset:020d}.log").write_bytes(b"".join(bytes(part) for part in parts))
    for base_offset, _ in segments:
        scan_segment(log, base_offset)
    return log


def data(*numbers: int) -> list[bytes | memoryview]:
    return [BATCHES[number].data for number in numbers]


def broken(number: int) -> bytes:
    whole = bytearray(BATCHES[number].data)
    whole[-1] ^= 1
    return bytes(whole)


SIZE = BATCHES[0].size


def holes_of(log: RecoveredLog) -> list[tuple[int, int, int, int | None, bool]]:
    return [(h.segment, h.start_offset, h.end_offset, h.end_position, h.was_durable) for h in log.holes]


def test_a_whole_log_has_no_hole(tmp_path: Path) -> None:
    log = scanned(tmp_path, (0, data(0, 1, 2)), (3, data(3, 4)))

    assert holes_of(log) == []
    assert (log.end_offset, [segment.size for segment in log.segments]) == (5, [3 * SIZE, 2 * SIZE])
    assert log.bytes_read == 5 * SIZE


def test_a_bad_batch_is_a_hole_up_to_the_next_whole_one(tmp_path: Path) -> None:
    log = scanned(tmp_path, (0, [*data(0, 1), broken(2), *data(3, 4)]), (5, data(5)))

    assert holes_of(log) == [(0, 2, 3, 3 * SIZE, True)]
    assert log.end_offset == 6


def test_two_bad_places_in_one_segment_are_one_hole(tmp_path: Path) -> None:
    log = scanned(tmp_path, (0, [*data(0), broken(1), *data(2), broken(3), *data(4, 5)]))

    assert holes_of(log) == [(0, 1, 4, 4 * SIZE, True)]
    assert log.end_offset == 6


def test_bad_bytes_at_the_end_of_a_full_segment_reach_to_the_next(tmp_path: Path) -> None:
    log = scanned(tmp_path, (0, [*data(0), broken(1)]), (2, data(2)))

    assert holes_of(log) == [(0, 1, 2, None, False)]


def test_each_segment_has_a_hole_of_its_own(tmp_path: Path) -> None:
    log = scanned(tmp_path, (0, [*data(0), broken(1)]), (2, [broken(2), *data(3)]), (4, data(4)))

    assert holes_of(log) == [(0, 1, 2, None, False), (2, 2, 3, SIZE, True)]


def test_a_missing_segment_is_a_hole_of_the_one_before(tmp_path: Path) -> None:
    log = scanned(tmp_path, (0, data(0, 1)), (4, data(4)))

    assert holes_of(log) == [(0, 2, 4, None, False)]


def test_a_batch_in_the_wrong_place_is_skipped(tmp_path: Path) -> None:
    """Of an older epoch than what stands before it, or of an offset that is there already."""
    log = scanned(tmp_path, (0, [*data(0, 1), a_batch(1, 2).data, *data(2)]))

    assert holes_of(log) == [(0, 2, 2, 3 * SIZE, True)]
