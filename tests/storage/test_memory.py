from __future__ import annotations

import random

import pytest

from kraftlib.errors import InvariantError, StorageError
from kraftlib.storage.memory import MemoryQuorumStateStore, MemoryReplicatedLog
from kraftlib.types import ElectionState, EpochStart, OffsetAndEpoch, ReplicaKey
from tests.storage.builders import a_batch, offsets, some_batches


def a_log(*epochs: int, flushed: int = 0) -> MemoryReplicatedLog:
    log = MemoryReplicatedLog()
    batches = some_batches(*epochs)
    log.append(batches[:flushed])
    log.flush()
    log.append(batches[flushed:])
    return log


def test_a_flush_vouches_only_for_what_was_appended_before_it_began() -> None:
    log = a_log(1, 1)

    flush = log.begin_flush()
    log.append([a_batch(2)])

    assert log.finish_flush(flush) == 2
    assert (log.flushed_offset, log.end_offset) == (2, 3)


def test_a_truncation_voids_the_flush_that_runs() -> None:
    log = a_log(1, 1, 1, flushed=1)

    flush = log.begin_flush()
    assert log.truncate(1) == 1
    log.append(some_batches(2, 2, base_offset=1))

    assert log.finish_flush(flush) == 1


def test_a_crash_keeps_what_was_flushed_and_any_prefix_of_the_rest() -> None:
    ends = set()
    for seed in range(100):
        survivor = a_log(1, 1, 2, 2, flushed=2).crash(random.Random(seed))
        assert offsets(survivor.read(0, 1_000)) == [(0, 1), (1, 1), (2, 2), (3, 2)][: survivor.end_offset]
        assert survivor.flushed_offset == survivor.end_offset
        ends.add(survivor.end_offset)

    assert ends == {2, 3, 4}


def test_a_crash_forgets_epochs_without_a_record() -> None:
    log = a_log(1, 2)
    log.begin_epoch(7, 2)
    log.flush()

    assert log.epoch_starts()[-1] == EpochStart(epoch=7, start_offset=2)
    assert [start.epoch for start in log.crash(random.Random(0)).epoch_starts()] == [1, 2]


def test_a_torn_tail_is_part_of_the_first_batch_lost() -> None:
    for seed in range(50):
        survivor = a_log(1, 1, 1, flushed=1).crash(random.Random(seed), torn_tail=True)
        lost = a_batch(survivor.end_offset).data if survivor.end_offset < 3 else b""
        assert bytes(lost).startswith(survivor.torn_tail)
        assert bool(survivor.torn_tail) == (survivor.end_offset < 3)


def test_the_crashed_log_cannot_be_used_any_more() -> None:
    log = a_log(1)
    sink = log.create_snapshot(OffsetAndEpoch(epoch=1, offset=1))
    survivor = log.crash(random.Random(0))

    for use in (log.flush, sink.freeze, lambda: log.append([a_batch(1)]), lambda: log.read(0, 1)):
        with pytest.raises(StorageError):
            use()
    assert survivor.snapshots() == []


def test_an_open_log_is_not_reopened() -> None:
    with pytest.raises(InvariantError):
        a_log(1).reopen()


def test_an_election_survives_once_written() -> None:
    store = MemoryQuorumStateStore()
    assert store.read() is None

    vote = ElectionState(epoch=3, voted_key=ReplicaKey(2))
    store.write(vote, kraft_version=1)

    assert store.read() == vote
    assert store.crash(random.Random(0)).read() == vote
    with pytest.raises(StorageError):
        store.write(vote, kraft_version=1)


def test_a_crash_during_a_write_leaves_the_old_election_or_the_new() -> None:
    old, new = ElectionState(epoch=3), ElectionState(epoch=4)
    found = set()
    for seed in range(20):
        store = MemoryQuorumStateStore(old)
        store.begin_write(new)
        assert store.read() == old
        found.add(store.crash(random.Random(seed)).read())

    assert found == {old, new}
