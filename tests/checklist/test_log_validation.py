"""Checklist section 12, log validation cases: what a leader's log says of a follower's position (MockLogTest)."""

from __future__ import annotations

import random

import pytest

from kraftlib.consensus.log_view import Diverging, LogView, NeedsSnapshot, Valid
from kraftlib.errors import InvariantError
from kraftlib.records.batch import encode_batch
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import EpochStart, OffsetAndEpoch
from tests.consensus.build import log_view


def position(epoch: int, offset: int) -> OffsetAndEpoch:
    """An end, or the id of a snapshot."""
    return OffsetAndEpoch(epoch=epoch, offset=offset)


def behind(epoch: int, offset: int, *epochs: int) -> LogView:
    """A log that was truncated to the end of a snapshot, and what came behind it."""
    return log_view(*epochs, start=offset, snapshots=(position(epoch, offset),))


THREE_EPOCHS = (1,) * 5 + (2,) * 5 + (4,) * 5

CASES = [
    ("epoch 1: offset 0; (1, 2)", log_view(1), (1, 2), Diverging(position(1, 1))),
    ("log truncated to snapshot (1, 1); (1, 0)", behind(1, 1), (1, 0), NeedsSnapshot(position(1, 1))),
    ("log truncated to snapshot (2, 1); (1, 1)", behind(1, 2), (1, 1), NeedsSnapshot(position(1, 2))),
    ("log truncated to snapshot (2, 1); (2, 1)", behind(1, 2), (2, 1), Valid()),
    ("snapshot (10, 1), epochs 1, 2, 4; (100, 3)", behind(1, 10, *THREE_EPOCHS), (100, 3), Diverging(position(2, 20))),
    ("snapshot (10, 1), epoch 3; (100, 2)", behind(1, 10, *(3,) * 5), (100, 2), Diverging(position(1, 10))),
    ("epoch 1: offset 0; (2, 1)", log_view(1), (2, 1), Diverging(position(1, 1))),
    ("epoch 1: 0-9, epoch 2: 10-19; (11, 1)", log_view(*(1,) * 10, *(2,) * 10), (11, 1), Diverging(position(1, 10))),
    ("epoch 1: 0-4; (4, 1)", log_view(*(1,) * 5), (4, 1), Valid()),
]


@pytest.mark.parametrize(("log", "asked", "judgement"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_position_is_judged_as_kafkas_log_does(
    log: LogView, asked: tuple[int, int], judgement: Valid | Diverging | NeedsSnapshot
) -> None:
    """MockLogTest: the cases of its validation table, (offset, epoch) each."""
    offset, epoch = asked

    assert log.validate(offset, epoch) == judgement


def batches(*epochs: int) -> MemoryReplicatedLog:
    """A log of one record per epoch named."""
    log = MemoryReplicatedLog()
    for offset, epoch in enumerate(epochs):
        log.append([encode_batch([b"x"], timestamp_ms=0, base_offset=offset, epoch=epoch)])
    return log


def test_a_log_knows_its_epochs_and_loses_what_was_not_flushed() -> None:
    """MockLogTest, KafkaMetadataLogTest: leader epochs, and unflushed records lost."""
    log = batches(1, 1, 3)
    assert list(log.epoch_starts()) == [EpochStart(epoch=1, start_offset=0), EpochStart(epoch=3, start_offset=2)]
    log.flush()
    log.append([encode_batch([b"x"], timestamp_ms=0, base_offset=3, epoch=4)])
    survivor = min((log_of_a_crash(seed) for seed in range(20)), key=lambda found: found.end_offset)

    assert survivor.end_offset == 3
    assert survivor.epoch_starts()[-1] == EpochStart(epoch=3, start_offset=2)


def log_of_a_crash(seed: int) -> MemoryReplicatedLog:
    """What a crash leaves of a log with three flushed records and one that is not."""
    log = batches(1, 1, 3)
    log.flush()
    log.append([encode_batch([b"x"], timestamp_ms=0, base_offset=3, epoch=4)])
    return log.crash(random.Random(seed))


def test_nothing_below_the_start_of_the_log_is_truncated() -> None:
    """MockLogTest, KafkaMetadataLogTest: truncation refused below the high watermark; the core refuses that one."""
    log = batches(1, 1)
    log.store_snapshot(position(1, 2), b"state")
    log.delete_before(position(1, 2))
    with pytest.raises(InvariantError):
        log.truncate(1)

    assert (log.start_offset, log.end_offset) == (2, 2)


def test_a_snapshot_replaces_what_is_before_it_and_nothing_else() -> None:
    """MockLogTest, KafkaMetadataLogTest: snapshot rules."""
    log = batches(1, 1, 2, 2)
    log.store_snapshot(position(1, 2), b"state")
    log.store_snapshot(position(1, 2), b"another")
    assert log.open_snapshot(position(1, 2)).read_at(0, 100) == b"state"
    log.delete_before(position(1, 2))

    assert (log.start_offset, log.end_offset) == (2, 4)
    assert list(log.epoch_starts()) == [EpochStart(epoch=2, start_offset=2)]
    with pytest.raises(InvariantError):
        log.delete_before(position(2, 3))
