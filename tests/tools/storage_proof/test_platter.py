"""Real bytes under a simulated log: what is cut anywhere is recovered as the model says, and damage is no torn tail."""

from __future__ import annotations

import random

import pytest

from kraftlib.errors import CorruptBatchError
from kraftlib.storage.memory import MemoryReplicatedLog
from kraftlib.types import OffsetAndEpoch
from tests.storage.builders import a_batch
from tools.storage_proof import platter


def a_log(*, flushed: int, pending: int) -> MemoryReplicatedLog:
    """A log of batches of three records, the first so many of them flushed."""
    log = MemoryReplicatedLog()
    for number in range(flushed + pending):
        log.append([a_batch(3 * number, 1 + number // 3, records=3)])
        if number == flushed - 1:
            log.flush()
    return log


class Cut(random.Random):
    """Cuts what is pending at one byte, and writes nothing behind it."""

    def __init__(self, size: int) -> None:
        super().__init__(1)
        self.size = size

    def randint(self, a: int, b: int) -> int:
        return min(self.size, b)

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return seq[0]


def test_a_tail_torn_at_every_byte_is_cut_back_to_whole_batches() -> None:
    pending = [bytes(batch.data) for batch in a_log(flushed=2, pending=2).batches()][2:]
    for size in range(len(b"".join(pending)) + 1):
        survivor = platter.crash(a_log(flushed=2, pending=2), Cut(size))
        whole = sum(size >= len(b"".join(pending[: number + 1])) for number in range(2))

        assert survivor.end_offset == survivor.flushed_offset == 3 * (2 + whole)
        assert bool(survivor.torn_tail) == (size not in (0, len(pending[0]), len(b"".join(pending))))


@pytest.mark.parametrize("seed", range(20))
def test_what_was_flushed_is_there_with_its_bytes_epochs_and_snapshots(seed: int) -> None:
    before = a_log(flushed=5, pending=3)
    snapshot_id = OffsetAndEpoch(offset=6, epoch=1)
    before.store_snapshot(snapshot_id, b"a snapshot")
    batches, epochs = before.batches(), before.epoch_starts()
    survivor = platter.crash(before, random.Random(seed))
    after = survivor.batches()

    assert [bytes(batch.data) for batch in after] == [bytes(batch.data) for batch in batches[: len(after)]]
    assert len(after) >= 5
    assert list(survivor.epoch_starts()) == list(epochs[: len(survivor.epoch_starts())])
    assert list(survivor.snapshots()) == [snapshot_id]


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("name", platter.DAMAGES)
def test_damage_below_the_sync_point_is_never_cut(name: str, seed: int) -> None:
    with pytest.raises(CorruptBatchError, match="nothing was cut"):
        platter.recovery_of(a_log(flushed=6, pending=1), random.Random(seed), damage=platter.DAMAGES[name], noted=1.0)


def test_an_empty_log_survives() -> None:
    assert platter.crash(MemoryReplicatedLog(), random.Random(1)).end_offset == 0
