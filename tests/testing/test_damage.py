"""A simulated log whose disk has lost records: a `RepairableLog` that cannot be read where they were."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from kraftlib.errors import CorruptBatchError, InvariantError
from kraftlib.records.batch import Batch
from kraftlib.storage.interface import RepairableLog
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.testing.damage import DamagedLog, damaged
from kraftlib.types import OffsetAndEpoch, OffsetRange
from tests.storage.builders import a_batch, some_batches

BATCHES = some_batches(1, 1, 2, 2, 3, 3)
HOLE = OffsetRange(2, 4)


def a_log(*, latent: bool = False) -> DamagedLog:
    log = MemoryReplicatedLog()
    log.append(BATCHES)
    log.flush()
    return DamagedLog(log, HOLE, latent=latent)


def bases(batches: Sequence[Batch]) -> list[int]:
    return [batch.base_offset for batch in batches]


def test_it_is_as_long_as_before_and_cannot_be_read_in_the_hole() -> None:
    log = a_log()

    assert isinstance(log, RepairableLog)
    assert (log.end_offset, log.flushed_offset, log.is_damaged) == (6, 6, True)
    assert log.holes() == (HOLE,)
    assert bases(log.read(0, 10_000)) == [0, 1]
    assert bases(log.read(4, 10_000)) == [4, 5]
    for offset in (2, 3):
        with pytest.raises(CorruptBatchError):
            log.read(offset, 1)
    with pytest.raises(InvariantError, match="does not grow"):
        log.append([a_batch(6, 3)])


def test_a_latent_hole_is_known_once_somebody_looks() -> None:
    log = a_log(latent=True)

    assert log.holes() == ()
    with pytest.raises(CorruptBatchError):
        log.read(2, 1)
    assert log.find_damage(2) == log.holes() == (HOLE,)


def test_a_hole_is_filled_piece_by_piece() -> None:
    log = a_log()

    assert not log.write_repair(BATCHES[2:3])
    assert not log.write_repair(BATCHES[2:3]), "from the beginning again, with another leader"
    with pytest.raises(InvariantError, match="goes on at 3"):
        log.write_repair(BATCHES[4:5])
    assert log.write_repair(BATCHES[3:4])
    assert not log.is_damaged
    assert bases(log.read(0, 10_000)) == [0, 1, 2, 3, 4, 5]
    assert [(start.epoch, start.start_offset) for start in log.epoch_starts()] == [(1, 0), (2, 2), (3, 4)]


def test_damage_stays_over_crashes_and_goes_with_what_is_cut_off_or_replaced() -> None:
    crashed = a_log().crash(random.Random(1))
    assert isinstance(crashed, DamagedLog)
    assert crashed.holes() == (HOLE,)
    closed = a_log()
    closed.close()
    assert isinstance(closed.reopen(), DamagedLog)
    cut = a_log()
    assert cut.truncate(2) == 2
    assert not cut.is_damaged
    replaced = a_log()
    snapshot_id = OffsetAndEpoch(offset=9, epoch=4)
    replaced.store_snapshot(snapshot_id, b"")
    replaced.install_snapshot(snapshot_id)
    assert not replaced.is_damaged


@pytest.mark.parametrize("seed", range(10))
def test_only_what_was_flushed_is_lost_and_only_whole_batches(seed: int) -> None:
    log = MemoryReplicatedLog()
    log.append(BATCHES[:4])
    log.flush()
    log.append(BATCHES[4:])
    lost = damaged(log, random.Random(seed), end_offset=5, latent=False)

    assert lost is not None
    (hole,) = lost.holes()
    assert 0 <= hole.start_offset < hole.end_offset <= 4
    assert lost.batches() == BATCHES
    assert damaged(lost, random.Random(seed), end_offset=5, latent=False) is None


def test_holes_are_filled_one_after_the_other_and_what_is_left_stays_missing() -> None:
    log = MemoryReplicatedLog()
    log.append(BATCHES)
    log.flush()
    lost = DamagedLog(log, OffsetRange(4, 5), OffsetRange(1, 3), latent=False)

    assert lost.holes() == (OffsetRange(1, 3), OffsetRange(4, 5))
    assert bases(lost.read(0, 10_000)) == [0]
    assert lost.write_repair(BATCHES[1:3])
    assert lost.holes() == (OffsetRange(4, 5),)
    assert bases(lost.read(0, 10_000)) == [0, 1, 2, 3]
    lost.close()
    again = lost.reopen()
    assert isinstance(again, DamagedLog)
    assert again.holes() == (OffsetRange(4, 5),)
    assert again.write_repair(BATCHES[4:5])
    assert not again.is_damaged
    assert again.batches() == BATCHES


def test_places_that_are_lost_at_one_time_do_not_touch() -> None:
    for seed in range(40):
        log = MemoryReplicatedLog()
        log.append(BATCHES)
        log.flush()
        lost = damaged(log, random.Random(seed), end_offset=6, latent=False, places=3)
        assert lost is not None
        holes = lost.holes()
        assert 1 <= len(holes) <= 3
        assert all(one.end_offset < other.start_offset for one, other in itertools.pairwise(holes))


def test_an_empty_log_has_nothing_to_lose() -> None:
    assert damaged(MemoryReplicatedLog(), random.Random(1), end_offset=5, latent=False) is None
