"""Damage and its repair as the core is told of them, of real files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlib.consensus import events as ev
from kraftlib.errors import CorruptBatchError
from kraftlib.runtime.log_repair import LogRepair, repair_of
from kraftlib.storage.file_log import FileReplicatedLog
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import OffsetRange
from tests.storage.damage.test_repair import BATCHES, SIZE, a_log, opened, overwrite, segments

DAMAGED = 5


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FileReplicatedLog]:
    """A log in whose sixth batch a byte is wrong, which nobody has seen yet."""
    a_log(tmp_path)
    opened_log = opened(tmp_path)
    overwrite(segments(tmp_path)[0], DAMAGED * SIZE + 100, b"?")
    yield opened_log
    opened_log.close()


def test_a_log_of_somebody_elses_is_repaired_only_if_it_says_that_it_can_be(log: FileReplicatedLog) -> None:
    assert repair_of(MemoryReplicatedLog()) is None
    assert isinstance(repair_of(log), LogRepair)


def test_damage_is_known_once_it_was_looked_at(log: FileReplicatedLog) -> None:
    repair = LogRepair(log)
    with pytest.raises(CorruptBatchError):
        log.read(DAMAGED, 1)
    assert not repair.is_known(DAMAGED)

    assert repair.look(DAMAGED) == ev.StorageFailed((OffsetRange(DAMAGED, DAMAGED + 1),), None)
    assert [offset for offset in range(10) if repair.is_known(offset)] == [DAMAGED]


def test_what_fills_only_a_part_says_how_far_and_the_rest_says_how_the_log_stands(tmp_path: Path) -> None:
    a_log(tmp_path)
    overwrite(segments(tmp_path)[0], DAMAGED * SIZE + 100, b"?")
    overwrite(segments(tmp_path)[0], (DAMAGED + 1) * SIZE + 100, b"?")
    log = opened(tmp_path)
    repair = LogRepair(log)
    repair.look(DAMAGED)

    first = repair.write([BATCHES[DAMAGED]])
    assert first == ev.RepairWritten(end_offset=DAMAGED + 1, epoch=1)
    assert repair.write([BATCHES[DAMAGED + 1]]) == ev.Repaired(
        holes=(), end_offset=60, epoch_starts=tuple(log.epoch_starts()), control_batches=()
    )
    assert not repair.is_known(DAMAGED)
    log.close()
