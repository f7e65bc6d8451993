"""The disk of a replica of the core fuzzer loses what a disk may lose, and nothing else."""

from __future__ import annotations

import random

from kraftlib.consensus import events as ev
from kraftlib.records.batch import Batch, encode_batch
from kraftlib.types import EpochStart, OffsetAndEpoch, OffsetRange
from tools.core_fuzz.store import CoreStore, PendingFlush, StoredSnapshot


def batch(offset: int, epoch: int = 1, count: int = 1) -> Batch:
    return encode_batch([b"value"] * count, timestamp_ms=0, base_offset=offset, epoch=epoch)


def filled(count: int = 6) -> CoreStore:
    store = CoreStore()
    store.append([batch(offset, epoch=1 + offset // 3) for offset in range(count)])
    store.flushed_offset = count
    return store


def test_a_crash_keeps_what_was_flushed_and_a_prefix_of_the_rest() -> None:
    ends = set()
    for seed in range(40):
        store = filled()
        store.flushed_offset = 3
        store.crash(random.Random(seed))
        ends.add(store.end_offset)
        assert store.flushed_offset == store.end_offset

    assert ends == {3, 4, 5, 6}


def test_a_write_that_waits_makes_durable_what_was_to_be_flushed_before() -> None:
    store = filled()
    store.flushed_offset = 0
    store.flushes.append(PendingFlush(4, 0))
    store.catch_up()

    assert store.flushed_offset == 4


def test_a_truncation_drops_whole_batches_only() -> None:
    store = CoreStore()
    store.append([batch(0, count=3), batch(3, count=3)])
    dropped = store.truncate(5)

    assert (store.end_offset, [one.base_offset for one in dropped]) == (3, [3])


def test_a_damaged_log_keeps_its_end_and_is_read_up_to_the_hole() -> None:
    store = filled()
    store.holes = [OffsetRange(2, 6)]

    assert store.end == OffsetAndEpoch(offset=6, epoch=2)
    assert [one.base_offset for one in store.readable(0)] == [0, 1]
    assert store.readable(3) == []
    assert store.view(None).holes == [OffsetRange(2, 6)]


def test_a_repair_goes_on_beside_the_log_until_the_hole_is_full() -> None:
    store = filled()
    store.holes = [OffsetRange(1, 3)]
    first = store.write_repair([batch(1)])
    assert (first, store.repaired_to) == (ev.RepairWritten(end_offset=2, epoch=1), 2)
    second = store.write_repair([batch(2)])

    assert isinstance(second, ev.Repaired)
    assert (second.holes, second.end_offset, store.is_damaged) == ((), 6, False)


def test_a_lost_snapshot_that_was_the_whole_log_leaves_a_hole_and_the_epoch_of_its_end() -> None:
    store = CoreStore()
    snapshot_id = OffsetAndEpoch(offset=20, epoch=3)
    store.install(snapshot_id, StoredSnapshot(b"state", ()))
    lost = store.set_aside(snapshot_id)

    assert (lost.start_offset, lost.holes) == (0, (OffsetRange(0, 20),))
    assert lost.epoch_starts == (EpochStart(epoch=3, start_offset=19),)
    assert store.end == snapshot_id


def test_a_snapshot_stands_in_for_damage_before_its_end() -> None:
    store = filled()
    snapshot_id = OffsetAndEpoch(offset=3, epoch=1)
    store.snapshots[snapshot_id] = StoredSnapshot(b"state", ())
    store.latent = [OffsetRange(1, 3)]

    assert store.come_upon_damage() == ev.StorageFailed((), snapshot_id)
    assert (store.start_offset, store.is_damaged) == (3, False)


def test_a_log_whose_end_is_lost_remembers_for_the_judge_how_far_it_went() -> None:
    store = filled()
    store.forget_tail(random.Random(1))

    assert store.end_offset < 6 == store.told_end_offset
    assert store.is_amnesiac
