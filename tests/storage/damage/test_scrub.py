from __future__ import annotations

import os
from pathlib import Path

from kraftlib.storage.damage.scrub import ScrubFinding
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.types import OffsetAndEpoch
from tests.storage.damage.test_repair import SEGMENT_BYTES, SIZE, a_log, change_an_epoch, overwrite, segments


def scrubbed(log: FileReplicatedLog) -> tuple[int, list[ScrubFinding]]:
    steps: list[None] = []
    items = list(log.scrub(lambda: steps.append(None)))
    findings = [item for item in items if isinstance(item, ScrubFinding)]
    read = sum(item for item in items if isinstance(item, int))
    assert len(steps) == len(items) - len(findings), "others have their turn after every batch"
    return read, findings


def test_a_whole_log_is_read_to_the_last_byte(tmp_path: Path) -> None:
    log = a_log(tmp_path, close=False)

    assert scrubbed(log) == (60 * SIZE, [])


def test_a_flipped_byte_is_found_where_it_is(tmp_path: Path) -> None:
    log = a_log(tmp_path, close=False)
    path = segments(tmp_path)[1]
    overwrite(path, 3 * SIZE + 100, b"?")
    _, findings = scrubbed(log)

    assert [(finding.path, finding.offset) for finding in findings] == [(path, int(path.stem) + 3)]


def test_a_changed_epoch_is_found_by_the_checksum_over_all_bytes(tmp_path: Path) -> None:
    """No batch covers it. What a clean end noted is enough for the next process."""
    a_log(tmp_path).close()
    change_an_epoch(tmp_path)
    log = FileReplicatedLog.open(tmp_path, segment_bytes=SEGMENT_BYTES)
    _, findings = scrubbed(log)

    assert log.bytes_read_at_start == 0
    assert [finding.offset for finding in findings] == [int(segments(tmp_path)[1].stem)]
    assert "not all bytes are what was written" in findings[0].reason


def test_a_misplaced_batch_is_found(tmp_path: Path) -> None:
    log = a_log(tmp_path, close=False)
    first = segments(tmp_path)[0]
    data = first.read_bytes()
    overwrite(first, 4 * SIZE, data[7 * SIZE : 8 * SIZE])

    assert [finding.offset for finding in scrubbed(log)[1]] == [4]


def test_a_segment_that_goes_meanwhile_is_no_damage(tmp_path: Path) -> None:
    log = a_log(tmp_path, close=False)
    work = log.scrub(lambda: None)
    next(work)
    for path in segments(tmp_path)[:2]:
        path.unlink()

    assert not [item for item in work if isinstance(item, ScrubFinding)]


def test_a_damaged_snapshot_is_found(tmp_path: Path) -> None:
    log = a_log(tmp_path, close=False)
    sink = log.create_snapshot(OffsetAndEpoch(offset=30, epoch=3))
    sink.write(b"no batch at all" * 10)
    sink.freeze()
    _, findings = scrubbed(log)

    assert [(finding.path.name, finding.offset) for finding in findings] == [(f"{30:020d}-{3:010d}.checkpoint", None)]


def test_a_sector_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    log = a_log(tmp_path, close=False)
    os.truncate(segments(tmp_path)[0], 6 * SIZE)

    assert [finding.offset for finding in scrubbed(log)[1]] == [6]
